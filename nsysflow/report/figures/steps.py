"""The steps of a run, and what made those of two runs faster or slower."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nsysflow.analysis.frames.columns import greatest
from nsysflow.base.units import duration, signed
from nsysflow.compare.bridge import Bridge, Delta
from nsysflow.compare.comparison import Comparison
from nsysflow.report.diff import headline, label, large_and_small, least_of, marked, title
from nsysflow.report.figures.style import (
    BACKGROUND,
    COLUMN_MM,
    FAINT,
    INK,
    LINE,
    PAGE_MM,
    TRACK,
    Sheet,
    fill,
    paled,
    scale_in_time,
    whole_steps,
)
from nsysflow.report.palette import PAGE
from nsysflow.report.pictures import (
    IDLE,
    LegendEntry,
    Part,
    about_run,
    parts_with_time,
    track_labels,
)
from nsysflow.report.ranks import own_ns
from nsysflow.report.results import Results

_AXES_MM: Final = 10
_GPU_MM: Final = 26

GPUS: Final = 6
"""How many GPUs fit above each other: those that idle longest."""

_FEW: Final = 12
"""How many steps fit into one column."""

_MANY: Final = 100
"""Bars of more steps are too narrow for edges and hatches."""

_TEXT_MM: Final = 3
"""The width of an upright text."""

_FAR: Final = 2.5
"""A step that is not judged is cut off above this multiple of the longest judged one."""

_ABOVE: Final = 1.25
"""The axes end at this multiple of it then."""

_NOT_JUDGED: Final = LegendEntry(label="step is not judged", colour=PAGE["line"])


def draw_idle_over_steps(results: Results) -> Figure | None:
    """Axes per GPU with a bar per step; None where no step has idle time."""
    steps = whole_steps(results)
    rows = steps.rows(named=True)
    parts = parts_with_time(IDLE, rows)
    if not parts:
        return None
    gpus = _gpus(steps)
    shown = gpus[:GPUS]
    keys = [*parts, *([_NOT_JUDGED] if not all(row["judged"] for row in rows) else [])]
    more = f"{len(gpus) - GPUS} GPUs that idle less are not shown" if len(gpus) > GPUS else ""
    sheet = Sheet(
        title="Idle time of each step, by cause",
        about=about_run(results, more),
        width_mm=PAGE_MM if steps["step"].n_unique() > _FEW else COLUMN_MM,
        body_mm=_AXES_MM + _GPU_MM * len(shown),
        keys=keys,
    )
    figure = sheet.figure()
    top_ns = _top_ns(steps)
    every = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    for axes, gpu, name in zip(every, shown, track_labels(results, shown), strict=True):
        of_gpu = [row for row in rows if _gpu(row) == gpu]
        _steps_of(axes, parts, of_gpu, top_ns, sheet.width_mm)
        if len(gpus) > 1:
            axes.set_title(name)
        scale_in_time(axes, "y", top_ns, "idle")
    every[-1].set_xlabel("step")
    return figure


def _gpu(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["report"], row["process"], row["device"]


def _gpus(steps: pl.DataFrame) -> list[tuple[str, int, int]]:
    """The processes and GPUs, those with most idle time first where not all have room."""
    sums = steps.group_by(TRACK, maintain_order=True).agg(pl.col("idle_ns").sum())
    if sums.height > GPUS:
        sums = sums.sort("idle_ns", descending=True, maintain_order=True)
    return sums.select(TRACK).rows()


def _top_ns(steps: pl.DataFrame) -> float:
    """The upper end of the axes: of all steps, unless a few that are not judged are far longer."""
    judged_ns = greatest(steps.filter("judged")["idle_ns"])
    longest_ns = greatest(steps["idle_ns"])
    above = steps.filter(pl.col("idle_ns") > _ABOVE * judged_ns)
    few = 2 * above.height <= steps.height
    return _ABOVE * judged_ns if few and 0 < judged_ns * _FAR < longest_ns else 1.05 * longest_ns


def _steps_of(
    axes: Axes, parts: list[Part], rows: list[dict[str, Any]], top_ns: float, width_mm: float
) -> None:
    """The bars of one GPU; one that is cut off has its idle time in it."""
    at = [row["step"] for row in rows]
    bottom = [0] * len(rows)
    width, plain = (0.8, {}) if len(rows) <= _MANY else (1.0, {"linewidth": 0, "hatch": None})
    for row in rows:
        if not row["judged"]:
            axes.axvspan(row["step"] - 0.5, row["step"] + 0.5, color=LINE, linewidth=0, zorder=0)
    for part in parts:
        ns = [row[part.column] for row in rows]
        axes.bar(at, ns, width, bottom, **fill(part.colour) | plain)
        bottom = [below + of for below, of in zip(bottom, ns, strict=True)]
    axes.set_ylim(0, top_ns)
    axes.set_xlim(min(at) - 0.6, max(at) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y")
    _cut_off(axes, [row for row in rows if row["idle_ns"] > top_ns], top_ns, width_mm)


def _cut_off(axes: Axes, rows: list[dict[str, Any]], top_ns: float, width_mm: float) -> None:
    """The marks of bars that are longer than the axis, with their whole lengths in them: of bars
    too close to each other, that of the longest."""
    first, last = axes.get_xlim()
    apart = _TEXT_MM / width_mm * (last - first)
    ends_ns = [0.9 * top_ns, 0.95 * top_ns]
    written: list[int] = []
    for row in sorted(rows, key=lambda row: -row["idle_ns"]):
        at = row["step"]
        axes.plot([at - 0.5, at + 0.5], ends_ns, color=BACKGROUND, linewidth=2)
        if all(abs(at - other) >= apart for other in written):
            written.append(at)
            _write(axes, at, 0.85 * top_ns, duration(row["idle_ns"]))


def _write(axes: Axes, at: float, top_ns: float, text: str) -> None:
    """An upright text below a point, readable on any bar."""
    box = {"facecolor": BACKGROUND, "edgecolor": "none", "pad": 0.8}
    axes.text(at, top_ns, text, size=5.5, rotation=90, ha="center", va="top", bbox=box)


_RANKS_AXES_MM: Final = 14
_LEAST_MM: Final = 24
_MOST_MM: Final = 120
_RANK_MM: Final = 5

_COLOURS: Final = "cividis"
"""It rises in lightness alike for everyone."""

LOST: Final = ("comm_exposed_ns", "copy_exposed_ns", "idle_ns")
"""What is not compute."""


_NAMED: Final = 32
"""So many ranks have their names beside the axis; of more, every second one, or fewer."""


def draw_ranks(results: Results) -> Figure | None:
    """Two heat maps, rank by step; None where there is one rank, or no steps."""
    steps = _steps_of_many(results) if results.many else whole_steps(results)
    ranks = steps.select(TRACK).unique(maintain_order=True).rows()
    if len(ranks) < 2:
        return None
    sheet = Sheet(
        title="Steps of each rank",
        about=about_run(results),
        width_mm=PAGE_MM,
        body_mm=_RANKS_AXES_MM + min(max(_RANK_MM * len(ranks), _LEAST_MM), _MOST_MM),
    )
    figure = sheet.figure()
    every = figure.subplots(1, 2, sharey=True)
    length = ("own time: all but exposed communication", own_ns())
    shown = (
        length if results.many else ("step time", pl.col("duration_ns")),
        ("time without compute: idle, or waiting", pl.sum_horizontal(LOST)),
    )
    for axes, (name, value) in zip(every, shown, strict=True):
        _heat_map(figure, axes, ranks, steps.with_columns(value.alias("ns")), name)
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


_BRIDGE_AXES_MM: Final = 9
_BAR_MM: Final = 5.2

_SHORTER: Final = LegendEntry(label="shorter", colour=PAGE["faster"])
_LONGER: Final = LegendEntry(label="longer", colour=PAGE["slower"])

_HOW: Final = "lines: 95 % intervals; pale and ~: within the noise; ?: too few steps to tell"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar of the waterfall.

    Attributes:
        name: of the part.
        from_ns: where the changes above it end.
        change_ns: its own change.
        interval_ns: of the change; None where it is not known.
        text: the change in words.
        sure: whether it is more than noise.
    """

    name: str
    from_ns: int
    change_ns: int
    interval_ns: tuple[float, float] | None
    text: str
    sure: bool

    @property
    def key(self) -> LegendEntry:
        """Its entry in the legend."""
        return _LONGER if self.change_ns > 0 else _SHORTER

    @property
    def reach_ns(self) -> tuple[float, ...]:
        """All places on the axis that it touches."""
        low, high = self.interval_ns or (0, self.change_ns)
        ends = (0, self.change_ns, low, high)
        return tuple(self.from_ns + end for end in ends)


