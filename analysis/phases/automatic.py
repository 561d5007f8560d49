"""The ranges that `nsysflow profile` puts into a program by itself (spec §7.19, §7.20, §8.20)."""

import polars as pl

from nsysflow.analysis.frames.intervals import (
    Axis,
    last_at_or_before,
    reached_before,
    sort_with_ties,
)
from nsysflow.analysis.phases.engine_steps import ENGINE_STEP
from nsysflow.runtime.protocol import AUTO_CALL, AUTO_DOMAIN, LOOK, STEP


def is_automatic() -> pl.Expr:
    """Whether a range is one of ours."""
    return (pl.col("domain") == AUTO_DOMAIN).fill_null(value=False)


def is_border() -> pl.Expr:
    """Whether it is an instant between two steps, and no phase."""
    return is_automatic() & pl.col("name").is_in([STEP, AUTO_CALL])


def is_look() -> pl.Expr:
    """Whether it is an instant in a step that our runtime slowed down, and no phase."""
    return is_automatic() & (pl.col("name") == LOOK)


def is_step() -> pl.Expr:
    """Whether one of `phase_ranges` is an automatic step, which no stack contains."""
    return pl.col("kind").is_null()


def without_doubles(ranges: pl.DataFrame) -> pl.DataFrame:
    """`ranges`, in stack order, without the inner ones of the same name on a thread where one of
    two was automatic, or where both are engine steps: `forward` in `forward` is one."""
    automatic = is_automatic() | (pl.col("name") == ENGINE_STEP)
    if not ranges.select(automatic.any()).item():
        return ranges
    nests = pl.col("kind") == "push_pop"
    end, nowhere = pl.col("end"), pl.lit(None, pl.Int64)
    in_any = reached_before(pl.when(nests).then(end).otherwise(nowhere)).forward_fill()
    in_ours = reached_before(pl.when(nests & automatic).then(end).otherwise(nowhere)).forward_fill()
    start = pl.col("start")
    inside = (automatic & (start < in_any.over("name"))) | (start < in_ours.over("name"))
    return ranges.filter(~(nests & inside).fill_null(value=False))


def with_losses(ranges: pl.DataFrame) -> pl.DataFrame:
    """`ranges`, in stack order, and what lies between `forward` and the `backward` that follows it
    on its thread: `loss`, which a program mostly computes by functions that have no range."""
    ours = ranges.filter(is_automatic(), pl.col("kind") == "push_pop")
    forward = ours.filter(pl.col("name") == "forward")
    following = ours["start"].search_sorted(forward["end"]).alias("at")
    columns = {"then": "name", "then_on": "thread_no", "to": "start", "to_ns": "start_ns"}
    rows = ours.with_row_index("at").select(pl.col("at").cast(following.dtype), **columns)
    followed = (
        forward.with_columns(following)
        .join(rows, on="at")
        .filter(
            pl.col("then") == "backward",
            pl.col("then_on") == pl.col("thread_no"),
            pl.col("to") > pl.col("end"),
        )
    )
    if followed.is_empty():
        return ranges
    losses = followed.with_columns(
        pl.lit("loss", ranges.schema["name"]).alias("name"),
        pl.lit(value=True).alias("ended"),
        start="end",
        start_ns="end_ns",
        end="to",
        end_ns="to_ns",
    )
    both = pl.concat([ranges, losses.select(ranges.columns)])
    return sort_with_ties(both, "start", [-pl.col("end"), pl.col("row")])


def automatic_steps(borders: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """The steps between borders of a process, as ranges without a kind, on the threads where they
    begin.

    Args:
        borders: ranges that are `is_border`.
        axis: of the threads.
    """
    of_optimizer = pl.col("name") == STEP
    trains = of_optimizer.sum().over("process") > 1
    following = pl.col("start_ns").shift(-1).over("process")
    steps = (
        borders.filter(of_optimizer | ~trains)
        .sort("process", "start_ns", "row")
        .with_columns(following.alias("end_ns"))
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )
    thread = pl.col("thread_no")
    return steps.with_columns(
        pl.lit(None, steps.schema["kind"]).alias("kind"),
        pl.lit(STEP).alias("name"),
        pl.lit(value=True).alias("ended"),
        axis.at(thread, pl.col("start_ns")).alias("start"),
        axis.at(thread, pl.col("end_ns")).alias("end"),
    )


def without_captured_loops(steps: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """The steps, but of processes whose steps only warm up: the loop itself replays CUDA graphs.

    Args:
        steps: those of `automatic_steps`.
        ops: all operations.
    """
    graph = pl.col("graph_node").is_not_null() | (pl.col("kind") == "graph")
    if steps.is_empty() or not ops.select(graph.any()).item():
        return steps
    last = steps.group_by("process").agg(pl.col("end_ns").max().alias("last_ns"))
    length_ns = pl.col("end_ns") - pl.col("start_ns")
    behind = graph & (pl.col("launch_start_ns") >= pl.col("last_ns"))
    captured = (
        ops.join(last, on="process")
        .group_by("process")
        .agg(length_ns.filter(behind).sum().alias("behind_ns"), length_ns.sum().alias("all_ns"))
        .filter(2 * pl.col("behind_ns") > pl.col("all_ns"))
    )
    return steps.join(captured, on="process", how="anti", maintain_order="left")


def step_at(steps: pl.DataFrame, asked: pl.DataFrame, axis: Axis) -> pl.Series:
    """The automatic step (its `range`) in which each row's process was at its time; null outside.

    Args:
        steps: rows of `phase_ranges` that are `is_step`.
        asked: `process`, `time_ns`.
        axis: of the threads.
    """
    processes = steps[["process"]].unique().with_row_index("track")
    place = axis.at(pl.col("track"), pl.col("start_ns")).alias("place")
    past = axis.at(pl.col("track"), pl.col("end_ns")).alias("past")
    known = steps.join(processes, on="process").select(place, past, "range").sort("place")
    tracks = asked.join(processes, on="process", how="left", maintain_order="left")
    places = axis.at(tracks["track"], tracks["time_ns"])
    at = last_at_or_before(known["place"], places)
    inside = places < known["past"][at]
    return pl.select(pl.when(inside).then(known["range"][at]).alias("range")).to_series()
