"""Where each GPU's time goes: compute, exposed communication and copies, idle by cause."""

from collections.abc import Mapping
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsysflow.base.units import share
from nsysflow.report.about import about_run, gpu_label, time_label
from nsysflow.report.figures.style import PAGE_MM, Sheet, fill, ink_on, scale_in_time
from nsysflow.report.parts import ALL, Key, Part, there, timed
from nsysflow.report.results import Results

_AXES_MM: Final = 9
_GPU_MM: Final = 7

_NAMED: Final = 0.06
"""A part that takes this share of the longest bar has room for its own."""


def draw(results: Results) -> Figure | None:
    """A bar per GPU, of a judged step's mean; None without GPU work."""
    judged = results.judged
    rows = [row for row in judged.table("accounting").iter_rows(named=True) if row["window_ns"]]
    if not rows:
        return None
    steps = [judged.steps_on(row["report"], row["device"]) for row in rows]
    parts = there(ALL, rows)
    sheet = Sheet(
        title="Where the GPU's time goes" if len(rows) == 1 else "Where each GPU's time goes",
        about=about_run(results),
        width_mm=PAGE_MM,
        body_mm=_AXES_MM + _GPU_MM * len(rows),
        keys=[_key(part, rows, steps) for part in parts],
    )
    figure = sheet.figure()
    axes = figure.subplots()
    longest_ns = max(row["window_ns"] / count for row, count in zip(rows, steps, strict=True))
    for at, (row, count) in enumerate(zip(rows, steps, strict=True)):
        _bar(axes, at, parts, row, count, longest_ns)
    names = [gpu_label(results, row["report"], row["device"]) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, longest_ns)
    axes.spines["left"].set_visible(False)
    scale_in_time(axes, "x", longest_ns, time_label(results))
    return figure


def _key(part: Part, rows: list[dict[str, Any]], steps: list[int]) -> Key:
    """The legend's entry, with the figure where there is one GPU."""
    if len(rows) > 1:
        return part
    (row,), (count,) = rows, steps
    return Key(label=timed(part, row, count), colour=part.colour)


def _bar(
    axes: Axes,
    at: int,
    parts: list[Part],
    row: Mapping[str, Any],
    steps: int,
    longest_ns: float,
) -> None:
    """The bar of one GPU, with the share of each part that has room for it."""
    left = 0.0
    for part in parts:
        ns = row[part.column] / steps
        axes.barh(at, ns, 0.7, left, **fill(part.colour))
        if ns >= _NAMED * longest_ns:
            text = share(row[part.column], row["window_ns"])
            axes.text(left + ns / 2, at, text, ha="center", va="center", **ink_on(part.colour))
        left += ns
