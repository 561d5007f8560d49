"""The time without compute, by what the next compute operation waited for (spec §15)."""

from dataclasses import replace
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.activity import BusyTime
from nsysflow.analysis.events.classes import queue_limit_ns
from nsysflow.analysis.events.events import Events, Operations
from nsysflow.analysis.frames.columns import enum_from_index, scatter_table
from nsysflow.analysis.frames.intervals import between, merge, on_axis, overlaps, reached_before
from nsysflow.analysis.frames.scratch import in_files, in_slices
from nsysflow.analysis.schema import KIND_OF_WAIT, MOVES_MANAGED_MEMORY

STRETCHES: Final = pl.Schema(
    {
        "device_no": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "waiter": pl.UInt32(),
    }
)
"""From the first operation of a device to the end of its last one. `waiter` is the compute
operation that starts at the end; null in the stretch after the last one."""
Stretches = Annotated[pl.DataFrame, STRETCHES]


def stretches_without_compute(events: Events) -> Stretches:
    """When each device did not compute, the time before its first compute operation first."""
    reach = (pl.col("place") + pl.col("end_ns") - pl.col("start_ns")).alias("reach")
    positive = pl.col("end_ns") > pl.col("start_ns")
    ops = events.ops.lazy().filter(positive)
    lasting = ops.select("op", "device_no", "place", reach, "part").collect()
    windows = lasting.group_by("device_no").agg(pl.col("place").min(), pl.col("reach").max())
    compute = lasting.filter(pl.col("part") == "compute")
    reached = compute.group_by("device_no").agg(pl.col("reach").max().alias("reached"))
    first = compute.group_by("device_no").agg(pl.col("op").first(), pl.col("place").first())
    same_device = pl.col("device_no") == pl.col("device_no").shift(1)
    between = compute.with_columns(reached_before(pl.col("reach")).alias("before")).filter(
        same_device, pl.col("place") > pl.col("before")
    )
    before = windows.select("device_no", pl.col("place").alias("before")).join(
        first, on="device_no"
    )
    after = windows.join(reached, on="device_no", how="left").select(
        "device_no",
        pl.col("reached").fill_null(pl.col("place")).alias("before"),
        pl.col("reach").alias("place"),
        pl.lit(None, pl.UInt32).alias("op"),
    )
    columns = ["device_no", "before", "place", "op"]
    axis = events.axis
    return (
        pl.concat([frame.select(columns) for frame in (before, between, after)])
        .filter(pl.col("place") > pl.col("before"))
        .select(
            "device_no",
            axis.time_ns(pl.col("before")).alias("start_ns"),
            (axis.time_ns(pl.col("before")) + pl.col("place") - pl.col("before")).alias("end_ns"),
            pl.col("op").alias("waiter"),
        )
        .match_to_schema(STRETCHES)
    )


_KIND_OF_PART: Final = {"compute": "other", "comm": "communication", "copy": "copy"}

WAIT_PIECES: Final = pl.Schema(
    {
        "device_no": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kind": KIND_OF_WAIT,
        "op": pl.UInt32(),
        "waiter": pl.UInt32(),
    }
)
"""Pieces of the time without compute. `op` is the operation that was waited for; of `host`, `start`
and `unresolved` the one that had not started. `waiter` is the compute operation behind it. Both are
null after the last compute operation of a device."""
WaitPieces = Annotated[pl.DataFrame, WAIT_PIECES]


def split_waits(events: Events, producer: pl.Series) -> WaitPieces:
    """The time without compute of all devices, by what it waited for.

    Args:
        events: the trace.
        producer: of each operation, of `producers`.
    """
    stretches = stretches_without_compute(events)
    followed = pl.col("waiter").is_not_null()
    nodes = _chains(events.ops, producer, stretches.filter(followed))
    after = stretches.filter(~followed).with_columns(
        pl.lit("unresolved", KIND_OF_WAIT).alias("kind"), pl.lit(None, pl.UInt32).alias("op")
    )
    scratch = events.trace.scratch
    slices = [
        in_files(_pieces(_hops(events, producer, rows)), scratch)
        for rows in in_slices(nodes, scratch)
    ]
    of_each_kind = (pl.concat(rows) for rows in zip(*slices, strict=True))
    pieces: list[WaitPieces] = [*of_each_kind, after.select(WAIT_PIECES.names())]
    lasting = pl.concat(pieces).filter(pl.col("end_ns") > pl.col("start_ns"))
    return _with_work(events, lasting, stretches)


MOSTLY: Final = 4
"""A GPU that sends and copies for so many times as long as it computes, and at least as often, is
there for that: nobody needs to wait for it."""


