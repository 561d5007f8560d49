"""Time the load of one run in each format, per event.

    python -m benchmarks.load --kernels 1_000_000

A real report, repeated in time (big_trace.py), is written once more as torch.profiler writes it
(plain and `.gz`) and as rocprofv3 does (formats.py). Each is loaded in a process of its own, all in
turn. Medians go to the screen and to a CSV file. An event is a row that the trace keeps: an
operation, a call or a range. `ratio` is the CPU time of an event to that of the SQLite export.
"Kineto, JSON alone" decodes the same document, in pieces too, and uses nothing of it.
"""

import gzip
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final

import click

from benchmarks.analyze import HERE, add_rows, big_trace, machine, report_option, rows_option, run
from benchmarks.formats import kineto_text, write_rocpd
from nsysflow.analysis.load import load

_LOADS: Final = {
    "SQLite": ("whole", ".sqlite"),
    "rocpd": ("whole", ".db"),
    "Kineto": ("whole", ".pt.trace.json"),
    "Kineto, gz": ("whole", ".pt.trace.json.gz"),
    "Kineto, JSON alone": ("json", ".pt.trace.json"),
}
"""What is timed: the stage of stages.py, and the end of the file's name."""


def write_others(export: Path) -> int:
    """Write the other formats beside an export, unless they are there; the number of events."""
    trace = load(export)
    files = {end: export.with_suffix(end) for _, end in _LOADS.values()}
    if not files[".db"].exists():
        part = export.with_suffix(".part")
        with files[".pt.trace.json"].open("w", encoding="utf-8") as text:
            text.writelines(kineto_text(trace))
        with (
            files[".pt.trace.json"].open("rb") as plain,
            gzip.open(files[".pt.trace.json.gz"], "wb", compresslevel=6) as packed,
        ):
            shutil.copyfileobj(plain, packed)
        part.unlink(missing_ok=True)
        write_rocpd(trace, part)
        part.rename(files[".db"])
    return len(trace.ops) + len(trace.calls) + len(trace.ranges)


def measure(export: Path, repeat: int) -> Mapping[str, tuple[float, float, float]]:
    """Seconds, CPU seconds and peak MB of each load: medians."""
    taken: dict[str, list[list[float]]] = {name: [] for name in _LOADS}
    for _ in range(repeat):
        for name, (stage, end) in _LOADS.items():
            ran = run(sys.executable, HERE / "stages.py", stage, export.with_suffix(end))
            taken[name] += json.loads(ran.out).values()
    return {
        name: tuple(median(column) for column in zip(*rounds, strict=True))
        for name, rounds in taken.items()
    }


@click.command()
@click.option("--kernels", default="1_000_000", show_default=True, help="Size of the trace.")
@click.option("--repeat", default=5, show_default=True, help="Rounds; the median is kept.")
@report_option
@rows_option("load.csv")
def main(kernels: str, repeat: int, report: Path, rows_file: Path) -> None:
    """Time the load of one run in each format."""
    export = big_trace(report, int(kernels))
    events = write_others(export)
    found = measure(export, repeat)
    _, base_s, _ = found["SQLite"]
    rows: list[dict[str, str | int]] = [
        {
            **machine(),
            "report": report.name.split(".")[0],
            "kernels": int(kernels),
            "events": events,
            "what": name,
            "file_mb": f"{export.with_suffix(_LOADS[name][1]).stat().st_size / 1e6:.0f}",
            "seconds": f"{seconds:.3f}",
            "cpu_s": f"{cpu_s:.3f}",
            "cpu_us_per_event": f"{1e6 * cpu_s / events:.2f}",
            "peak_mb": f"{peak_mb:.0f}",
            "ratio": f"{cpu_s / base_s:.2f}",
        }
        for name, (seconds, cpu_s, peak_mb) in found.items()
    ]
    click.echo(_LINE.format(**{name: name for name in rows[0]}))
    for row in rows:
        click.echo(_LINE.format(**row))
    add_rows(rows_file, rows)


_LINE: Final = (
    "{what:<20}{file_mb:>9}{seconds:>9}{cpu_s:>9}{cpu_us_per_event:>18}{peak_mb:>9}{ratio:>8}"
)


if __name__ == "__main__":
    main()
