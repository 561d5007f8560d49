"""The slices of the picture: GPU operations, gaps and what is to blame for them, what the host
did, and the frames of its stacks along its time, the outermost on top.
"""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES, WITH_CULPRIT
from nsysflow.analysis.events.kernel_classes import Rules, class_of
from nsysflow.analysis.frames.columns import greatest, scatter_table
from nsysflow.analysis.frames.source_files import is_own, shown_frames
from nsysflow.analysis.idle.run_ahead import CausedGaps
from nsysflow.analysis.idle.samples import cells, has_host_stacks
from nsysflow.analysis.phases.attribution import PlacedOps
from nsysflow.analysis.schema import Frame
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.tracks.lanes import (
    BATCHES,
    CALLS,
    GAPS,
    HOST_STACKS,
    OPERATIONS,
    PROFILER,
    RANGES,
    Lanes,
    batches_of,
    depths,
)
from nsysflow.base.names import NAMELESS

COMMUNICATION: Final = "communication"

_GROUPS: Final = {COMMUNICATION: COMMUNICATION, "memset": "copy"}
"""What classes count as that are neither compute nor named like a copy."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Rows in the order of the picture.

    Attributes:
        rows: the rows.
        place: where in `rows` each row of the events is; null for one that is not drawn.
    """

    rows: pl.DataFrame
    place: pl.Series


def sorted_by_lane(rows: pl.DataFrame, lane: pl.Series) -> Placed:
    """`rows` by `lane`, each lane in the order of `rows`; those without a lane are left out."""
    rows = rows.with_columns(lane.alias("lane"))
    if rows["lane"].is_sorted() and not rows["lane"].has_nulls():
        return Placed(rows=rows, place=pl.int_range(len(rows), dtype=pl.UInt32, eager=True))
    of_lanes = rows[["lane"]].with_row_index("row").drop_nulls()
    order = of_lanes.sort("lane", maintain_order=True)["row"]
    place = scatter_table(len(rows), order, pl.int_range(len(order), dtype=pl.UInt32, eager=True))
    return Placed(rows=rows[order], place=place)