def draw_bridge(comparison: Comparison) -> Figure | None:
    """From the base's step to the new one, a bar per part; None where nothing changed."""
    bars = list(bars_of(comparison.bridge, least_of(comparison)))
    if not any(bar.change_ns for bar in bars):
        return None
    labels = {bar.key.label for bar in bars if bar.change_ns}
    sheet = Sheet(
        title=headline(comparison),
        about=f"{title(comparison)} · {_HOW}",
        width_mm=PAGE_MM,
        body_mm=_BRIDGE_AXES_MM + _BAR_MM * len(bars),
        keys=[key for key in (_SHORTER, _LONGER) if key.label in labels],
    )
    figure = sheet.figure()
    axes = figure.subplots()
    for at, bar in enumerate(bars):
        _draw_bar(axes, at, bar)
        if at < len(bars) - 1:
            ends = [bar.from_ns + bar.change_ns] * 2
            axes.plot(ends, [at, at + 1], color=FAINT, linewidth=0.4, zorder=0)
    axes.axhline(len(bars) - 1.5, color=FAINT, linewidth=0.5)
    axes.axvline(0, color=INK, linewidth=0.6)
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.grid(axis="x")
    _set_range(axes, [ns for bar in bars for ns in bar.reach_ns])
    return figure


def bars_of(bridge: Bridge, least_ns: float) -> Iterator[Bar]:
    """The bars: the large parts, the small ones together, and the step."""
    large, small = large_and_small(bridge.parts, least_ns)
    at_ns = 0
    for part in large:
        yield _bar(label(part), at_ns, part.change)
        at_ns += part.change.change_ns
    if small:
        change_ns = sum(each.change_ns for each in small)
        yield Bar(
            name=f"{len(small)} more",
            from_ns=at_ns,
            change_ns=change_ns,
            interval_ns=None,
            text=signed(change_ns),
            sure=False,
        )
    total = bridge.total
    times = f"{duration(round(total.base_ns))} → {duration(round(total.new_ns))}"
    yield _bar(f"step: {times}", 0, total)


