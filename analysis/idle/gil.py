"""Who waits for Python's lock (GIL) while another thread holds it (spec §28).

Where nobody recorded that, CPU time and samples give an estimate (spec §28.8): one thread runs
Python at a time, and one that waits for the lock sleeps. So a thread waits for another one no
longer than it sleeps, and no longer than others run.
"""

from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.intervals import Cover, flatten, inside, merge, on_axis, overlaps
from nsysflow.analysis.idle.descheduled import (
    launching,
    place_stretches,
    stretches,
    without_waits,
)
from nsysflow.analysis.idle.samples import (
    CELLS,
    HOLE,
    INSTANTS,
    WAITS,
    Cells,
    Instants,
    cells,
    with_rest,
)
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


def lock_waits(events: Events, framework_gap_ns: int) -> LockWaits | None:
    """Who waits for the GIL, as recorded, else by CPU time and samples; None where too little is
    known.

    Args:
        events: the trace.
        framework_gap_ns: as for `place_stretches`.
    """
    return _recorded_waits(events) or _estimated_waits(events, framework_gap_ns)


def _recorded_waits(events: Events) -> LockWaits | None:
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


WAITING_FILES: Final = (
    r"(?:^|/)lib(?:64)?/python3[^/]*/(?:threading|queue|selectors|subprocess|socket|ssl"
    r"|concurrent/futures/[^/]+|multiprocessing/(?:connection|queues|synchronize))\.py$"
)
"""Files of Python's standard library in which a thread sleeps until another thread, a process, or
the network is ready."""

_LIBRARIES: Final = r"(?:^|/)(?:site|dist)-packages/"
_ENGINE: Final = r"^_engine_run_backward$"
_ENGINE_BEFORE: Final = r"^(?:backward|grad)$"
_ENGINE_FILE_BEFORE: Final = r"(?:^|/)torch/autograd/__init__\.py$"
"""Where a thread waits for autograd's engine: up to PyTorch 2.2 in the function that is called."""

_THREADING: Final = r"(?:^|/)lib(?:64)?/python3[^/]*/threading\.py$"
_OWN_READER: Final = r"(?:^|/)nsysflow/runtime/"
"""The threads of the recording itself begin there. They call drivers, which give the lock away:
one that reads a GPU's counters seemed to hold it for 4 % of the time."""

TOGETHER_NS: Final = 1_000_000_000
"""The kernel counts what runs at its ticks, up to 10 ms apart, so that between two readings a
thread seems to sleep by that much more or less. In stretches of 10 ms, a thread that waited for
27.6 % of the time did so for 23.6 %, and one that waited for 2.4 % for 5.8 %; of a second each,
27.7 and 2.4 % (ticks of 4 ms, 2-core VM, 2026-11-28)."""


def _estimated_waits(events: Events, framework_gap_ns: int) -> LockWaits | None:
    trace = events.trace
    if trace.samples.is_empty() or not trace.running.is_empty():
        return None
    mine, others = _read_threads(events)
    if mine.is_empty() or others.is_empty():
        return None
    at_work = _at_work(events)
    sampled = merge(at_work.filter(pl.col("stack").is_not_null())[["start", "end"]])
    rows = _with_work(events, mine, sampled, framework_gap_ns)
    shares = _shares(rows, _ran_meanwhile(events, rows, others))
    rows = rows.join(shares, on="cell", maintain_order="left")
    if rows.is_empty():
        return None
    asked = rows.select("start", "end", "cell", stack="holder_no")
    return LockWaits(
        waits=rows.filter(pl.col("lock_ns") > 0).select(GIL_WAITS.names()),
        tiles=with_rest(overlaps(asked, sampled).drop("other")),
        shares=shares.select(SHARES.names()),
        at_work=at_work,
    )


