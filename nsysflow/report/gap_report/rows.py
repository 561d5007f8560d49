"""The rows of the gap report: what a step waits for, place by place (spec §21)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nsysflow.compare.change import typical
from nsysflow.report.gap_report.scale import COARSE_SCALE, is_listed, rounded_pct
from nsysflow.report.gap_report.series import Part, Place, Track

_Series = Mapping[Part, Sequence[int]]
"""By part, the idle time in each step."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Idle time of one cause at one place, on the GPU where it is the largest share of a step.

    Attributes:
        place: where and why; None of all that is too small for a row of its own.
        ns: how much of a step, the median.
        low_ns: the lower end of its interval; None where there are too few steps to say.
        high_ns: the upper end.
        step_ns: the step that it is a part of, the median.
        pct: its share of the step, rounded.
        parts: what it consists of, in ns over all steps.
    """

    place: Place | None
    ns: float
    low_ns: float | None
    high_ns: float | None
    step_ns: float
    pct: int
    parts: Mapping[Part, int]

    @property
    def share(self) -> float:
        """Its share of the step, 0 to 1."""
        return share_of(self.ns, self.step_ns)


@dataclass(frozen=True, kw_only=True)
class GapReport:
    """The idle time of a step.

    Attributes:
        gpus: the names of the GPUs, each once.
        tracks: how many processes and GPUs there are.
        has_steps: whether figures are per step, and not of whole windows.
        steps: how many typical steps the slowest process has.
        step_ns: how long its step takes, the median.
        idle_ns: how much of it the GPU is idle, the median.
        rows: by place; the sum of what is small comes last.
    """

    gpus: tuple[str, ...]
    tracks: int
    has_steps: bool
    steps: int
    step_ns: float
    idle_ns: float
    rows: tuple[Row, ...]


def gap_report(tracks: Sequence[Track]) -> GapReport:
    """The gap report of a run."""
    places = sorted({place for track in tracks for place in track.idle_ns})
    found = [
        _largest(place, [(track, track.idle_ns.get(place, {})) for track in tracks])
        for place in places
    ]
    listed = [row for row in found if is_listed(row.ns, row.low_ns, row.step_ns)]
    small = {*places} - {row.place for row in listed}
    rest = (
        [_largest(None, [(track, _together(track, small)) for track in tracks])] if tracks else []
    )
    slowest = max(tracks, key=lambda track: median(track.step_ns), default=None)
    return GapReport(
        gpus=tuple(dict.fromkeys(track.gpu for track in tracks)),
        tracks=len(tracks),
        has_steps=any(track.has_steps for track in tracks),
        steps=len(slowest.step_ns) if slowest else 0,
        step_ns=median(slowest.step_ns) if slowest else 0,
        idle_ns=median(_sums(slowest, _together(slowest, places))) if slowest else 0,
        rows=(*listed, *rest),
    )


def share_of(ns: float, step_ns: float) -> float:
    """The share of a step, 0 to 1; 0 of a step without length."""
    return ns / step_ns if step_ns else 0.0


def _together(track: Track, places: Iterable[Place]) -> _Series:
    """The idle time at several places, as one row whose parts do not matter."""
    rows = [series for place in places for series in track.idle_ns.get(place, {}).values()]
    return {("", ""): [sum(step) for step in zip(*rows, strict=True)]} if rows else {}


def _largest(place: Place | None, found: Iterable[tuple[Track, _Series]]) -> Row:
    """The row of the process and GPU where it is the largest share of a step: of a straggler, that
    others wait for, rather than of the middle one."""
    rows = [_row(track, place, series) for track, series in found]
    return max(rows, key=lambda row: (row.share, row.low_ns or 0, row.ns))


def _row(track: Track, place: Place | None, series: _Series) -> Row:
    values = _sums(track, series)
    found, step_ns = typical([values]), median(track.step_ns)
    scale = (COARSE_SCALE,) if place is None else ()
    return Row(
        place=place,
        ns=found.value,
        low_ns=found.low,
        high_ns=found.high,
        step_ns=step_ns,
        pct=rounded_pct(found.value, step_ns, *scale),
        parts={part: sum(each) for part, each in series.items()},
    )


def _sums(track: Track, series: _Series) -> list[int]:
    """The idle time in each step, of all parts."""
    return [sum(step) for step in zip(*series.values(), strict=True)] or [0] * len(track.step_ns)