def _bar(name: str, from_ns: int, change: Delta) -> Bar:
    low_ns, high_ns = change.low_ns, change.high_ns
    return Bar(
        name=name,
        from_ns=from_ns,
        change_ns=change.change_ns,
        interval_ns=None if low_ns is None or high_ns is None else (low_ns, high_ns),
        text=marked(change),
        sure=bool(change.clear),
    )


def _draw_bar(axes: Axes, at: int, bar: Bar) -> None:
    """A bar with its interval as a line, and its change in words."""
    colour = bar.key.colour if bar.sure else paled(bar.key.colour)
    axes.barh(at, bar.change_ns, 0.7, bar.from_ns, **fill(colour))
    if bar.interval_ns is not None:
        ends = [bar.from_ns + end for end in bar.interval_ns]
        axes.plot(ends, [at, at], "|-", color=INK, linewidth=0.7, markersize=4)
    axes.text(max(bar.reach_ns), at, f"  {bar.text}", va="center", size=6)


def _set_range(axes: Axes, reach_ns: list[float]) -> None:
    """The axis of changes, with room for the texts on the right."""
    low, high = min(reach_ns), max(reach_ns)
    axes.set_xlim(low - 0.03 * (high - low), high + 0.12 * (high - low))
    scale_in_time(axes, "x", max(-low, high), "change of the mean step")
