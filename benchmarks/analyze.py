"""Time the analysis of a big trace, and keep the result as rows.

    python benchmarks/analyze.py --kernels 1_000_000

A real report is repeated in time until it has so many kernels (big_trace.py), then, each in fresh
processes: the raw read of the columns that the analysis needs (the floor), load and each table,
`nsysflow analyze` with every file and with `--no-files`, `nsysflow whatif`, and `nsysflow -h`.
Medians go to the screen and, with machine and versions, to a CSV file; `ratio` is to the floor.
"""

# This process must stay small: on Linux a child's peak memory starts from its parent's.

import csv
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

import click

HERE = Path(__file__).parent
TRACES = HERE.parent / "build" / "traces"
NSYSFLOW = Path(sys.executable).with_name("nsysflow")

Result = tuple[str, float, float]
"""What was measured, seconds, peak MB."""


def big_trace(report: Path, kernels: int) -> Path:
    """The trace to measure on, made unless an earlier run left it."""
    path = TRACES / f"{report.name.split('.')[0]}-{kernels}.sqlite"
    if not path.exists():
        TRACES.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        run(sys.executable, HERE / "big_trace.py", report, part, f"--kernels={kernels}")
        part.rename(path)
    return path


def run(*argv: str | Path) -> tuple[float, float, str]:
    """Seconds, peak MB and stdout of a command that must succeed."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as said,
    ):
        begin = time.perf_counter()
        child = subprocess.Popen(argv, stdout=out, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            msg = f"exit {child.returncode}: {' '.join(map(str, argv))}\n{said.read()}"
            raise click.ClickException(msg)
        unit = 1 if sys.platform == "darwin" else 1024
        out.seek(0)
        return seconds, usage.ru_maxrss * unit / 1e6, out.read()


def measure(trace: Path) -> Iterable[Result]:
    """Everything once."""
    for what in ("floor", "tables"):
        *_, out = run(sys.executable, HERE / "stages.py", what, trace)
        yield from ((name, *pair) for name, pair in json.loads(out).items())
    with tempfile.TemporaryDirectory(dir=TRACES) as folder:
        seconds, peak_mb, _ = run(NSYSFLOW, "analyze", trace, "-o", Path(folder, "out"))
        yield "analyze", seconds, peak_mb
    seconds, peak_mb, _ = run(NSYSFLOW, "analyze", trace, "--no-files")
    yield "analyze --no-files", seconds, peak_mb
    seconds, peak_mb, _ = run(NSYSFLOW, "whatif", trace, "--remove", "sync")
    yield "whatif", seconds, peak_mb
    seconds, peak_mb, _ = run(NSYSFLOW, "-h")
    yield "-h", seconds, peak_mb


def medians(results: Iterable[Result]) -> list[Result]:
    """One row per thing measured, in the order of first sight."""
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, seconds, peak_mb in results:
        seen[name].append((seconds, peak_mb))
    return [
        (name, median(seconds for seconds, _ in pairs), median(peak_mb for _, peak_mb in pairs))
        for name, pairs in seen.items()
    ]


def machine() -> dict[str, str | int]:
    """What the numbers depend on beside the code."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = named[0].split(":", 1)[1].strip() if named else cpu
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cpu": cpu,
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "polars": version("polars"),
        "adbc": version("adbc-driver-sqlite"),
        "nsysflow": version("nsysflow"),
    }


def add_rows(file: Path, rows: Sequence[Mapping[str, str | int]]) -> None:
    """Add rows to a CSV file, with a head if it is new."""
    fresh = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, rows[0], lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


report_option: Final = click.option(
    "--report",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    default=HERE.parent / "tests" / "data" / "h200-train.sqlite.xz",
    help="The export to repeat; h200-train of the tests by default.",
)


def rows_option(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option for the file that rows are added to; `name` in this folder by default."""
    return click.option(
        "--csv",
        "rows_file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=HERE / name,
        help=f"Where rows are added; benchmarks/{name} by default.",
    )


@click.command()
@click.option("--kernels", default="1_000_000", show_default=True, help="Size of the trace.")
@click.option("--repeat", default=5, show_default=True, help="Runs; the median is kept.")
@report_option
@rows_option("analyze.csv")
def main(kernels: str, repeat: int, report: Path, rows_file: Path) -> None:
    """Time the analysis of a big trace made from a real report."""
    trace = big_trace(report, int(kernels))
    found = medians(result for _ in range(repeat) for result in measure(trace))
    (floor,) = (seconds for name, seconds, _ in found if name == "floor")
    shared = machine() | {"report": report.name.split(".")[0], "kernels": int(kernels)}
    rows = [
        shared
        | {
            "what": name,
            "seconds": f"{seconds:.3f}",
            "peak_mb": f"{peak_mb:.0f}",
            "ratio": f"{seconds / floor:.2f}",
        }
        for name, seconds, peak_mb in found
    ]
    click.echo(f"{'what':<20}{'seconds':>9}{'peak MB':>9}{'ratio':>8}")
    for row in rows:
        click.echo(f"{row['what']:<20}{row['seconds']:>9}{row['peak_mb']:>9}{row['ratio']:>8}")
    add_rows(rows_file, rows)


if __name__ == "__main__":
    os.environ["NSYSFLOW_CACHE"] = "off"  # each process reads the report itself
    main()
