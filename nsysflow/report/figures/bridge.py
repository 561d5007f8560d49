"""The bridge of a comparison: what makes up the change of the mean step, as a waterfall."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nsysflow.base.units import duration, signed
from nsysflow.compare.bridge import Bridge, Delta
from nsysflow.compare.comparison import Comparison
from nsysflow.report.diff import headline, label, large_and_small, least_of, marked, title
from nsysflow.report.figures.style import (
    FAINT,
    INK,
    PAGE_MM,
    Sheet,
    fill,
    paled,
    scale_in_time,
)
from nsysflow.report.palette import PAGE
from nsysflow.report.pictures import LegendEntry

_AXES_MM: Final = 9
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


def draw(comparison: Comparison) -> Figure | None:
    """From the base's step to the new one, a bar per part; None where nothing changed."""
    bars = list(bars_of(comparison.bridge, least_of(comparison)))
    if not any(bar.change_ns for bar in bars):
        return None
    labels = {bar.key.label for bar in bars if bar.change_ns}
    sheet = Sheet(
        title=headline(comparison),
        about=f"{title(comparison)} · {_HOW}",
        width_mm=PAGE_MM,
        body_mm=_AXES_MM + _BAR_MM * len(bars),
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