def _with_work(events: Events, pieces: WaitPieces, stretches: Stretches) -> WaitPieces:
    """The pieces, with what is waited for although no operation follows its stream: on GPUs that
    mostly communicate or copy all of that; elsewhere what runs after the last compute operation,
    and pages of managed memory, as who touches them waits for them."""
    compute = pl.col("part") == "compute"
    ops = events.ops.filter(pl.col("end_ns") > pl.col("start_ns"))
    placed = on_axis(ops[["op", "device_no", "start_ns", "end_ns", "part"]], events.axis)
    placed = ops[["op", "device_no", "part", "name"]].hstack(placed.select("start", "end"))
    sent, computed = _in_turn(placed.filter(~compute)), _in_turn(placed.filter(compute))
    if sent.is_empty():
        return pieces
    alone = between(merge(computed))
    shown = overlaps(sent, alone)
    length = (pl.col("end") - pl.col("start")).sum().alias("ns")
    counts = placed.group_by("device_no").agg((2 * compute.sum() <= pl.len()).alias("often"))
    exposed = shown.group_by("device_no").agg(length).join(counts, on="device_no").filter("often")
    own = computed.group_by("device_no").agg(length.alias("compute_ns"))
    mostly = exposed.join(own, on="device_no", how="left").filter(
        pl.col("ns") >= MOSTLY * pl.col("compute_ns").fill_null(0)
    )
    copies = placed.filter(pl.col("part") == "copy")
    managed = copies.filter(pl.col("name").cast(pl.String).str.contains(MOVES_MANAGED_MEMORY))
    places = stretches.select("waiter").hstack(on_axis(stretches, events.axis)).sort("start")
    followed = pl.col("waiter").is_not_null()
    moved = overlaps(_in_turn(managed), places.filter(followed))
    last = overlaps(sent, places.filter(~followed))
    waited = pl.concat([moved, last]).join(mostly, on="device_no", how="anti")
    work = pl.concat([shown.join(mostly, on="device_no", how="semi"), waited])
    return pieces if work.is_empty() else _replaced(events, pieces, work)


def _in_turn(placed: pl.DataFrame) -> pl.DataFrame:
    """Operations in the order of their starts, without the time of those before: an instant belongs
    to the one that started first."""
    before = reached_before(pl.col("end"))
    rest = placed.with_columns(pl.max_horizontal("start", before).alias("start"))
    return rest.filter(pl.col("end") > pl.col("start"))


def _replaced(events: Events, pieces: WaitPieces, work: pl.DataFrame) -> WaitPieces:
    """The pieces, with the time of `work` (`device_no`, `op`, `part`, `start`, `end`) its own."""
    axis, work = events.axis, work.sort("start")
    rest = overlaps(pieces.hstack(on_axis(pieces, axis)), between(merge(work)))
    kind = pl.when(pl.col("part") == "comm").then(pl.lit("communication")).otherwise(pl.lit("copy"))
    begin, length = axis.time_ns(pl.col("start")), pl.col("end") - pl.col("start")
    own = work.with_columns(kind.cast(KIND_OF_WAIT).alias("kind"), waiter=pl.lit(None, pl.UInt32))
    both = pl.concat(
        [rows.select("device_no", "start", "end", "kind", "op", "waiter") for rows in (rest, own)]
    )
    return both.sort("start").select(
        "device_no",
        begin.alias("start_ns"),
        (begin + length).alias("end_ns"),
        "kind",
        "op",
        "waiter",
    )


def _chains(ops: Operations, producer: pl.Series, stretches: Stretches) -> pl.DataFrame:
    """The operations of the chain behind each stretch: `op`, `from_ns` (where the stretch begins),
    `waiter`."""
    ends = stretches.select("waiter", "device_no", "end_ns", op="waiter", from_ns="start_ns")
    opens = _next_in_chain(ops, producer, ends).is_not_null()
    columns = ["op", "from_ns", "waiter"]
    closed, ends = ends.filter(~opens), ends.filter(opens)
    inside = _starting_in(ops, ends).select(columns)
    number = scatter_table(
        len(ops), inside["op"], pl.int_range(len(inside), dtype=pl.UInt32, eager=True)
    )
    jump = number[_next_in_chain(ops, producer, inside)]
    reached = number[ends["waiter"]]
    while jump.null_count() < len(jump):
        reached = pl.concat([reached, jump[reached].drop_nulls()])
        jump = jump[jump]
    return pl.concat([closed.select(columns), inside[reached]])


def _next_in_chain(ops: Operations, producer: pl.Series, rows: pl.DataFrame) -> pl.Series:
    """The producer with which the chain of each row (`op`, `from_ns`) goes on; null where it ends:
    with a producer on another device, or one that started before the stretch."""
    behind = producer[rows["op"]]
    device = ops["device_no"]
    inside = ops["start_ns"][behind] > rows["from_ns"]
    return behind.set(~(inside & (device[behind] == device[rows["op"]])), None)


def _starting_in(ops: Operations, stretches: pl.DataFrame) -> pl.DataFrame:
    """The stretches, a row for each operation that starts after their start and until their end."""
    place = ops["place"]
    end = place[stretches["waiter"]]
    start = end - (stretches["end_ns"] - stretches["from_ns"])
    first = place.search_sorted(start, side="right")
    past = place.search_sorted(end, side="right")
    return stretches.with_columns(pl.int_ranges(first, past, dtype=pl.UInt32).alias("op")).explode(
        "op"
    )


