"""Analyse many reports in one process, and see that it does not grow.

    python -m tests.endurance --analyses 2000     or     make endure N=2000

The reports take turns, and each is read in all `WAYS`: commands of this process, Python, a damaged
file, which raises an error. After each round of all of them comes a line with the memory, the
Python objects, the open files and the threads of the process.

The first half of the rounds warms up: what is kept once for each report or table is kept by then.
In the second half,

* no more files are open and no more threads run than in the first;
* the line that fits the memory best (least squares) rises by less than 2 % or 4 MB, less two
  standard errors of its slope: freed memory goes back in large pieces, at any time;
* the same line of the objects rises by less than one object an analysis. One cached frame or error
  is more.
"""

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean, linear_regression
from tempfile import TemporaryDirectory
from typing import Final

import click

import nsysflow
from nsysflow.analysis.frames.scratch import own_bytes
from nsysflow.cli.main import main as nsysflow_main
from tests.reports import DATA, PACKED

_BY_SIZE: Final = sorted(PACKED.values(), key=lambda path: (path.stat().st_size, path.name))
REPORTS: Final = (DATA / "h200-kineto.pt.trace.json.gz", *_BY_SIZE[:11])
"""The smallest ones: larger reports take seconds."""

GROWTH_SHARE: Final = 0.02
GROWTH_BYTES: Final = 4_000_000
OBJECTS_OF_AN_ANALYSIS: Final = 1.0

WAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "page": ("analyze", "{report}", "--no-files"),
    "JSON": ("analyze", "{report}", "--json"),
    "files": ("analyze", "{report}", "-o", "{folder}/out", "--html", "--sarif", "{folder}/sarif"),
    "Perfetto": ("analyze", "{report}", "--no-files", "--perfetto", "{folder}/pftrace"),
    "table": ("analyze", "{report}", "--table", "kernels"),
    "whatif": ("whatif", "{report}", "--no-profiler"),
    "diff": ("diff", "{report}", "{report}"),
    "damaged": ("analyze", "{damaged}", "--no-files"),
}
"""The command lines by which reports are read, in turn. The first is followed by Python's way."""


def _command(words: Sequence[str]) -> object:
    """The exit code of a command in this process; click's own runner keeps each of its streams."""
    try:
        nsysflow_main(words, standalone_mode=False)
    except SystemExit as end:
        return end.code
    return 0


def _analyse(report: Path, way: str, folder: Path) -> None:
    """Read a report in one way, and print or write what it gives."""
    content = report.read_bytes()
    damaged = folder / f"damaged{''.join(report.suffixes[-2:])}"
    damaged.write_bytes(content[: len(content) // 2])
    places = {"report": report, "folder": folder, "damaged": damaged}
    ended = _command([word.format(**places) for word in WAYS[way]])
    assert ended == (way == "damaged"), f"{report}, {way}: exit code {ended}"
    if way == "page":
        assert nsysflow.analyze(report)._repr_html_()


@dataclass(frozen=True, kw_only=True)
class Point:
    """The process after so many analyses.

    Attributes:
        analyses: how many.
        own: bytes of memory that only it takes.
        objects: Python objects that the collector knows.
        files: open files.
        threads: of Python and polars.
    """

    analyses: int
    own: int
    objects: int
    files: int
    threads: int

    @classmethod
    def now(cls, analyses: int) -> "Point":
        """The process, once what is unused is collected."""
        gc.collect()
        return cls(
            analyses=analyses,
            own=own_bytes(),
            objects=len(gc.get_objects()),
            files=len([*Path("/proc/self/fd").iterdir()]),
            threads=len([*Path("/proc/self/task").iterdir()]),
        )

    def __str__(self) -> str:
        return (
            f"{self.analyses:9,} {self.own / 1e6:9.1f} {self.objects:9,} {self.files:6}"
            f" {self.threads:8}"
        )


HEADING: Final = f"{'analyses':>9} {'memory MB':>9} {'objects':>9} {'files':>6} {'threads':>8}"


def analysed(count: int, reports: Sequence[Path], folder: Path) -> Iterator[Point]:
    """A point after each round, until there were `count` analyses."""
    done = 0
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        while done < count:
            with redirect_stdout(nowhere), redirect_stderr(nowhere):
                for report, way in product(reports, WAYS):
                    _analyse(report, way, folder)
                    done += 1
            yield Point.now(done)


def growth(points: Sequence[Point]) -> list[str]:
    """What grew in the second half; see above."""
    half = len(points) // 2
    warm, rest = points[:half], points[half:]
    length = rest[-1].analyses - rest[0].analyses
    grown = length * _rise(rest, "own")
    objects = _rise(rest, "objects")
    found = []
    if grown > max(GROWTH_BYTES, GROWTH_SHARE * warm[-1].own):
        found.append(f"memory rises by {grown / 1e6:.1f} MB in {length} analyses")
    if objects > OBJECTS_OF_AN_ANALYSIS:
        found.append(f"each analysis leaves {objects:.1f} objects")
    if max(point.files for point in rest) > max(point.files for point in warm):
        found.append("files stay open")
    if max(point.threads for point in rest) > max(point.threads for point in warm):
        found.append("threads stay")
    return found


def _rise(points: Sequence[Point], what: str) -> float:
    """How much an analysis adds to this at least: the slope of the line that fits best, less two
    standard errors."""
    x, y = ([getattr(point, name) for point in points] for name in ("analyses", what))
    slope, start = linear_regression(x, y)
    left = sum((value - start - slope * at) ** 2 for at, value in zip(x, y, strict=True))
    spread = sum((at - fmean(x)) ** 2 for at in x)
    return slope - 2 * sqrt(left / (len(points) - 2) / spread)


@click.command()
@click.option("--analyses", default=2_000, show_default=True, help="How many, at least.")
@click.option("--reports", default=len(REPORTS), show_default=True, help="Of how many reports.")
def main(analyses: int, reports: int) -> None:
    """Analyse reports in turn; say what grows."""
    click.echo(HEADING)
    points = []
    with TemporaryDirectory(prefix="endurance-") as folder:
        for point in analysed(analyses, REPORTS[:reports], Path(folder)):
            click.echo(str(point))
            points.append(point)
    found = growth(points)
    click.echo("\n".join(found) or "nothing grows")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
