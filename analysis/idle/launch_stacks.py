"""Which code of the program launched each operation (spec §17.9 to §17.14)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.columns import repeated, scatter_table
from nsysflow.analysis.frames.intervals import Axis, flatten, inside, on_axis
from nsysflow.analysis.idle.samples import REACH, period_ns

LAUNCH_STACKS: Final = pl.Schema(
    {"stack": pl.UInt32(), "lent": pl.Boolean(), "backward": pl.Boolean()}
)
"""A row per call: the `stack` of the program that launched with it, null where none is known;
whether it is `lent` by another thread, which waits for the one that launches; and if so, whether it
is the stack in which that thread did what the launch computes gradients of (`backward`)."""
LaunchStacks = Annotated[pl.DataFrame | None, LAUNCH_STACKS]

_SEEN: Final = pl.Schema(
    {
        "thread_no": pl.UInt32(),
        "stack": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "place": pl.Int64(),
    }
)
"""When a stack was seen, in order of `place`, that of its start on the axis of threads."""


def launch_stacks(events: Events, ops: pl.DataFrame) -> LaunchStacks:
    """The stack at each launch; None where the report knows none of the program.

    A sampler sees a thread once in a millisecond, in which a step launches dozens of kernels. But
    steps repeat, and are seen at other instants each time. So the launches of one place in the step
    share the sample that came nearest to any of them.

    Args:
        events: the trace.
        ops: the operations, with `step`; null outside all steps.
    """
    seen = _seen(events)
    if seen.is_empty():
        return None
    exact = not events.trace.running.is_empty()
    launches = (
        ops.filter("first")
        .drop_nulls("call")
        .select("call", "thread_no", "step", "name", *_span(exact))
    )
    of_forward = scatter_table(
        len(events.calls), launches["call"], _of_forward(launches, events)
    ).alias("of_forward")
    lender = _lenders(events, seen)[launches["thread_no"]].alias("asked_no")
    launches = _nearest(launches.with_columns(lender).drop_nulls("asked_no"), seen, events.axis)
    if not exact:
        launches = _shared_in_place(launches)
    reach_ns = 0 if exact else REACH * (period_ns(events.trace.samples) or 0)
    stack = pl.when(pl.col("apart_ns") <= reach_ns).then("stack")
    lent = pl.col("asked_no") != pl.col("thread_no")
    known = launches.select("call", stack.alias("stack"), lent.alias("lent"))
    of_call = (
        scatter_table(len(events.calls), known["call"], known[name]).alias(name)
        for name in ("stack", "lent")
    )
    backward = pl.col("of_forward").is_not_null()
    return pl.DataFrame([*of_call, of_forward]).select(
        pl.coalesce("of_forward", "stack").alias("stack"),
        lent=pl.col("lent") | backward,
        backward=backward,
    )


def _of_forward(launches: pl.DataFrame, events: Events) -> pl.Series:
    """Per launch the stack of the operator of the forward pass that it computes gradients of: of
    the innermost such stretch around it whose stack has a line."""
    gradients = events.trace.gradients.join(
        events.stack_sources, on="stack", how="semi", maintain_order="left"
    )
    if gradients.is_empty():
        return repeated(None, len(launches), pl.UInt32)
    rows = inside(gradients, events.axis).join(
        events.threads[["thread", "thread_no"]], on="thread", maintain_order="left"
    )
    claims = rows[["stack"]].hstack(on_axis(rows, events.axis, "thread_no"))
    in_order = claims.sort("start", maintain_order=True)
    pieces = flatten(in_order, rank=_last_begun, keep=["stack"])
    place = launches.select(_place(events.axis, "thread_no", "start_ns")).to_series()
    row = pieces["start"].search_sorted(place, side="right").cast(pl.Int64) - 1
    of = pieces[row.set(row < 0, None)]
    return of.select(pl.when(pl.col("end") > place).then("stack")).to_series()


def _last_begun(claims: pl.DataFrame) -> pl.DataFrame:
    """The stretch that began last; ties: the shorter, then the earlier row."""
    return claims.select(-pl.col("start"), "end")


def _span(exact: bool) -> tuple[pl.Expr, pl.Expr]:
    """`start_ns` and `end_ns` of what a stack has to be near: where each function's time was
    recorded the start of the call, else all of it."""
    end = "launch_start_ns" if exact else "launch_end_ns"
    return pl.col("launch_start_ns").alias("start_ns"), pl.col(end).alias("end_ns")


def _seen(events: Events) -> Annotated[pl.DataFrame, _SEEN]:
    """When stacks were seen that have a line of the program or of a framework."""
    trace = events.trace
    if trace.running.is_empty():
        samples = trace.samples.select("thread", "stack", start_ns="time_ns", end_ns="time_ns")
        of_calls = trace.backtraces.select("thread", "stack", "start_ns", end_ns="start_ns")
        seen = pl.concat([samples, of_calls])
    else:
        last_ns = pl.col("end_ns") - 1
        seen = trace.running.select("thread", "stack", "start_ns", end_ns=last_ns)
    seen = seen.join(events.stack_sources, on="stack", how="semi", maintain_order="left")
    seen = seen.join(events.threads[["thread", "thread_no"]], on="thread", maintain_order="left")
    return (
        seen.sort("start_ns", maintain_order=True)
        .with_columns(place=_place(events.axis, "thread_no", "start_ns"))
        .sort("place", maintain_order=True)
        .match_to_schema(_SEEN, extra_columns="ignore")
    )


def _place(axis: Axis, track: str, time: str) -> pl.Expr:
    """The place of a time, or of the nearest one that the axis has, as a damaged report may hold
    any time."""
    last_ns = axis.origin_ns + axis.stride_ns - 1
    return axis.at(pl.col(track), pl.col(time).clip(axis.origin_ns, last_ns))


def _lenders(events: Events, seen: pl.DataFrame) -> pl.Series:
    """Per thread the one whose stacks it takes: itself, or that of its process which was seen most
    for an autograd thread and one that was never seen; ties: the lower number."""
    times = seen.group_by("thread_no").len("times")
    threads = events.threads.join(times, on="thread_no", how="left", maintain_order="left")
    most = (
        threads.filter(~pl.col("autograd"))
        .drop_nulls("times")
        .sort("process", "times", "thread_no", descending=[False, True, False])
        .unique("process", keep="first", maintain_order=True)
        .select("process", lender="thread_no")
    )
    asked = threads.join(most, on="process", how="left", maintain_order="left")
    borrows = pl.col("autograd") | pl.col("times").is_null()
    return asked.select(pl.when(borrows).then("lender").otherwise("thread_no")).to_series()


def _nearest(launches: pl.DataFrame, seen: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """`launches` with the nearest `stack` of the thread `asked_no`, and how far it is from the call
    (`apart_ns`): the last that was seen before the call's end, or the first behind. Of two as near
    the earlier; null where that thread was never seen."""
    until = launches.select(_place(axis, "asked_no", "end_ns")).to_series()
    behind = seen["place"].search_sorted(until, side="right")
    rows = {
        "before": behind.set(behind < 1, None) - 1,
        "after": behind.set(behind >= len(seen), None),
    }
    found = launches
    for side, row in rows.items():
        near = seen[row].select(pl.exclude("place").name.suffix(f"_{side}"))
        same = pl.col(f"thread_no_{side}") == pl.col("asked_no")
        apart = _apart_ns(pl.col(f"start_ns_{side}"), pl.col(f"end_ns_{side}"))
        found = found.hstack(near).with_columns(pl.when(same).then(apart).alias(side))
    earlier = (pl.col("before") <= pl.col("after")).fill_null(pl.col("before").is_not_null())
    return found.select(
        *launches.columns,
        pl.when(earlier).then("stack_before").otherwise("stack_after").alias("stack"),
        pl.when(earlier).then("before").otherwise("after").alias("apart_ns"),
    )


_FAR: Final = 1 << 62


def _apart_ns(first: pl.Expr, last: pl.Expr) -> pl.Expr:
    """How far the instants from `first` to `last` are from the call; in 128 bits, since the times
    of a damaged report may be anything."""
    begin, end = (pl.col(name).cast(pl.Int128) for name in ("start_ns", "end_ns"))
    apart = pl.max_horizontal(begin - last.cast(pl.Int128), first.cast(pl.Int128) - end, 0)
    return apart.clip(0, _FAR).cast(pl.Int64)


def _shared_in_place(launches: pl.DataFrame) -> pl.DataFrame:
    """`launches` with the `stack` and `apart_ns` of the nearest one in the same place: those that a
    thread makes as the nth of a step, for an operation of one name. Ties: the earliest."""
    in_order = launches.sort("call")  # calls are numbered by thread and start
    nth = pl.int_range(pl.len(), dtype=pl.UInt32).over("thread_no", "step")
    alone = pl.col("step").is_null()
    in_order = in_order.with_columns(
        pl.when(alone).then("call").alias("alone"), pl.when(~alone).then(nth).alias("nth")
    )
    nearest = pl.col("apart_ns").arg_min()
    place = ["thread_no", "name", "nth", "alone"]
    return in_order.with_columns(
        pl.col("stack").get(nearest).over(place), pl.col("apart_ns").min().over(place)
    )
