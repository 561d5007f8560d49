"""What memcpys moved, whether they blocked, and what they cost (spec §4): the four labels."""

import polars as pl

from nsysflow.analysis.accounting import Busy
from nsysflow.analysis.intervals import Axis, merge
from nsysflow.analysis.keys import os_pid
from nsysflow.analysis.prepare import SYNC_AFTER_NS, Prepared
from nsysflow.analysis.schema import COPY_LABEL, EACH_COPY


def copy_facts(prepared: Prepared) -> pl.DataFrame:
    """Every memcpy operation with `bytes`, `direction` and `copy_label`."""
    ops = prepared.ops.filter(pl.col("kind") == "memcpy")
    sides = prepared.trace.copy_details[ops["detail"]]
    ops = ops.hstack(sides.get_columns()).with_columns(_blocks(prepared, ops))
    pageable = (pl.col("source_memory") == "pageable") | (pl.col("target_memory") == "pageable")
    on_device = (pl.col("source_memory") == "device") & (pl.col("target_memory") == "device")
    pinned = (pl.col("source_memory") == "pinned") | (pl.col("target_memory") == "pinned")
    memory = (
        pl.when(pageable.fill_null(value=False))
        .then(pl.lit("pageable"))
        .when(pinned.fill_null(value=False))
        .then(pl.lit("pinned"))
    )
    manner = pl.when("blocks").then(pl.lit("_blocking")).otherwise(pl.lit("_async"))
    label = (
        pl.when(on_device.fill_null(value=False))
        .then(pl.lit("device"))
        .when(pl.col("call").is_not_null())
        .then(memory + manner)
    )
    return ops.with_columns(label.cast(COPY_LABEL).alias("copy_label")).drop("blocks")


def _blocks(prepared: Prepared, copies: pl.DataFrame) -> pl.Series:
    """The copy's call ended no earlier than the copy, or a sync follows at once on its thread."""
    axis = prepared.axis
    calls = prepared.calls.select("call", "class", "thread_no", "start_ns")
    calls = calls.filter(pl.col("class") != "api")
    starts = calls.select(axis.at(pl.col("thread_no"), pl.col("start_ns"))).to_series()
    ends = copies.select(axis.at(pl.col("thread_no"), pl.col("launch_end_ns"))).to_series()
    following = starts.search_sorted(ends, side="left")
    # A copy call of zero length starts at its own end.
    itself = calls["call"].gather(following.set(following >= len(starts), None)) == copies["call"]
    following += itself.fill_null(value=False).cast(following.dtype)
    following = following.set(following >= len(starts), None)
    wait = starts.gather(following) - ends
    is_sync = (calls["class"] == "sync").gather(following)
    waited_on = (is_sync & (wait <= SYNC_AFTER_NS)).fill_null(value=False)
    return ((copies["launch_end_ns"] >= copies["end_ns"]).fill_null(value=False) | waited_on).alias(
        "blocks"
    )


def copy_table(
    prepared: Prepared, facts: pl.DataFrame, charges: pl.DataFrame, busy: Busy
) -> pl.DataFrame:
    """The `COPIES` table, without `report`.

    Args:
        prepared: the trace.
        facts: of `copy_facts`, with `phase`.
        charges: `causes.CHARGES`.
        busy: the devices' busy time.
    """
    key = ["process", "device_no", "phase", "direction", "copy_label"]
    induced = charges.group_by("call").agg(pl.col("ns").sum().alias("induced_idle_ns"))
    facts = facts.join(induced, on="call", how="left", maintain_order="left")
    call_ns = pl.col("launch_end_ns") - pl.col("launch_start_ns")
    of_calls = (
        facts.filter(pl.col("call").is_not_null())
        .unique([*key, "call"])
        .group_by(key)
        .agg(call_ns.sum().alias("api_ns"), pl.col("induced_idle_ns").sum())
    )
    table = facts.group_by(key).agg(
        pl.col("device").first(),
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("bytes").sum(),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("gpu_ns"),
    )
    exposed = _exposed(facts, key, busy, prepared.axis)
    return (
        table.join(exposed, on=key, nulls_equal=True)
        .join(of_calls, on=key, how="left", nulls_equal=True)
        .with_columns(pl.col("api_ns", "induced_idle_ns").fill_null(0))
        .sort("gpu_ns", *key, descending=[True, *[False] * len(key)])
        .select(
            os_pid(pl.col("process")).alias("process"),
            *("device", "phase", "direction", "copy_label", "count", "bytes", "gpu_ns", "api_ns"),
            *("exposed_ns", "induced_idle_ns"),
        )
    )


def each_copy(prepared: Prepared, facts: pl.DataFrame, charges: pl.DataFrame) -> pl.DataFrame:
    """The `EACH_COPY` table, without `report`; arguments as for `copy_table`."""
    induced = charges.group_by("call").agg(pl.col("ns").sum().alias("induced_idle_ns"))
    launched = pl.col("call").is_not_null()
    api = prepared.calls["name"].gather(facts["call"]).cast(pl.String).alias("api")
    return (
        facts.with_columns(api)
        .join(induced, on="call", how="left")
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            (pl.col("launch_end_ns") - pl.col("launch_start_ns")).alias("api_ns"),
            pl.when(launched).then(pl.col("induced_idle_ns").fill_null(0)),
        )
        .sort("device", "start_ns", "end_ns", "stream")
        .select([name for name in EACH_COPY if name != "report"])
    )


def _exposed(facts: pl.DataFrame, key: list[str], busy: Busy, axis: Axis) -> pl.DataFrame:
    """Per group `exposed_ns`: the union of its copies while no kernel ran on the device."""
    groups = facts.select(key).unique().with_row_index("group")
    rows = facts.join(groups, on=key, nulls_equal=True)
    laid = rows.select(
        axis.at(pl.col("group"), pl.col("start_ns")).alias("start"),
        axis.at(pl.col("group"), pl.col("end_ns")).alias("end"),
    )
    union = merge(laid).with_columns(axis.track(pl.col("start")).cast(pl.UInt32).alias("group"))
    union = union.join(groups, on="group", maintain_order="left")
    start = union.select(
        axis.at(pl.col("device_no"), axis.time_ns(pl.col("start"))).alias("start")
    )["start"]
    length = union["end"] - union["start"]
    hidden = busy.with_comm.between(start, start + length)
    exposed = union.select(*key, (length - hidden).alias("exposed_ns"))
    return exposed.group_by(key).agg(pl.col("exposed_ns").sum())
