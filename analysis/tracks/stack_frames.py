"""The stacks of a thread along its time: the slices of their frames, the outermost on top."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import greatest, scatter_table
from nsysflow.analysis.frames.source_files import is_own, shown_frames
from nsysflow.analysis.schema import Frame
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.tracks.lanes import NAMELESS, Lanes

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
