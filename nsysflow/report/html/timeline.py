"""What the timeline of the page draws: `about.timeline`, and its columns as blobs.

Times are ns on the page's axis. It starts where the first report does. The clocks of ranks are
aligned by the collectives that they have in common, as in the table `ranks`.
"""

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.concepts import causes_in_full
from nsysflow.analysis.schema import STEP_KIND
from nsysflow.analysis.tracks.rows import group_of
from nsysflow.analysis.tracks.tracks import Tracks
from nsysflow.report.html.columns import Blobs, Columns
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


def _classes(tracks: Sequence[Tracks]) -> list[str]:
    """The classes of operations in a run, by name."""
    found = pl.concat([each.operations["class"].unique().cast(pl.String) for each in tracks])
    return found.drop_nulls().unique().sort().to_list()


def selection_of(analysis: Analysis, clock: Clock) -> list[list[int]]:
    """The selected parts of the report's time, on the page; empty for all of it."""
    windows = analysis.selected_ns
    shift = clock.origin_ns - clock.zero_ns
    return [[start + shift, end + shift] for start, end in windows]
