"""Who waits for Python's lock (GIL) while another thread holds it (spec §28)."""

from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.intervals import flatten, inside, merge, on_axis, overlaps
from nsysflow.analysis.idle.samples import CELLS, HOLE, INSTANTS, Cells, Instants, cells, with_rest
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


SHARES: Final = pl.Schema({"cell": pl.UInt32(), "work_ns": pl.Int64(), "lock_ns": pl.Int64()})
"""A row per cell of which only a part is a wait: for `lock_ns` of `work_ns` its thread waits."""


@dataclass(frozen=True, kw_only=True)
class LockWaits:
    """Who waits for the GIL while another thread holds it, as recorded or estimated.

    Attributes:
        waits: `GIL_WAITS`; of an estimate the stretches in which a thread waits at some time.
        tiles: what stands for the time of each thread: `stack` is the number of the thread that it
            waits for, or may wait for.
        shares: `SHARES` of the cells of an estimate; None where the waits were recorded.
        at_work: of an estimate the samples of all threads, without those in which one waits.
    """

    waits: GilWaits
    tiles: Cells
    shares: Annotated[pl.DataFrame | None, SHARES] = None
    at_work: Annotated[pl.DataFrame | None, CELLS] = None

    @property
    def estimated(self) -> bool:
        """Whether nobody recorded the waits."""
        return self.shares is not None

    def shared_out(self, instants: Instants) -> Instants:
        """Instants of `tiles` by who holds the lock: `stack` is the holder's number, null where
        the thread does not wait."""
        if self.shares is None:
            return instants
        lock_ns = pl.col("lock_ns").cast(pl.Int128) * pl.col("ns") // pl.col("work_ns")
        known = instants.join(self.shares, on="cell", how="left").with_columns(
            pl.when(pl.col("cause") == "host").then(lock_ns).fill_null(0).cast(pl.Int64),
            pl.col("order") - pl.col("cell").cast(pl.Int64).fill_null(HOLE),
        )
        held = known.with_columns(
            pl.col("lock_ns").alias("ns"),
            pl.col("stack").alias("cell"),
            pl.col("order") + pl.col("stack"),
        )
        rest = known.with_columns(
            pl.col("ns") - pl.col("lock_ns"),
            pl.lit(None, pl.UInt32).alias("stack"),
            pl.lit(None, pl.UInt32).alias("cell"),
            pl.col("order") + HOLE,
        )
        parts = pl.concat([held, rest]).filter(pl.col("ns") > 0)
        key = [name for name in INSTANTS.names() if name != "ns"]
        return parts.group_by(key).agg(pl.col("ns").sum()).match_to_schema(INSTANTS)

    def held_by(self, events: Events) -> pl.DataFrame:
        """What holders ran while a thread waited for them: `thread_no`, `holder_no`, `stack`,
        `ns`."""
        waits, tiles = self.waits, cells(events) if self.at_work is None else self.at_work
        asked = waits.select("thread_no", "holder_no")
        met = overlaps(asked.hstack(on_axis(waits, events.axis, "holder_no")), tiles)
        ran = met.with_columns(tiles["stack"][met["other"]], ns=pl.col("end") - pl.col("start"))
        key = ["thread_no", "holder_no", "stack"]
        return ran.drop_nulls("stack").group_by(key).agg(pl.col("ns").sum())


def has_gil(trace: Trace) -> bool:
    """Whether the report says who had the GIL."""
    return not trace.gil.is_empty()


def recorded_waits(events: Events) -> LockWaits | None:
    """The waits that the report has; None where nobody recorded the GIL."""
    if not has_gil(events.trace):
        return None
    waits = _waits(events)
    held = waits.select("start", "end", stack="holder_no", cell="holder_no")
    return LockWaits(waits=waits, tiles=with_rest(held))


def _waits(events: Events) -> GilWaits:
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