def with_depths(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` plus `depth`."""
    return rows.with_columns(depths(rows))


def operations(timeline: Timeline, lanes: Lanes, call_place: pl.Series) -> Placed:
    """`schema.OPERATIONS`.

    Args:
        timeline: the report.
        lanes: of the report.
        call_place: the row of each call in `schema.CALLS`.
    """
    ops = timeline.ops
    rows = ops.select(
        "start_ns",
        "end_ns",
        pl.col("short_name").alias("name"),
        pl.col("name").alias("full_name"),
        _classes(ops, timeline.options.kernel_classes),
        call_place[ops["call"]].alias("call"),
        timeline.attribution.path_of(ops["node"]).alias("phase"),
        _bytes(timeline, ops),
        pl.when(pl.col("kind") == "kernel").then("detail").alias("shape"),
        pl.when(pl.col("kind") == "memcpy").then("detail").alias("copy"),
        "correlation",
        "graph_node",
    )
    placed = sorted_by_lane(rows, lanes.numbered("stream", lanes.stream_no))
    drawn = with_depths(placed.rows).select(OPERATIONS.names()).match_to_schema(OPERATIONS)
    return Placed(rows=drawn, place=placed.place)


def _classes(ops: PlacedOps, more: Rules) -> pl.Series:
    """The `class` of each operation; each distinct name is classified once."""
    key = ["kind", "name", "short_name"]
    names = ops.select(key).unique()
    name, short_name = (pl.col(column).cast(pl.String) for column in ("name", "short_name"))
    kernel = class_of(name, short_name, more).replace("comm", COMMUNICATION)
    kind = pl.col("kind")
    copied = short_name.str.replace("^memcpy", "copy")
    spans = (
        pl.when(kind == "kernel")
        .then(kernel)
        .when(kind == "memcpy")
        .then(copied)
        .otherwise(kind.cast(pl.String))
    )
    classes = names.with_columns(spans.cast(pl.Categorical).alias("class"))
    found_classes = ops.select(key).join(
        classes, on=key, how="left", maintain_order="left", nulls_equal=True
    )
    return found_classes["class"]


def _bytes(timeline: Timeline, ops: PlacedOps) -> pl.Series:
    """The `bytes` of each copy; null for other operations."""
    detail = ops.select(pl.when(pl.col("kind") == "memcpy").then("detail")).to_series()
    return timeline.trace.copy_details["bytes"][detail].alias("bytes")


def group_of(name: str) -> str:
    """Whether a class of operations is compute, communication or a copy."""
    return _GROUPS.get(name, "copy" if name.startswith("copy ") else "compute")


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
    gaps = timeline.gap_causes.gaps
    blamed = _blamed(timeline, gaps)
    return gaps.select(
        lanes.numbered("gaps", gaps["device_no"]),
        timeline.events.ops["device"][gaps["next_op"]].alias("device"),
        "start_ns",
        "end_ns",
        *(op_place[gaps[side]].alias(side) for side in ("prev_op", "next_op")),
        "cause",
        call_place[blamed["call"]].alias("culprit_call"),
        op_place[blamed["op"]].alias("culprit_op"),
        timeline.main_paths.alias("phase"),
        *(f"{cause}_ns" for cause in CAUSES),
    ).match_to_schema(GAPS)


def _blamed(timeline: Timeline, gaps: CausedGaps) -> pl.DataFrame:
    """`call` and `op` of the events that each gap's largest cause is due to: the call that has
    most of it; of a dependency the operation that was awaited; else the launch of the next
    operation."""
    waits = pl.col("cause") == "dependency"
    awaited = timeline.producers.by_event[gaps["next_op"]]
    op = gaps.select(pl.when(waits).then(awaited).alias("op")).to_series()
    called = [
        pl.when(pl.col("cause") == cause).then(f"{cause}_by")
        for cause in WITH_CULPRIT
        if cause != "profiler"
    ]
    launch = pl.when(pl.lit(op).is_null()).then("next_call")
    return gaps.select(pl.coalesce(*called, launch).alias("call"), op)


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
    own = own.join(phases[["row"]].drop_nulls(), on="row", how="anti")
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


def batches(timeline: Timeline, lanes: Lanes) -> pl.DataFrame:
    """`schema.BATCHES`."""
    name = pl.lit("batch").cast(pl.Categorical).alias("name")
    rows = batches_of(timeline.trace.loader_times).with_columns(name)
    return _laid(rows, lanes.of_workers(rows)).select(BATCHES.names())


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
        rows: of `found_stacks`, by lane.
    """
    lane = lanes.numbered("host_stack", rows["thread_no"])
    names = _innermost(timeline)
    named = rows.with_columns(lane).join(names, on="stack", how="left", maintain_order="left")
    return named.select(HOST_STACKS.names()).match_to_schema(HOST_STACKS)


def _innermost(timeline: Timeline) -> pl.DataFrame:
    """`stack` and `name`: its innermost line of the program, else its innermost frame."""
    frames = timeline.trace.frames
    shown = shown_frames(frames["file"].drop_nulls().unique())
    files = pl.DataFrame(list(shown.items()), schema=["file", "shown"], orient="row")
    function = pl.col("function").fill_null(NAMELESS)
    place = pl.format("{}:{} in {}", "shown", "line", function)
    lines = timeline.events.stack_sources.select("stack", pl.col("source").cast(pl.String))
    name = pl.coalesce("source", place, function).cast(pl.Categorical).alias("name")
    return (
        frames.filter(pl.col("depth") == 0)
        .join(files.cast(pl.String), on="file", how="left")
        .join(lines, on="stack", how="left")
        .select("stack", name)
        .unique("stack")
    )


STACK_FRAMES: Final = Frame(
    """One row per frame and the time for which it stays on the stack, by lane, start and depth.
    `depth` is 0 for the outermost frame. `own` is whether its file is the program's own. It joins
    `stretches` rows of HOST_STACKS from the row `first` on.""",
    {
        "lane": pl.UInt32(),
        "depth": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "name": pl.Categorical(),
        "own": pl.Boolean(),
        "first": pl.UInt32(),
        "stretches": pl.UInt32(),
    },
)

_EVENT: Final = ["depth", "row"]


def stack_frames(timeline: Timeline, lanes: Lanes, rows: pl.DataFrame) -> pl.DataFrame:
    """STACK_FRAMES (spec §22.9).

    Args:
        timeline: the report.
        lanes: of the report.
        rows: `thread_no`, `start_ns`, `end_ns`, `stack` of HOST_STACKS, in their order.
    """
    frames = _frames(timeline.trace.frames, timeline.options.own)
    sizes = frames.group_by("stack").agg(pl.len().alias("size"), pl.col("row").min().alias("at"))
    stacks = greatest(sizes["stack"]) + 1
    at, size = (
        scatter_table(stacks, sizes["stack"], sizes[column].cast(pl.Int64))[rows["stack"]]
        for column in ("at", "size")
    )
    kept = _kept(rows, at, size, frames["name"].to_physical())
    opened = _depths(kept[:-1], size, pl.int_range(len(rows), eager=True))
    closed = _depths(kept[1:], size, pl.int_range(len(rows), eager=True))
    found = opened.rename({"row": "first"}).hstack([closed["row"].alias("last")])
    found = found.sort("first", "depth")
    first, last = found["first"], found["last"]
    frame = at.gather(first) + found["depth"]
    return found.select(
        lanes.numbered("stack", rows["thread_no"].gather(first)),
        pl.col("depth").cast(pl.UInt32),
        rows["start_ns"].gather(first),
        rows["end_ns"].gather(last),
        frames["name"].gather(frame),
        frames["own"].gather(frame),
        pl.col("first").cast(pl.UInt32),
        (pl.col("last") - pl.col("first") + 1).cast(pl.UInt32).alias("stretches"),
    ).match_to_schema(STACK_FRAMES)


def _frames(frames: pl.DataFrame, own: tuple[str, ...]) -> pl.DataFrame:
    """`stack`, `name`, `own` and `row` of all frames, each stack from the outermost one in."""
    shown = shown_frames(frames["file"].drop_nulls().unique())
    files = pl.DataFrame(
        [(file, name, is_own(file, own)) for file, name in shown.items()],
        schema={"file": pl.String, "shown": pl.String, "own": pl.Boolean},
        orient="row",
    )
    place = pl.format(" ({})", "shown").fill_null("")
    name = pl.concat_str(pl.col("function").fill_null(NAMELESS), place).cast(pl.Categorical)
    return (
        frames.join(files, on="file", how="left")
        .sort("stack", "depth", descending=[False, True])
        .select("stack", name.alias("name"), pl.col("own").fill_null(value=False))
        .with_row_index("row")
    )


def _kept(rows: pl.DataFrame, at: pl.Series, size: pl.Series, names: pl.Series) -> pl.Series:
    """How many frames, from the outermost in, each row has in common with the row before; at the
    end 0. A row that does not begin where the one before ends has none.

    Args:
        rows: of HOST_STACKS.
        at: where the outermost frame of each row's stack is in `names`.
        size: how many frames each row's stack has.
        names: the name of each frame, as a number.
    """
    touches = pl.col("start_ns") == pl.col("end_ns").shift(1)
    of_thread = pl.col("thread_no") == pl.col("thread_no").shift(1)
    pairs = rows.select(
        (touches & of_thread).alias("joined"),
        at.alias("after"),
        at.shift(1).alias("before"),
        pl.min_horizontal(pl.lit(size), pl.lit(size).shift(1)).alias("most"),
    )
    columns = ["before", "after", "most"]
    distinct = pairs.filter("joined").select(columns).unique().with_columns(kept=pl.lit(0))
    found, depth = [distinct.clear()], 0
    while not distinct.is_empty():
        depth += 1
        found.append(distinct.filter(pl.col("most") < depth))
        distinct = distinct.filter(pl.col("most") >= depth)
        same = names.gather(distinct["before"] + depth - 1) == names.gather(
            distinct["after"] + depth - 1
        )
        found.append(distinct.filter(~same))
        distinct = distinct.filter(same).with_columns(kept=pl.lit(depth))
    counted = pairs.join(pl.concat(found), on=columns, how="left", maintain_order="left")
    kept = counted.select(pl.when("joined").then("kept").fill_null(0).cast(pl.Int64)).to_series()
    return kept.extend_constant(0, 1)


def _depths(kept: pl.Series, size: pl.Series, row: pl.Series) -> pl.DataFrame:
    """`depth` and `row` of the frames that are not kept, by depth and row: so the n-th that opens
    is the n-th that closes."""
    changed = pl.DataFrame({"row": row, "kept": kept, "size": size})
    depth = pl.int_ranges("kept", "size").alias("depth")
    return changed.select(depth, "row").explode("depth").drop_nulls().select(_EVENT).sort(_EVENT)
