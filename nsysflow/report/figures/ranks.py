"""The ranks of a run, step by step: how long each step took, and how much of it was lost."""

from typing import Any, Final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nsysflow.analysis.frames.lookup import greatest
from nsysflow.report.about import about_run, track_labels
from nsysflow.report.figures.steps import TRACK, whole_steps
from nsysflow.report.figures.style import LINE, PAGE_MM, Sheet, scale_in_time
from nsysflow.report.ranks.heat_map import own_ns
from nsysflow.report.results import Results

_AXES_MM: Final = 14
_LEAST_MM: Final = 24
_MOST_MM: Final = 120
_RANK_MM: Final = 5

_COLOURS: Final = "cividis"
"""It rises in lightness alike for everyone."""

LOST: Final = ("comm_exposed_ns", "copy_exposed_ns", "idle_ns")
"""What is not compute."""


_NAMED: Final = 32
"""So many ranks have their names beside the axis; of more, every second one, or fewer."""


def draw(results: Results) -> Figure | None:
    """Two heat maps, rank by step; None where there is one rank, or no steps."""
    steps = _steps_of_many(results) if results.many else whole_steps(results)
    ranks = steps.select(TRACK).unique(maintain_order=True).rows()
    if len(ranks) < 2:
        return None
    sheet = Sheet(
        title="Steps of each rank",
        about=about_run(results),
        width_mm=PAGE_MM,
        body_mm=_AXES_MM + min(max(_RANK_MM * len(ranks), _LEAST_MM), _MOST_MM),
    )
    figure = sheet.figure()
    every = figure.subplots(1, 2, sharey=True)
    length = ("own time: all but exposed communication", own_ns())
    shown = (
        length if results.many else ("step time", pl.col("duration_ns")),
        ("time without compute: idle, or waiting", pl.sum_horizontal(LOST)),
    )
    for axes, (title, value) in zip(every, shown, strict=True):
        _heat_map(figure, axes, ranks, steps.with_columns(value.alias("ns")), title)
    apart = -(-len(ranks) // _NAMED)
    every[0].set_yticks(range(0, len(ranks), apart), track_labels(results, ranks[::apart]))
    return figure


def _steps_of_many(results: Results) -> pl.DataFrame:
    """RANK_STEPS, with `judged`."""
    key = [*TRACK, "step"]
    judged = results.judged.table("rank_steps").select(key).with_columns(judged=pl.lit(value=True))
    steps = results.table("rank_steps").join(judged, on=key, how="left", maintain_order="left")
    return steps.with_columns(pl.col("judged").fill_null(value=False))


def _heat_map(
    figure: Figure, axes: Axes, ranks: list[tuple[Any, ...]], steps: pl.DataFrame, title: str
) -> None:
    first, last = -greatest(-steps["step"]), greatest(steps["step"])
    cells = [[float("nan")] * (last - first + 1) for _ in ranks]
    place = {rank: at for at, rank in enumerate(ranks)}
    for *rank, step, ns in steps.select(*TRACK, "step", "ns").rows():
        cells[place[tuple(rank)]][step - first] = ns
    longest_ns = greatest(steps["ns"])
    judged = steps.filter("judged")["ns"]
    top_ns = longest_ns if judged.is_empty() else greatest(judged)
    image = axes.imshow(
        cells,
        cmap=_COLOURS,
        aspect="auto",
        interpolation="none",
        extent=(first - 0.5, last + 0.5, len(ranks) - 0.5, -0.5),
        vmax=top_ns,
    )
    axes.set_facecolor(LINE)  # a rank without that step
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(length=0)
    above = "max" if longest_ns > top_ns else "neither"
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=12, extend=above)
    bar.outline.set_visible(False)
    scale_in_time(bar.ax, "y", top_ns, "")
