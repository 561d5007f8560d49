"""What a call waits for: the operation after whose end it returns (spec §14)."""

from typing import Final

import polars as pl

from nsysflow.analysis.frames.lookup import matching

FREES: Final = r"^(?:cudaFree|cuMemFree)"
"""Calls that wait for the GPU before they free memory; `…Async` ones do not."""

EVENT_SYNC: Final = r"^(?:cuda|cu)EventSynchronize$"


def with_waits(calls: pl.DataFrame, ops: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """`calls` plus `after`, the operation that each waits for (null without), and `after_ns`, from
    its end to the call's; `cost_ns` becomes what the call takes without waiting.

    Args:
        calls: of `Host`.
        ops: `operations.PLACED`.
        named: of `event_waits`, with `node` for `call`.
    """
    for_event = matching(calls["name"], EVENT_SYNC)
    frees = matching(calls["name"], FREES) & ~matching(calls["name"], "Async")
    waiting = calls.with_columns(for_event.alias("for_event"), frees.alias("frees"))
    waiting = waiting.filter((pl.col("class") == "sync") | pl.col("frees"))
    waiting = waiting.select("node", "process_no", "start_ns", "end_ns", "for_event")
    waiting = waiting.join(named, on="node", how="left")
    recorded = pl.col("record_op").is_not_null()
    found = pl.concat(
        [
            _own_operation(calls, ops),
            waiting.filter(recorded).select("node", op="record_op"),
            _latest_ended(waiting.filter("for_event", ~recorded), ops),
            _stream_tails(waiting.filter(~pl.col("for_event"), ~recorded), ops),
        ]
    )
    return _with_latest(calls, found, ops["end_ns"])


def _with_latest(calls: pl.DataFrame, found: pl.DataFrame, ends: pl.Series) -> pl.DataFrame:
    """`calls` with the latest-ending of the operations found, of those that ended by its return."""
    returned = calls["end_ns"].gather(found["node"])
    latest = (
        found.with_columns(ends.gather(found["op"]).alias("done_ns"))
        .filter(pl.col("done_ns") <= returned)
        .sort("done_ns", "op")
        .unique("node", keep="last", maintain_order=True)
    )
    after = pl.repeat(None, len(calls), dtype=pl.UInt32, eager=True)
    after = after.scatter(latest["node"], latest["op"]).alias("after")
    begun = pl.max_horizontal("start_ns", pl.lit(ends.gather(after)))
    calls = calls.with_columns(after)
    after_ns = pl.when(pl.col("after").is_not_null()).then(pl.col("end_ns") - begun)
    return calls.with_columns(after_ns.alias("after_ns")).with_columns(
        pl.coalesce("after_ns", "cost_ns").alias("cost_ns")
    )


def _own_operation(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Blocking copies with the operations that they launched."""
    copies = calls.filter(pl.col("class") == "blocking_copy").select("node")
    return ops.select("node", "op").join(copies, on="node", how="semi")


def _latest_ended(waiting: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Waits for an event that nothing names, with the latest operation of the process that had
    ended when they returned."""
    ended = ops.select("process_no", "op", done_ns="end_ns").sort("done_ns")
    found = waiting.sort("end_ns").join_asof(
        ended, left_on="end_ns", right_on="done_ns", by="process_no", check_sortedness=False
    )
    return found.select("node", "op").drop_nulls()


def _stream_tails(waiting: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Waits for streams, with the last operation launched on each stream before the call."""
    launched = ops.filter(pl.col("node").is_not_null()).select(
        "process_no", "stream_no", "op", "end_ns", "launch_start_ns"
    )
    found = [pl.DataFrame(schema={"node": pl.UInt32, "op": pl.UInt32})]
    waiting = waiting.sort("start_ns")
    for (stream,), tails in launched.group_by("stream_no", maintain_order=True):
        anyone = pl.col("awaited_no").is_null() | (pl.col("awaited_no") == stream)
        asked = waiting.filter(anyone, pl.col("process_no") == tails["process_no"][0])
        tail = asked.select("node", "start_ns").join_asof(
            tails.sort("launch_start_ns", "end_ns").select("launch_start_ns", "op"),
            left_on="start_ns",
            right_on="launch_start_ns",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        found.append(tail.select("node", "op").drop_nulls())
    return pl.concat(found)