def _read_threads(events: Events) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The stretches of threads that launch, and of others but the recording's own: the parts in
    the trace, with `row` (of `stretches`), `thread_no`, `process_no`, and `ran_ns`, `counted_ns`,
    `length_ns` of all of the stretch."""
    length = pl.col("end_ns").cast(pl.Int128) - pl.col("start_ns")
    inside = pl.col("start_ns", "end_ns").clip(events.axis.origin_ns, events.last_ns)
    known = stretches(events.trace).drop("waited_ns").with_row_index("row")
    known = known.with_columns(length.alias("length_ns")).with_columns(inside)
    known = known.filter(pl.col("end_ns") > pl.col("start_ns"))
    known = known.join(events.threads[["thread", "thread_no", "process_no"]], on="thread")
    launches = known["thread_no"].is_in(launching(events).implode())
    reads = known["thread"].is_in(_own_readers(events).implode())
    return known.filter(launches), known.filter(~launches & ~reads)


def _own_readers(events: Events) -> pl.Series:
    """The threads of the recording itself, as far as they were sampled."""
    file = pl.col("file").cast(pl.String).fill_null("")
    frames = events.trace.frames.filter(~file.str.contains(_THREADING)).sort("stack", "depth")
    outermost = frames.unique("stack", keep="last", maintain_order=True)
    stacks = outermost.filter(file.str.contains(_OWN_READER))["stack"]
    samples = events.trace.samples
    return samples.filter(pl.col("stack").is_in(stacks.implode()))["thread"].unique()


def _ran_meanwhile(events: Events, rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """How long other threads ran in stretches that they overlap: `cell`, `holder_no`, `ns`.

    Args:
        events: the trace.
        rows: of `_with_work`.
        others: the stretches of threads that do not launch.
    """
    threads = others.select("process_no", holder_no="thread_no").unique()
    pairs = rows.drop("start", "end").join(threads, on="process_no")
    places = on_axis(others, events.axis, "thread_no").hstack(others[["ran_ns", "length_ns"]])
    places = places.sort("start")
    asked = pairs[["cell", "holder_no"]].hstack(on_axis(pairs, events.axis, "holder_no"))
    met = overlaps(asked, places[["start", "end"]])
    ran_ns, length_ns = (places[name][met["other"]] for name in ("ran_ns", "length_ns"))
    share = ran_ns.cast(pl.Int128) * (pl.col("end") - pl.col("start")) // length_ns
    return (
        met.with_columns(share.cast(pl.Int64).alias("ns"))
        .group_by("cell", "holder_no")
        .agg(pl.col("ns").sum())
    )


def _at_work(events: Events) -> Cells:
    """What each thread was running when, without the stacks in which it waits."""
    file, function = (pl.col(name).cast(pl.String).fill_null("") for name in ("file", "function"))
    waits = (
        file.str.contains(WAITING_FILES)
        | (file.str.contains(_LIBRARIES) & function.str.contains(WAITS))
        | function.str.contains(_ENGINE)
        | (file.str.contains(_ENGINE_FILE_BEFORE) & function.str.contains(_ENGINE_BEFORE))
    )
    waiting = events.trace.frames.filter(pl.col("depth") == 0, waits)["stack"].unique()
    at_work = ~pl.col("stack").is_in(waiting.implode())
    return cells(events).with_columns(pl.when(at_work).then("stack").alias("stack"))


def _with_work(
    events: Events, mine: pl.DataFrame, sampled: pl.DataFrame, framework_gap_ns: int
) -> pl.DataFrame:
    """The stretches with time in which a thread may wait for the lock, in order: `start`, `end` on
    the axis of threads, `waited_ns` (for a CPU), `sampled_ns`, `work_ns`, and `cell`: those of one
    second are taken together.

    Args:
        events: the trace.
        mine: the stretches of threads that launch.
        sampled: when threads were sampled at work.
        framework_gap_ns: as for `place_stretches`.
    """
    placed = place_stretches(events, framework_gap_ns)
    rows = mine.join(placed[["row", "waited_ns"]], on="row")
    rows = rows.hstack(on_axis(rows, events.axis, "thread_no")).sort("start")
    start, end = rows["start"], rows["end"]
    closed = without_waits(events, framework_gap_ns)
    either = Cover(merge(pl.concat([sampled, closed.intervals[["start", "end"]]])))
    work_ns = either.between(start, end) - closed.between(start, end)
    second = (pl.col("start_ns") - events.axis.origin_ns) // TOGETHER_NS
    return (
        rows.with_columns(
            work_ns.alias("work_ns"), Cover(sampled).between(start, end).alias("sampled_ns")
        )
        .filter(pl.col("work_ns") > 0)
        .with_columns(pl.struct("thread_no", second).rle_id().alias("cell"))
    )


def _shares(rows: pl.DataFrame, ran: pl.DataFrame) -> pl.DataFrame:
    """`SHARES` of the cells in which another thread was read, with `holder_no`, the one that ran
    most.

    Args:
        rows: of `_with_work`.
        ran: of `_ran_meanwhile`.
    """
    counted = pl.col("counted_ns").cast(pl.Int128).sum()
    sums = rows.group_by("cell").agg(counted, pl.col("waited_ns", "sampled_ns", "work_ns").sum())
    others = ran.group_by("cell").agg(
        pl.col("ns").sum().alias("others_ns"),
        pl.col("holder_no").sort_by(-pl.col("ns"), "holder_no").first(),
    )
    slept_ns = pl.col("sampled_ns") - pl.col("counted_ns") - pl.col("waited_ns")
    free_ns = pl.col("work_ns") - pl.col("waited_ns")
    lock_ns = pl.min_horizontal(slept_ns, "others_ns", free_ns).clip(lower_bound=0)
    both = sums.join(others, on="cell")
    return both.select("cell", "work_ns", "holder_no", lock_ns=lock_ns.cast(pl.Int64))