def _hops(events: Events, producer: pl.Series, nodes: pl.DataFrame) -> pl.DataFrame:
    """The `nodes` of chains with the borders of their pieces.

    `begin_ns` to `edge_ns` is spent on the `producer`, until `launched_ns` on the host (null
    without a launch), until `start_ns` on the start, which takes no longer than `limit_ns`.
    """
    ops = events.ops
    limit = queue_limit_ns(events.calls, ops["call"][nodes["op"]])
    source = producer[nodes["op"]].alias("producer")
    own = ops.select(pl.col("device_no", "start_ns", "launch_end_ns").gather(nodes["op"]))
    theirs = ops.select(
        pl.col("device_no", "part").gather(source).name.prefix("p_"),
        pl.col("start_ns", "end_ns").gather(source).name.prefix("p_"),
    )
    here = pl.col("p_device_no") == pl.col("device_no")
    edge = pl.min_horizontal(pl.max_horizontal("p_end_ns", "from_ns"), "start_ns")
    launched = pl.min_horizontal(pl.max_horizontal("launch_end_ns", "edge_ns"), "start_ns")
    return (
        nodes.hstack([source, limit, *own.get_columns(), *theirs.get_columns()])
        .with_columns(
            pl.when(here)
            .then(pl.max_horizontal("p_start_ns", "from_ns"))
            .otherwise("from_ns")
            .alias("begin_ns"),
            edge.alias("edge_ns"),
            here.alias("here"),
        )
        .with_columns(
            pl.when(pl.col("launch_end_ns").is_not_null()).then(launched).alias("launched_ns")
        )
    )


def _pieces(hops: pl.DataFrame) -> list[pl.DataFrame]:
    """`PIECES` of the hops."""
    number = {name: pl.lit(i, pl.UInt8) for i, name in enumerate(KIND_OF_WAIT.categories)}
    of_part = pl.coalesce(
        pl.when(pl.col("here") & (pl.col("p_part") == part)).then(number[kind])
        for part, kind in _KIND_OF_PART.items()
    ).fill_null(number["other"])
    quick = pl.col("start_ns") - pl.col("launched_ns") <= pl.col("limit_ns")
    free = pl.coalesce("launched_ns", "edge_ns")
    spans = (
        ("begin_ns", "edge_ns", of_part, "producer"),
        ("edge_ns", free, number["host"], "op"),
        (
            free,
            "start_ns",
            pl.when(quick).then(number["start"]).otherwise(number["unresolved"]),
            "op",
        ),
    )
    pieces = (
        hops.select(
            "device_no",
            pl.col(start).alias("start_ns") if isinstance(start, str) else start.alias("start_ns"),
            end_ns=end,
            kind=kind,
            op=op,
            waiter="waiter",
        ).filter(pl.col("end_ns") > pl.col("start_ns"))
        for start, end, kind, op in spans
    )
    return [rows.with_columns(enum_from_index(rows["kind"], KIND_OF_WAIT)) for rows in pieces]


LEAST_PCT: Final = 1
"""Less than this of the devices' time changes no bound, and causes take long to compute twice."""

_WAITED: Final = ("communication", "copy")


def without_unwaited(events: Events, pieces: WaitPieces, busy: BusyTime) -> Events | None:
    """`events` with copies and communication kernels only while they were waited for; None where
    that makes no difference.

    Args:
        events: the trace.
        pieces: the time without compute.
        busy: when each device was busy.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    awaited = pieces.filter(pl.col("kind").is_in(_WAITED))
    compute_ns = _total_ns(busy.compute.intervals)
    hiding_ns = _total_ns(busy.all.intervals) - compute_ns - awaited.select(length.sum()).item()
    window_ns = compute_ns + pieces.select(length.sum()).item()
    if hiding_ns * 100 < LEAST_PCT * window_ns or hiding_ns == 0:
        return None
    first = awaited.group_by("op").agg(pl.col("start_ns").min())
    since = scatter_table(len(events.ops), first["op"], first["start_ns"]).alias("since_ns")
    kept = (pl.col("part") == "compute") | pl.col("since_ns").is_not_null()
    start = pl.max_horizontal("start_ns", "since_ns").alias("start_ns")
    ops = events.ops.with_columns(since).filter(kept).with_columns(start).drop("since_ns", "op")
    place = events.axis.at(pl.col("device_no"), pl.col("start_ns")).alias("place")
    ops = ops.with_columns(place).sort("place", maintain_order=True)
    ops = ops.with_row_index("op").select(events.ops.columns)
    return replace(events, ops=ops)


def _total_ns(intervals: pl.DataFrame) -> int:
    return int(intervals.select((pl.col("end") - pl.col("start")).sum()).item())
