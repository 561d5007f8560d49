"""GPU time as bars: by GPU, phase and class of kernel, and gaps by length."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.tables.gaps import LENGTHS, LONGER
from nsysflow.base.names import printable
from nsysflow.base.units import duration, share
from nsysflow.report import palette
from nsysflow.report.fields import gpus_together, mean_count
from nsysflow.report.figures.style import COLUMN_MM, PAGE_MM, Sheet, fill, ink_on, scale_in_time
from nsysflow.report.layout import shorten_middle
from nsysflow.report.palette import CAUSES as COLOURS
from nsysflow.report.palette import CLASSES
from nsysflow.report.phase_tree import Phase, phase_tree
from nsysflow.report.pictures import (
    ALL,
    LegendEntry,
    Part,
    about_run,
    gpu_label,
    part_figures,
    parts_with_time,
    time_label,
)
from nsysflow.report.results import Results

_AXES_MM: Final = 9
_GPU_MM: Final = 7

_NAMED: Final = 0.06
"""A part that takes this share of the longest bar has room for its own."""


def draw_breakdown(results: Results) -> Figure | None:
    """A bar per GPU, of a judged step's mean; None without GPU work."""
    judged = results.judged
    rows = [row for row in judged.table("accounting").iter_rows(named=True) if row["window_ns"]]
    if not rows:
        return None
    steps = [judged.steps_on(row["report"], row["device"]) for row in rows]
    parts = parts_with_time(ALL, rows)
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


def _key(part: Part, rows: list[dict[str, Any]], steps: list[int]) -> LegendEntry:
    """The legend's entry, with the figure where parts_with_time is one GPU."""
    if len(rows) > 1:
        return part
    (row,), (count,) = rows, steps
    return LegendEntry(label=part_figures(part, row, count), colour=part.colour)


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


_PHASES_AXES_MM: Final = 9
_PHASE_MM: Final = 4.6

PHASES: Final = 16
"""How many phases fit into a figure: those with the most time."""

_LETTERS: Final = 40
"""A longer name leaves the bars too little room."""

_BUSY: Final = LegendEntry(label="busy with its work", colour=CLASSES["compute"])


def draw_phases(results: Results) -> Figure | None:
    """A bar per phase in the order of the page; None without ranges or GPU work."""
    judged = results.judged
    tree, left_out = phase_tree(judged, PHASES)
    phases = [phase for phase in tree if phase.time_ns]
    if not any(phase.instances for phase in phases):
        return None
    causes = [name for name in CAUSES if any(phase.causes_ns[name] for phase in phases)]
    more = f"{left_out} shorter phases are not shown" if left_out else ""
    sheet = Sheet(
        title="GPU time of each phase: busy with its work, or idle while the host was in it",
        about=about_run(results, more) + gpus_together(results),
        width_mm=PAGE_MM,
        body_mm=_PHASES_AXES_MM + _PHASE_MM * len(phases),
        keys=[
            _BUSY,
            *(LegendEntry(label=f"idle: {CAUSES[n].label}", colour=COLOURS[n]) for n in causes),
        ],
    )
    figure = sheet.figure()
    axes = figure.subplots()
    for at, phase in enumerate(phases):
        _phases_bar(axes, at, phase, causes, judged.step_count)
    longest_ns = max(phase.time_ns for phase in phases) / judged.step_count
    axes.set_yticks(range(len(phases)), [_name(phase) for phase in phases])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(phases) - 0.5, -0.5)
    axes.set_xlim(0, 1.1 * longest_ns)  # room for the text
    axes.grid(axis="x")
    scale_in_time(axes, "x", longest_ns, time_label(results))
    return figure


def _phases_bar(axes: Axes, at: int, phase: Phase, causes: Sequence[str], steps: int) -> None:
    """The bar of one phase, and how long it is."""
    parts = [(phase.busy_ns, _BUSY.colour)]
    parts += [(phase.causes_ns[name], COLOURS[name]) for name in causes]
    left = 0.0
    for ns, colour in parts:
        axes.barh(at, ns / steps, 0.75, left, **fill(colour))
        left += ns / steps
    axes.text(left, at, f" {duration(round(phase.time_ns / steps))}", va="center", size=6)


def _name(phase: Phase) -> str:
    """Its path."""
    return shorten_middle(printable("/".join(phase.names)), _LETTERS)


_KERNEL_CLASSES_AXES_MM: Final = 9
_CLASS_MM: Final = 4.6

COMMUNICATION: Final = "comm"
"""The class of communication kernels."""


def draw_kernel_classes(results: Results) -> Figure | None:
    """A bar per class, the longest first; None without kernels."""
    judged = results.judged
    classes = (
        judged.table("kernels")
        .group_by("class")
        .agg(pl.col("total_ns", "count").sum())
        .filter(pl.col("total_ns") > 0)
        .sort("total_ns", "class", descending=[True, False])
    )
    if classes.is_empty():
        return None
    sheet = Sheet(
        title="Kernel time by class",
        about=about_run(results) + gpus_together(results),
        width_mm=COLUMN_MM,
        body_mm=_KERNEL_CLASSES_AXES_MM + _CLASS_MM * classes.height,
    )
    figure = sheet.figure()
    axes = figure.subplots()
    total_ns, longest_ns = int(classes["total_ns"].sum()), classes["total_ns"][0]
    for at, (name, ns, count) in enumerate(classes.rows()):
        kind = "communication" if name == COMMUNICATION else "compute"
        axes.barh(at, ns / judged.step_count, 0.75, **fill(palette.CLASSES[kind]))
        text = f" {share(ns, total_ns)}, {mean_count(count, judged.step_count)} x"
        axes.text(ns / judged.step_count, at, text, va="center", size=6)
    axes.set_yticks(range(classes.height), classes["class"].to_list())
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(classes.height - 0.5, -0.5)
    axes.set_xlim(0, 1.3 * longest_ns / judged.step_count)  # room for the text
    scale_in_time(axes, "x", longest_ns / judged.step_count, time_label(results))
    return figure


_BODY_MM: Final = 48


def draw_gap_histogram(results: Results) -> Figure | None:
    """Both side by side, stacked by each gap's main cause; None without gaps."""
    judged = results.judged
    rows = judged.table("gap_histogram").rows(named=True)
    if not rows:
        return None
    causes = [name for name in CAUSES if any(row["cause"] == name for row in rows)]
    sheet = Sheet(
        title="Gaps by length and main cause",
        about=about_run(results) + gpus_together(results),
        width_mm=PAGE_MM,
        body_mm=_BODY_MM,
        keys=[
            LegendEntry(label=CAUSES[name].label, colour=palette.CAUSES[name]) for name in causes
        ],
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
