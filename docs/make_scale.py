"""Draw how time and memory grow with a report, from the rows of `benchmarks/analyze.py --scale`.

    python -m docs.make_scale

Takes the newest row of each size, and prints them as the table of docs/scale.md.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from nsysflow.report.figures.style import PAGE_MM, Sheet, applied
from nsysflow.report.palette import CAUSES, CLASSES, PAGE, Colour
from nsysflow.report.pictures import LegendEntry

ROOT: Final = Path(__file__).parents[1]
ROWS: Final = ROOT / "benchmarks" / "analyze.csv"
PICTURE: Final = ROOT / "docs" / "pictures" / "scale.svg"

SHOWN: Final[dict[str, tuple[str, Colour]]] = {
    "analyze": ("all files", CLASSES["communication"]),
    "analyze --no-files": ("the page", CAUSES["dependency"]),
    "load": ("load", CLASSES["compute"]),
    "floor": ("raw read", PAGE["faint"]),
}
"""What is drawn, by its name in the rows: its name and colour in the picture."""

_AXES_MM: Final = 62

Row = dict[str, str]


def newest(rows: list[Row]) -> dict[tuple[int, str], Row]:
    """The last row of each number of kernels and thing measured, of the report measured last: of
    runs with `--scale`, as only they measure CPU seconds."""
    report = rows[-1]["report"]
    scaled = [row for row in rows if row["what"] in SHOWN and row["cpu_s"]]
    scaled = [row for row in scaled if row["report"] == report]
    return {(int(row["kernels"]), row["what"]): row for row in scaled}


def draw(found: Mapping[tuple[int, str], Row], picture: Path) -> None:
    """The time on the left, the peak memory on the right, both axes logarithmic."""
    some = next(iter(found.values()))
    sheet = Sheet(
        title="Time and memory of an analysis, by the size of the report",
        about=f"{some['report']} repeated in time, {some['cores']} cores ({some['cpu']}), Python"
        f" {some['python']}, polars {some['polars']}, {some['date']}. The raw read reads the same"
        " columns from SQLite and does nothing with them.",
        width_mm=PAGE_MM,
        body_mm=_AXES_MM,
        keys=[LegendEntry(label=name, colour=colour) for name, colour in SHOWN.values()],
    )
    with applied():
        figure = sheet.figure()
        left, right = figure.subplots(1, 2)
        _lines(left, found, "cpu_s", "CPU seconds", unit=1)
        _lines(right, found, "peak_mb", "peak memory (GB)", unit=1000)
        figure.savefig(picture, metadata={"Date": None})


def _lines(
    axes: Axes, found: Mapping[tuple[int, str], Row], column: str, label: str, *, unit: float
) -> None:
    """A line for each thing measured."""
    for what, (_, colour) in SHOWN.items():
        sizes = sorted(size for size, each in found if each == what)
        values = [float(found[size, what][column]) / unit for size in sizes]
        axes.plot(sizes, values, "o-", color=colour.light, linewidth=1, markersize=3)
    axes.set(xscale="log", yscale="log", xlabel="kernels (millions)", ylabel=label)
    axes.set_xticks(sorted({size for size, _ in found}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size / 1e6:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="both")


def table(found: Mapping[tuple[int, str], Row]) -> str:
    """The rows as a table in Markdown: CPU seconds, and peak GB in brackets."""
    head = ["kernels (M)", *(name for name, _ in reversed(SHOWN.values()))]
    lines = [head, ["---:"] * len(head)]
    for size in sorted({size for size, _ in found}):
        cells = [
            f"{float(row['cpu_s']):.3g} s, {float(row['peak_mb']) / 1000:.2g} GB"
            for row in (found[size, what] for what in reversed(SHOWN))
        ]
        lines.append([f"{size / 1e6:g}", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Draw the picture and print the table."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        found = newest([*csv.DictReader(file)])
    draw(found, PICTURE)
    print(table(found))  # noqa: T201


if __name__ == "__main__":
    main()
