"""What the timeline of the page draws: `about.timeline`, and its columns as blobs.

Times are ns on the page's axis. It starts where the first report does. The clocks of ranks are
aligned by the collectives that they have in common, as in the table `ranks`.
"""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.causes import CAUSES, WITH_CULPRIT
from nsysflow.analysis.concepts import causes_in_full
from nsysflow.analysis.frames.intervals import merge
from nsysflow.analysis.schema import STEP_KIND
from nsysflow.analysis.tracks.rows import group_of
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.html.columns import Blobs, Columns
from nsysflow.report.html.places import within
from nsysflow.report.pictures import Clock, clocks_of, end_of
from nsysflow.report.results import Results

SCHEMA: Final = 1


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
                "blames": cause.name in WITH_CULPRIT or cause.name == "dependency",
                "usual": causes_in_full()[cause.name].usual,
                "remedies": causes_in_full()[cause.name].remedies,
            }
            for cause in CAUSES.values()
        ],
        "classes": [{"name": name, "label": name, "group": group_of(name)} for name in classes],
        "call_classes": [{"name": cause.name, "label": cause.label} for cause in CAUSES.values()],
        "step_kinds": STEP_KIND.categories.to_list(),
    }


def _about(analysis: Analysis, clock: Clock, columns: Columns) -> dict[str, Any]:
    """One report of the timeline."""
    judged_ns = _judged_ns(analysis)
    return {
        "name": analysis.trace.report,
        "origin_ns": clock.origin_ns,
        "zero_ns": str(clock.zero_ns),  # may be more than a JavaScript number holds exactly
        "clock_known": clock.known,
        "selection": _on_page(analysis.selected_ns, clock),
        "judged": _on_page(judged_ns, clock),
        "lanes": _lanes(analysis, columns, judged_ns),
        "tables": columns.tables(),
        "paths": analysis.tracks.paths["name"].to_list(),
        **columns.strings(),
    }


def _classes(tracks: Sequence[Tracks]) -> list[str]:
    """The classes of operations in a run, by name."""
    found = pl.concat([each.operations["class"].unique().cast(pl.String) for each in tracks])
    return found.drop_nulls().unique().sort().to_list()


def _lanes(
    analysis: Analysis, columns: Columns, judged_ns: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """The lanes, each with whether it has operations in the judged part."""
    judged = pl.DataFrame(judged_ns, {"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    worked = {*within(analysis.tracks.operations[["lane", "start_ns"]], judged)["lane"]}
    return [{**lane, "judged": at in worked} for at, lane in enumerate(columns.lanes())]


MOST_WINDOWS: Final = 1_000


def _judged_ns(analysis: Analysis) -> Sequence[tuple[int, int]]:
    """The judged parts of the report's time; as one where the page would grow by so many."""
    windows = analysis.judged.view.windows
    parts = windows.select(pl.col("start_ns").alias("start"), pl.col("end_ns").alias("end"))
    spans = merge(parts).rows()
    return spans if len(spans) <= MOST_WINDOWS else [(spans[0][0], spans[-1][1])]


def _on_page(spans: Sequence[tuple[int, int]], clock: Clock) -> list[list[int]]:
    """Stretches of a report's time as stretches of the page's axis."""
    shift = clock.origin_ns - clock.zero_ns
    return [[start + shift, end + shift] for start, end in spans]
