"""Time the analysis of a big trace, and keep the result as rows.

    python benchmarks/analyze.py --kernels 1_000_000
    python benchmarks/analyze.py --scale

A real report is repeated in time until it has so many kernels (big_trace.py), then, each in fresh
processes: the raw read of the columns that the analysis needs (the floor), load and each table,
`nsysflow analyze` with every file and with `--no-files`, `nsysflow whatif`, and `nsysflow -h`.
With `--scale` the floor, load, the page and all files, at each of `SIZES`. Medians go to the screen
and, with machine and versions, to a CSV file; `ratio` is to the floor's seconds. `cpu_s` are the
CPU seconds of all threads: they say more on a machine that others use too.
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
from typing import Final, NamedTuple

import click

HERE = Path(__file__).parent
TRACES = HERE.parent / "build" / "traces"
NSYSFLOW = Path(sys.executable).with_name("nsysflow")

SIZES: Final = (100_000, 300_000, 1_000_000, 3_000_000, 5_000_000, 10_000_000)
"""Kernels, for `--scale`: 10 M need 14 GB of disk and 6 GB of memory."""

AS_INSTALLED: Final = "PYTHONDONTWRITEBYTECODE"
"""An installed nsysflow has bytecode; without it each start compiles the package again."""


class Result(NamedTuple):
    """What was measured: its name, seconds, CPU seconds and peak memory."""

    what: str
    seconds: float
    cpu_s: float
    peak_mb: float


class Ran(NamedTuple):
    """What a command took, and what it printed."""

    seconds: float
    peak_mb: float
    out: str
    cpu_s: float

    def as_result(self, what: str) -> Result:
        """The same under a name."""
        return Result(what, self.seconds, self.cpu_s, self.peak_mb)


def big_trace(report: Path, kernels: int) -> Path:
    """The trace to measure on, made unless an earlier run left it."""
    path = TRACES / f"{report.name.split('.')[0]}-{kernels}.sqlite"
    if not path.exists():
        TRACES.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        run(sys.executable, HERE / "big_trace.py", report, part, f"--kernels={kernels}")
        part.rename(path)
    return path


def run(*argv: str | Path) -> Ran:
    """What a command took that must succeed."""
    environment = {name: value for name, value in os.environ.items() if name != AS_INSTALLED}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as said,
    ):
        begin = time.perf_counter()
        child = subprocess.Popen(argv, stdout=out, stderr=said, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            msg = f"exit {child.returncode}: {' '.join(map(str, argv))}\n{said.read()}"
            raise click.ClickException(msg)
        unit = 1 if sys.platform == "darwin" else 1024
        out.seek(0)
        peak_mb, cpu_s = usage.ru_maxrss * unit / 1e6, usage.ru_utime + usage.ru_stime
        return Ran(seconds, peak_mb, out.read(), cpu_s)


def measure(trace: Path) -> Iterable[Result]:
    """Everything once."""
    yield from _stages("floor", trace)
    yield from _stages("tables", trace)
    yield from _analyze(trace)
    yield run(NSYSFLOW, "whatif", trace, "--remove", "sync").as_result("whatif")
    yield run(NSYSFLOW, "-h").as_result("-h")


def measure_scale(trace: Path) -> Iterable[Result]:
    """What grows with the trace, once."""
    yield from _stages("floor", trace)
    yield from _stages("load", trace)
    yield from _analyze(trace)


def _stages(what: str, trace: Path) -> Iterable[Result]:
    """The stages that stages.py measures under this name, in a process of their own."""
    ran = run(sys.executable, HERE / "stages.py", what, trace)
    return [Result(name, *taken) for name, taken in json.loads(ran.out).items()]


def _analyze(trace: Path) -> Iterable[Result]:
    """`nsysflow analyze` with every file, and the page alone."""
    with tempfile.TemporaryDirectory(dir=TRACES) as folder:
        yield run(NSYSFLOW, "analyze", trace, "-o", Path(folder, "out")).as_result("analyze")
    yield run(NSYSFLOW, "analyze", trace, "--no-files").as_result("analyze --no-files")


def medians(results: Iterable[Result]) -> list[Result]:
    """One row per thing measured, in the order of first sight."""
    seen: dict[str, list[Result]] = defaultdict(list)
    for each in results:
        seen[each.what].append(each)
    return [
        Result(
            what,
            median(each.seconds for each in runs),
            median(each.cpu_s for each in runs),
            median(each.peak_mb for each in runs),
        )
        for what, runs in seen.items()
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
    default=HERE.parent / "tests" / "data" / "h200-gpt2-eager.sqlite.xz",
    help="The export to repeat; h200-gpt2-eager of the tests by default: its steps are judged.",
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
@click.option("--scale", is_flag=True, help="Time what grows, at 0.1 to 10 M kernels.")
@click.option("--repeat", default=5, show_default=True, help="Runs; the median is kept.")
@report_option
@rows_option("analyze.csv")
def main(kernels: str, *, scale: bool, repeat: int, report: Path, rows_file: Path) -> None:
    """Time the analysis of a big trace made from a real report."""
    for size in SIZES if scale else (int(kernels),):
        trace = big_trace(report, size)
        once = measure_scale if scale else measure
        found = medians(result for _ in range(repeat) for result in once(trace))
        name = {"report": report.name.split(".")[0], "kernels": size}
        rows = [machine() | name | row for row in _rows(found)]
        click.echo(f"\n{size:,} kernels\n{_LINE.format(**{each: each for each in rows[0]})}")
        for row in rows:
            click.echo(_LINE.format(**row))
        add_rows(rows_file, rows)


_LINE: Final = "{what:<20}{seconds:>9}{cpu_s:>9}{peak_mb:>9}{ratio:>8}"


def _rows(found: Iterable[Result]) -> list[dict[str, str | int]]:
    """Results as rows of the CSV file."""
    found = [*found]
    (floor_s,) = (each.seconds for each in found if each.what == "floor")
    return [
        {
            "what": each.what,
            "seconds": f"{each.seconds:.3f}",
            "peak_mb": f"{each.peak_mb:.0f}",
            "ratio": f"{each.seconds / floor_s:.2f}",
            "cpu_s": f"{each.cpu_s:.3f}",
        }
        for each in found
    ]


if __name__ == "__main__":
    os.environ["NSYSFLOW_CACHE"] = "off"  # each process reads the report itself
    main()
