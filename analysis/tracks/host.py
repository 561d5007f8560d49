"""The host's rows of the picture: calls, ranges, the profiler's work, and what a thread ran."""

import polars as pl

from nsysflow.analysis.frames.source_files import shown_frames
from nsysflow.analysis.pipeline import Timeline
from nsysflow.analysis.samples.cells import cells, has_host_stacks
from nsysflow.analysis.timeline.source_lines import stack_sources
from nsysflow.analysis.tracks.lanes import Lanes
from nsysflow.analysis.tracks.operations import Placed, sorted_by_lane, with_depths
from nsysflow.analysis.tracks.schema import CALLS, HOST_STACKS, PROFILER, RANGES

_NCCL = "nccl"


def calls(timeline: Timeline, lanes: Lanes) -> Placed:
    """`schema.CALLS`."""
    rows = timeline.events.calls
    placed = sorted_by_lane(rows, lanes.numbered("calls", rows["thread_no"]))
    drawn = with_depths(placed.rows).select(CALLS.names()).match_to_schema(CALLS)
    return Placed(rows=drawn, place=placed.place)


def found_ranges(timeline: Timeline) -> pl.DataFrame:
    """The ranges to draw, with `thread_no`: those that can be phases, and those of NCCL."""
    phases, known = timeline.open_ranges.ranges, timeline.events.ranges
    columns = ["thread_no", "start_ns", "end_ns", "name", "ended"]
    ours = pl.col("domain").str.to_lowercase() == _NCCL
    own = known.filter(ours, pl.col("end_ns") > pl.col("start_ns"))
    own = own.join(phases.select("row").drop_nulls(), on="row", how="anti")
    return pl.concat([phases.select(columns), own.select(columns)])


def ranges(timeline: Timeline, lanes: Lanes, rows: pl.DataFrame) -> pl.DataFrame:
    """`schema.RANGES`.

    Args:
        timeline: the report.
        lanes: of the report.
        rows: of `found_ranges`.
    """
    name = pl.col("name").cast(pl.Categorical)
    return _laid(rows.with_columns(name), lanes.numbered("phases", rows["thread_no"])).select(
        RANGES.names()
    )


def profiler(timeline: Timeline, lanes: Lanes) -> pl.DataFrame:
    """`schema.PROFILER`."""
    rows = timeline.events.overhead
    return _laid(rows, lanes.numbered("profiler", rows["thread_no"])).select(PROFILER.names())


def _laid(rows: pl.DataFrame, lane: pl.Series) -> pl.DataFrame:
    """`rows` by lane and start, the longest first, with `lane` and `depth`."""
    longest_first = ["lane", "start_ns", -pl.col("end_ns"), pl.col("name").cast(pl.String)]
    return with_depths(rows.with_columns(lane).sort(longest_first, maintain_order=True))


def found_stacks(timeline: Timeline) -> pl.DataFrame:
    """What each thread ran when: `thread_no`, `start_ns`, `end_ns`, `stack`, in order."""
    events, axis = timeline.events, timeline.events.axis
    known = cells(events).drop_nulls("stack") if has_host_stacks(timeline.trace) else None
    if known is None:
        return pl.DataFrame(schema={"thread_no": pl.UInt32, **_CELL})
    start_ns = axis.time_ns(pl.col("start"))
    end_ns = start_ns + pl.col("end") - pl.col("start")
    return known.select(
        axis.track(pl.col("start")).cast(pl.UInt32).alias("thread_no"),
        start_ns.alias("start_ns"),
        pl.min_horizontal(end_ns, events.last_ns).alias("end_ns"),
        "stack",
    ).filter(pl.col("end_ns") > pl.col("start_ns"))


_CELL = {"start_ns": pl.Int64, "end_ns": pl.Int64, "stack": pl.UInt32}


def host_stacks(timeline: Timeline, lanes: Lanes, rows: pl.DataFrame) -> pl.DataFrame:
    """`schema.HOST_STACKS`.

    Args:
        timeline: the report.
        lanes: of the report.
        rows: of `found_stacks`.
    """
    names = _innermost(timeline)
    placed = sorted_by_lane(rows, lanes.numbered("host_stack", rows["thread_no"])).rows
    named = placed.join(names, on="stack", how="left", maintain_order="left")
    return named.select(HOST_STACKS.names()).match_to_schema(HOST_STACKS)


def _innermost(timeline: Timeline) -> pl.DataFrame:
    """`stack` and `name`: its innermost line of the program, else its innermost frame."""
    frames = timeline.trace.frames
    shown = shown_frames(frames["file"].drop_nulls().unique())
    files = pl.DataFrame(list(shown.items()), schema=["file", "shown"], orient="row")
    function = pl.col("function").fill_null("(nameless)")
    place = pl.format("{}:{} in {}", "shown", "line", function)
    lines = stack_sources(frames, timeline.options.own).select(
        "stack", pl.col("source").cast(pl.String)
    )
    name = pl.coalesce("source", place, function).cast(pl.Categorical).alias("name")
    return (
        frames.filter(pl.col("depth") == 0)
        .join(files.cast(pl.String), on="file", how="left")
        .join(lines, on="stack", how="left")
        .select("stack", name)
        .unique("stack")
    )
