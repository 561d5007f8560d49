"""The calls at which the host waits in the judged part, and what each of them does."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.call_classes import SYNC_AFTER_NS
from nsysflow.analysis.frames.intervals import Axis
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.syncs import without_inner

SCALAR_BYTES: Final = 1 << 16
"""A copy to the host of at most this size reads a value; a larger one moves data. (The driver
copies up to 64 kB through a buffer of its own.)"""


def stall_rows(view: View) -> pl.DataFrame:
    """Every stall of the judged part: `call`, `api`, `kind` (its class), `what` (`read`,
    `pageable`, `pinned`, `sync` or `alloc`), `phase`, `source`, `via`, `at_phase` (its phase where
    it has no line), `start_ns`, `blocked_ns`, `idle_ns` (behind it, on the GPU where that is
    most)."""
    gaps = view.timeline.found_gaps
    charges = view.charges.with_columns(gaps["device_no"].gather(view.charges["gap"]))
    idle = charges.group_by("call", "device_no").agg(pl.col("ns").sum())
    idle = idle.group_by("call").agg(pl.col("ns").max().alias("idle_ns"))
    rows = (
        without_inner(view.timeline.stalls, view.charges["call"])
        .join(idle, on="call", how="left")
        .with_columns(pl.col("idle_ns").fill_null(0))
    )
    rows = _within(view, rows)
    source, via = (pl.col(line).cast(pl.String).fill_null("") for line in ("source", "via"))
    return rows.select(
        "call",
        pl.col("name").cast(pl.String).alias("api"),
        pl.col("class").cast(pl.String).alias("kind"),
        _what(view, rows).alias("what"),
        "phase",
        source.alias("source"),
        via.alias("via"),
        pl.when((source == "") & (via == "")).then("phase").otherwise(pl.lit("")).alias("at_phase"),
        "start_ns",
        (pl.col("end_ns") - pl.col("start_ns")).alias("blocked_ns"),
        "idle_ns",
    ).sort("start_ns", "call")


def _within(view: View, rows: pl.DataFrame) -> pl.DataFrame:
    """The stalls with idle time behind them in the judged part, or that begin in it."""
    spans = view.windows.select("start_ns", "end_ns").sort("start_ns")
    begun = spans["start_ns"].search_sorted(rows["start_ns"], side="right")
    past = spans["end_ns"].sort().search_sorted(rows["start_ns"], side="right")
    return rows.filter((begun > past) | (rows["idle_ns"] > 0))


def _what(view: View, rows: pl.DataFrame) -> pl.Series:
    """What each stall does. A sync of a stream right after a copy on its thread waits for that."""
    copied = _copy_of(view, rows)
    memory = copied["copy_label"].cast(pl.String)
    reads = (copied["direction"] == "DtoH") & (copied["bytes"] <= SCALAR_BYTES)
    return rows.select(
        pl.when(pl.col("class") == "alloc")
        .then(pl.lit("alloc"))
        .when(pl.lit(reads))
        .then(pl.lit("read"))
        .when((pl.col("class") == "blocking_copy") | pl.lit(memory.str.starts_with("pageable")))
        .then(pl.lit("pageable"))
        .when(pl.lit(memory.str.starts_with("pinned")))
        .then(pl.lit("pinned"))
        .otherwise(pl.lit("sync"))
    ).to_series()


def _copy_of(view: View, rows: pl.DataFrame) -> pl.DataFrame:
    """Per stall the copy that it is, or that ended right before it: `direction`, `bytes`,
    `copy_label`; null without one."""
    about = ["direction", "bytes", "copy_label"]
    copies = view.timeline.copies.filter(pl.col("call").is_not_null()).unique("call", keep="first")
    own = rows.select("call").join(copies, on="call", how="left", maintain_order="left")
    axis = view.events.axis
    before = _place(rows, "start_ns", axis).sort("place", maintain_order=True)
    ended = _place(copies, "launch_end_ns", axis, *about).sort("place")
    found = (
        before.join_asof(ended, on="place", tolerance=SYNC_AFTER_NS, check_sortedness=False)
        .sort("row")
        .select(about)
    )
    for_stream = rows["name"].cast(pl.String).str.contains("StreamSynchronize")
    return pl.DataFrame(
        [
            pl.select(pl.coalesce(own[name], pl.when(pl.lit(for_stream)).then(pl.lit(found[name]))))
            .to_series()
            .alias(name)
            for name in about
        ]
    )


def _place(rows: pl.DataFrame, time: str, axis: Axis, *columns: str) -> pl.DataFrame:
    """`row` and `place`, of an instant on the axis of threads."""
    at = axis.at(pl.col("thread_no"), pl.col(time)).alias("place")
    return rows.with_row_index("row").select("row", at, *columns)
