"""The time without compute, split by what the next compute operation waited for (spec §15).

Behind each compute operation stands a chain of producers, back to where compute ended. Where an
operation starts says in which stretch it lies. So the operations of all chains are found together,
by doubling the length of the jumps, and each gives its own pieces.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import enum_from_index, scatter_table
from nsysflow.analysis.frames.scratch import in_files, in_slices
from nsysflow.analysis.schema import KIND_OF_WAIT
from nsysflow.analysis.timeline.events import Events
from nsysflow.analysis.waited.stretches import stretches_without_compute

START_NS: Final = 10_000
"""Work that was launched and free to run starts within 10 us; what takes longer waited for what the
report does not name (spec §3.4 has the same limit)."""

_KIND_OF_PART: Final = {"compute": "other", "comm": "communication", "copy": "copy"}

PIECES: Final = pl.Schema(
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


def split(events: Events, producer: pl.Series) -> pl.DataFrame:
    """`PIECES` of all devices.

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
    found = [
        in_files(_pieces(_hops(events.ops, producer, rows)), scratch)
        for rows in in_slices(nodes, scratch)
    ]
    of_each_kind = (pl.concat(rows) for rows in zip(*found, strict=True))
    pieces: list[pl.DataFrame] = [*of_each_kind, after.select(PIECES.names())]
    return pl.concat(pieces).filter(pl.col("end_ns") > pl.col("start_ns"))


def _chains(ops: pl.DataFrame, producer: pl.Series, stretches: pl.DataFrame) -> pl.DataFrame:
    """The operations of the chain behind each stretch: `op`, `from_ns` (where the stretch begins),
    `waiter`."""
    ends = stretches.select("waiter", "device_no", "end_ns", op="waiter", from_ns="start_ns")
    opens = _behind(ops, producer, ends).is_not_null()
    columns = ["op", "from_ns", "waiter"]
    closed, ends = ends.filter(~opens), ends.filter(opens)
    inside = _starting_in(ops, ends).select(columns)
    number = scatter_table(
        len(ops), inside["op"], pl.int_range(len(inside), dtype=pl.UInt32, eager=True)
    )
    jump = number.gather(_behind(ops, producer, inside))
    reached = number.gather(ends["waiter"])
    while jump.null_count() < len(jump):
        reached = pl.concat([reached, jump.gather(reached).drop_nulls()])
        jump = jump.gather(jump)
    return pl.concat([closed.select(columns), inside[reached]])


def _behind(ops: pl.DataFrame, producer: pl.Series, rows: pl.DataFrame) -> pl.Series:
    """The producer with which the chain of each row (`op`, `from_ns`) goes on; null where it ends:
    with a producer on another device, or one that started before the stretch."""
    found = producer.gather(rows["op"])
    device = ops["device_no"]
    inside = ops["start_ns"].gather(found) > rows["from_ns"]
    return found.set(~(inside & (device.gather(found) == device.gather(rows["op"]))), None)


def _starting_in(ops: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """The stretches, a row for each operation that starts after their start and until their end."""
    place = ops["place"]
    end = place.gather(stretches["waiter"])
    start = end - (stretches["end_ns"] - stretches["from_ns"])
    first = place.search_sorted(start, side="right")
    past = place.search_sorted(end, side="right")
    return stretches.with_columns(pl.int_ranges(first, past, dtype=pl.UInt32).alias("op")).explode(
        "op"
    )


def _hops(ops: pl.DataFrame, producer: pl.Series, nodes: pl.DataFrame) -> pl.DataFrame:
    """The `nodes` of chains with the borders of their pieces.

    `begin_ns` to `edge_ns` is spent on the `producer`, until `launched_ns` on the host (null
    without a launch), until `start_ns` on the start.
    """
    source = producer.gather(nodes["op"]).alias("producer")
    own = ops.select(pl.col("device_no", "start_ns", "launch_end_ns").gather(nodes["op"]))
    theirs = ops.select(
        pl.col("device_no", "part").gather(source).name.prefix("p_"),
        pl.col("start_ns", "end_ns").gather(source).name.prefix("p_"),
    )
    here = pl.col("p_device_no") == pl.col("device_no")
    edge = pl.min_horizontal(pl.max_horizontal("p_end_ns", "from_ns"), "start_ns")
    launched = pl.min_horizontal(pl.max_horizontal("launch_end_ns", "edge_ns"), "start_ns")
    return (
        nodes.hstack([source, *own.get_columns(), *theirs.get_columns()])
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
    quick = pl.col("start_ns") - pl.col("launched_ns") <= START_NS
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
    found = (
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
    return [rows.with_columns(enum_from_index(rows["kind"], KIND_OF_WAIT)) for rows in found]
