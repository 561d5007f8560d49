"""The gaps of the picture, and what is to blame for each (spec §22.4)."""

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES, WITH_CULPRIT
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.tracks.lanes import Lanes
from nsysflow.analysis.tracks.schema import GAPS


def gaps(
    timeline: Timeline, lanes: Lanes, *, call_place: pl.Series, op_place: pl.Series
) -> pl.DataFrame:
    """`schema.GAPS`.

    Args:
        timeline: the report.
        lanes: of the report.
        call_place: the row of each call in `schema.CALLS`.
        op_place: the row of each operation in `schema.OPERATIONS`.
    """
    found = timeline.explained.gaps
    blamed = _blamed(timeline, found)
    return found.select(
        lanes.numbered("gaps", found["device_no"]),
        timeline.events.ops["device"].gather(found["next_op"]).alias("device"),
        "start_ns",
        "end_ns",
        *(op_place.gather(found[side]).alias(side) for side in ("prev_op", "next_op")),
        "cause",
        call_place.gather(blamed["call"]).alias("culprit_call"),
        op_place.gather(blamed["op"]).alias("culprit_op"),
        timeline.main_paths.alias("phase"),
        *(f"{cause}_ns" for cause in CAUSES),
    ).match_to_schema(GAPS)


def _blamed(timeline: Timeline, found: pl.DataFrame) -> pl.DataFrame:
    """`call` and `op` of the events that each gap's largest cause is due to: the call that has
    most of it; of a dependency the operation that was awaited; else the launch of the next
    operation."""
    waits = pl.col("cause") == "dependency"
    awaited = timeline.producers.by_event.gather(found["next_op"])
    op = found.select(pl.when(waits).then(awaited).alias("op")).to_series()
    called = [
        pl.when(pl.col("cause") == cause).then(f"{cause}_by")
        for cause in WITH_CULPRIT
        if cause != "profiler"
    ]
    launch = pl.when(pl.lit(op).is_null()).then("next_call")
    return found.select(pl.coalesce(*called, launch).alias("call"), op)
