"""Who waits for Python's lock (GIL) while another thread holds it (spec §28)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.intervals import flatten, inside, merge, on_axis, overlaps
from nsysflow.analysis.idle.samples import Cells, with_rest
from nsysflow.analysis.trace import Trace

GIL_WAITS: Final = pl.Schema(
    {
        "start": pl.Int64(),
        "end": pl.Int64(),
        "thread_no": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "holder_no": pl.UInt32(),
    }
)
"""A row per stretch in which a thread waits for the GIL while the thread `holder_no` of its process
holds it. `start` and `end` are its place on the axis of threads; disjoint and sorted by them."""
GilWaits = Annotated[pl.DataFrame, GIL_WAITS]


def has_gil(trace: Trace) -> bool:
    """Whether the report says who had the GIL."""
    return not trace.gil.is_empty()


def gil_waits(events: Events) -> GilWaits:
    """When each thread waits for the GIL while another one of its process holds it."""
    axis, threads = events.axis, events.threads
    ends = pl.col("end_ns").fill_null(events.last_ns)
    rows = events.trace.gil.filter(ends > pl.col("start_ns")).with_columns(ends)
    rows = rows.with_columns(pl.col("start_ns", "end_ns").clip(axis.origin_ns, events.last_ns))
    rows = inside(rows, axis).join(threads[["thread", "thread_no", "process_no"]], on="thread")
    held = _held(events, rows.filter(pl.col("state") == "holding"))
    waiting = merge(on_axis(rows.filter(pl.col("state") == "waiting"), axis, "thread_no"))
    thread_no = axis.track(pl.col("start")).cast(pl.UInt32).alias("thread_no")
    asked = waiting.select("start", "end", thread_no)
    apart = (threads["process_no"].cast(pl.Int64) - threads["thread_no"])[asked["thread_no"]]
    shift = apart * axis.stride_ns
    met = overlaps(asked.with_columns(pl.col("start", "end") + shift, back=shift), held)
    start_ns = axis.time_ns(pl.col("start"))
    return (
        met.with_columns(holder_no=held["holder_no"][met["other"]])
        .filter(pl.col("holder_no") != pl.col("thread_no"))
        .with_columns(pl.col("start", "end") - pl.col("back"))
        .with_columns(start_ns.alias("start_ns"))
        .with_columns(end_ns=pl.col("start_ns") + pl.col("end") - pl.col("start"))
        .match_to_schema(GIL_WAITS, extra_columns="ignore")
        .sort("start")
    )


def _held(events: Events, holding: pl.DataFrame) -> pl.DataFrame:
    """Who holds the GIL of each process when: `start`, `end` on the axis of processes, `holder_no`.
    Only damaged reports have several at once; the last one to take it has it then."""
    claims = on_axis(holding, events.axis, "process_no").with_columns(
        holding["thread_no"].alias("holder_no")
    )
    return flatten(claims.sort("start"), rank=_latest_first, keep=["holder_no"])


def _latest_first(claims: pl.DataFrame) -> pl.DataFrame:
    return claims.select((-pl.col("start")).alias("latest"), "holder_no")


def holders(waits: GilWaits) -> Cells:
    """What stands for the time of each thread: the number of the thread that it waits for."""
    return with_rest(waits.select("start", "end", stack="holder_no", cell="holder_no"))


def held_by(waits: GilWaits, events: Events, tiles: Cells) -> pl.DataFrame:
    """What holders ran while a thread waited for them: `thread_no`, `holder_no`, `stack`, `ns`.

    Args:
        waits: of all threads.
        events: the trace.
        tiles: the samples of all threads.
    """
    asked = waits.select("thread_no", "holder_no")
    met = overlaps(asked.hstack(on_axis(waits, events.axis, "holder_no")), tiles)
    ran = met.with_columns(tiles["stack"][met["other"]], ns=pl.col("end") - pl.col("start"))
    key = ["thread_no", "holder_no", "stack"]
    return ran.drop_nulls("stack").group_by(key).agg(pl.col("ns").sum())
