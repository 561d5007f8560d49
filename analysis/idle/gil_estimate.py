"""Waits for Python's lock (GIL) where nobody recorded them: from CPU time and samples (spec §28.8).

One thread runs Python at a time, and one that waits for the lock sleeps. So a thread waits for
another one no longer than it sleeps, and no longer than others run.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.intervals import Cover, merge, on_axis, overlaps
from nsysflow.analysis.idle.descheduled import (
    launching,
    place_stretches,
    stretches,
    without_waits,
)
from nsysflow.analysis.idle.gil import GIL_WAITS, SHARES, LockWaits, recorded_waits
from nsysflow.analysis.idle.samples import WAITS, Cells, cells, with_rest

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


def lock_waits(events: Events, framework_gap_ns: int) -> LockWaits | None:
    """Who waits for the GIL, as recorded, else by CPU time and samples; None where too little is
    known.

    Args:
        events: the trace.
        framework_gap_ns: as for `place_stretches`.
    """
    return recorded_waits(events) or _estimated_waits(events, framework_gap_ns)


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
