"""Gaps by length and cause: how many there are, and how much idle time they are."""

from collections.abc import Callable
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.tables.gaps import LENGTHS, LONGER
from nsysflow.report import palette
from nsysflow.report.about import about_run, time_label
from nsysflow.report.fields import together
from nsysflow.report.figures.style import PAGE_MM, Sheet, fill, scale_in_time
from nsysflow.report.parts import Key
from nsysflow.report.results import Results

_BODY_MM: Final = 48


def draw(results: Results) -> Figure | None:
    """Both side by side, stacked by each gap's main cause; None without gaps."""
    judged = results.judged
    rows = judged.table("gap_histogram").rows(named=True)
    if not rows:
        return None
    causes = [name for name in CAUSES if any(row["cause"] == name for row in rows)]
    sheet = Sheet(
        title="Gaps by length and main cause",
        about=about_run(results) + together(results),
        width_mm=PAGE_MM,
        body_mm=_BODY_MM,
        keys=[Key(label=CAUSES[name].label, colour=palette.CAUSES[name]) for name in causes],
    )
    figure = sheet.figure()
    left, right = figure.subplots(1, 2)
    _bars(left, rows, causes, lambda row: row["gaps"] / judged.step_count)
    left.set_ylabel("gaps per step" if judged.of_steps else "gaps in the window")
    longest_ns = _bars(right, rows, causes, lambda row: row["idle_ns"] / judged.step_count)
    scale_in_time(right, "y", longest_ns, f"idle {time_label(results)}")
    return figure


def _bars(
    axes: Axes,
    rows: list[dict[str, Any]],
    causes: list[str],
    value: Callable[[dict[str, Any]], float],
) -> float:
    """A bar per class of length, stacked by cause; how high the highest is."""
    lengths = _lengths({row["length"] for row in rows})
    bottom = [0.0] * len(lengths)
    for cause in causes:
        here = [row for row in rows if row["cause"] == cause]
        heights = [sum(value(row) for row in here if row["length"] == name) for name in lengths]
        axes.bar(lengths, heights, 0.8, bottom, **fill(palette.CAUSES[cause]))
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    axes.set_xlabel("length of the gap")
    axes.tick_params(axis="x", length=0, labelsize=6)
    axes.set_ylim(0, 1.05 * max(bottom))
    axes.grid(axis="y")
    return max(bottom)


def _lengths(there: set[str]) -> list[str]:
    """The classes from the shortest to the longest that has gaps."""
    classes = [*(label for _, label in LENGTHS), LONGER]
    last = max(at for at, label in enumerate(classes) if label in there)
    return classes[: last + 1]
