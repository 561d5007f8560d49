"""What the timeline of the page draws: `about.timeline`, and its columns as blobs.

Times are ns on the page's axis. It starts where the first report does. The clocks of ranks are
aligned by the collectives that they have in common, as in the table `ranks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.concepts import causes_in_full
from nsysflow.analysis.schema import STEP_KIND
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.html.columns import Columns
from nsysflow.report.html.packing import Blobs
from nsysflow.report.results import Analysed, Results

SCHEMA: Final = 1

_GROUPS: Final = {"communication": "communication", "memset": "copy", "graph": "compute"}
"""What classes of operations count as that are neither of kernels nor of copies."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Where a report lies on the page.

    Attributes:
        zero_ns: the report's time from which its columns count.
        origin_ns: where that is on the page.
        known: whether the clock is aligned with that of the first report.
    """

    zero_ns: int
    origin_ns: int
    known: bool


def timeline(results: Results, blobs: Blobs) -> dict[str, Any]:
    """`about.timeline`. Adds its columns to `blobs`."""
    tracks = [each.tracks for each in results.analyses]
    clocks = clocks_of(results, tracks)
    classes = _classes(tracks)
    reports = [
        _about(each, clock, Columns(each.tracks, clock.zero_ns, classes, blobs))
        for each, clock in zip(results.analyses, clocks, strict=True)
    ]
    ends = [
        clock.origin_ns + end_of(each) - clock.zero_ns
        for each, clock in zip(tracks, clocks, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "start_ns": 0,
        "end_ns": max(ends, default=0),
        "reports": reports,
        "causes": [
            {
                "name": cause.name,
                "label": cause.label,
                "meaning": cause.meaning,
                "usual": causes_in_full()[cause.name].usual,
                "remedies": causes_in_full()[cause.name].remedies,
            }
            for cause in CAUSES.values()
        ],
        "classes": [{"name": name, "label": name, "group": group_of(name)} for name in classes],
        "call_classes": [{"name": cause.name, "label": cause.label} for cause in CAUSES.values()],
        "step_kinds": STEP_KIND.categories.to_list(),
    }


def _about(analysis: Analysed, clock: Clock, columns: Columns) -> dict[str, Any]:
    """One report of the timeline."""
    return {
        "name": analysis.trace.report,
        "origin_ns": clock.origin_ns,
        "zero_ns": str(clock.zero_ns),  # may be more than a JavaScript number holds exactly
        "clock_known": clock.known,
        "selection": selection_of(analysis, clock),
        "lanes": columns.lanes(),
        "tables": columns.tables(),
        "paths": analysis.tracks.paths["name"].to_list(),
        **columns.strings(),
    }


def group_of(name: str) -> str:
    """Whether a class of operations is compute, communication or a copy."""
    return _GROUPS.get(name, "copy" if name.startswith("copy ") else "compute")


def clocks_of(results: Results, tracks: Sequence[Tracks]) -> list[Clock]:
    """Where each report lies on the page (spec §22.5)."""
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


def _classes(tracks: Sequence[Tracks]) -> list[str]:
    """The classes of operations in a run, by name."""
    found = pl.concat([each.operations["class"].unique().cast(pl.String) for each in tracks])
    return found.drop_nulls().unique().sort().to_list()


def selection_of(analysis: Analysed, clock: Clock) -> list[list[int]]:
    """The selected parts of the report's time, on the page; empty for all of it."""
    windows = analysis.selected_ns
    shift = clock.origin_ns - clock.zero_ns
    return [[start + shift, end + shift] for start, end in windows]
