"""The one time line of several reports (spec §22.8): where each of them lies on it.

Each report has its own clock. Those of ranks are aligned by the collectives that they have in
common, as in the table `ranks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.results import Results


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Where a report lies on the common time line.

    Attributes:
        zero_ns: the report's time from which its columns count.
        origin_ns: where that is on the time line.
        known: whether the clock is aligned with that of the first report.
    """

    zero_ns: int
    origin_ns: int
    known: bool


def clocks_of(results: Results, tracks: Sequence[Tracks]) -> list[Clock]:
    """Where each report lies on the time line, which starts where the first one does."""
    ahead = _ahead(results)
    names = results.reports
    known = [name in ahead or index == 0 for index, name in enumerate(names)]
    begun = [start_of(each) for each in tracks]
    aligned = [start - ahead.get(name, 0) for name, start in zip(names, begun, strict=True)]
    first = min(start for start, is_known in zip(aligned, known, strict=True) if is_known)
    return [
        Clock(zero_ns=start, origin_ns=place - first if is_known else 0, known=is_known)
        for start, place, is_known in zip(begun, aligned, known, strict=True)
    ]


def _ahead(results: Results) -> dict[str, int]:
    """How far the clocks of the reports are ahead of the first one's, where that is known."""
    ranks = results.table("ranks").drop_nulls("clock_ns")
    return dict(ranks.select("report", "clock_ns").unique("report", keep="first").rows())


_TIMED: Final = ("operations", "calls", "ranges", "steps", "gaps", "profiler", "host_stacks")


def start_of(tracks: Tracks) -> int:
    """The first time of a report."""
    times = [getattr(tracks, name)["start_ns"].min() for name in _TIMED]
    return min((t for t in (*times, tracks.counters["time_ns"].min()) if t is not None), default=0)


def end_of(tracks: Tracks) -> int:
    """The last time of a report."""
    times = [getattr(tracks, name)["end_ns"].max() for name in _TIMED]
    return max((t for t in (*times, tracks.counters["time_ns"].max()) if t is not None), default=0)
