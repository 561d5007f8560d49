"""What each memcpy moved, and whether the host waited for it: the four labels of spec §4."""

import polars as pl

from nsysflow.analysis.schema import COPY_LABEL
from nsysflow.analysis.timeline.call_classes import SYNC_AFTER_NS
from nsysflow.analysis.timeline.events import Events


def copies(events: Events) -> pl.DataFrame:
    """Every memcpy operation, plus `bytes`, `direction` and `copy_label`."""
    ops = events.ops.filter(pl.col("kind") == "memcpy")
    sides = events.trace.copy_details[ops["detail"]]
    ops = ops.hstack(sides.get_columns()).with_columns(_blocks(events, ops))
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


def _blocks(events: Events, copies: pl.DataFrame) -> pl.Series:
    """Whether the copy's call ended no earlier than the copy, or a sync follows on its thread."""
    axis = events.axis
    calls = events.calls.select("call", "class", "thread_no", "start_ns")
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
