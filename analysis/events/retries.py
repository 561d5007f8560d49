"""Retries of an allocator: the GPU's memory was full, and what was kept was given back (spec §4.6).

PyTorch's allocator asks CUDA for a segment. If there is no memory left, it waits for the GPU, gives
back what it keeps for later, and asks once more. The GPU soon has nothing to do meanwhile.
"""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import ALLOCATES, FREES
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.frames.intervals import Axis, Cover, merge, on_axis, reached_before

RETRIES: Final = pl.Schema(
    {
        "thread_no": pl.UInt32(),
        "call": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "failed": pl.UInt32(),
        "frees": pl.UInt32(),
    }
)
"""A row per retry, by thread and start: its first call in the calls, from when to when it lasts,
how many calls found no memory, and how many gave some back."""
Retries = Annotated[pl.DataFrame, RETRIES]


def memory_calls(calls: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """The calls that take memory of the GPU (`takes`) or give it back, in their order; without
    those inside another one, such as the driver's call in a runtime call."""
    return _with_inner(calls, axis).filter("outermost")


def _with_inner(calls: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """All of these calls, with `outermost`: those inside follow the one that they lie in."""
    takes, gives = (matching(calls["name"], f"^(?:{names})$") for names in (ALLOCATES, FREES))
    rows = calls.with_columns(takes.alias("takes")).filter(
        (takes | gives) & calls["thread_no"].is_not_null()
    )
    end = on_axis(rows, axis, "thread_no")["end"]
    outermost = pl.select(reached_before(pl.lit(end)) < pl.lit(end)).to_series()
    return rows.with_columns(outermost.fill_null(value=True).alias("outermost"))


def find_retries(
    calls: pl.DataFrame, threads: pl.DataFrame, failed: pl.DataFrame, axis: Axis
) -> Retries:
    """The retries of a trace.

    Args:
        calls: all calls, in order.
        threads: the threads.
        failed: `schema.FAILED_CALLS`.
        axis: of threads.
    """
    if failed.is_empty():
        return RETRIES.to_frame()
    rows = _with_inner(calls, axis)
    numbered = failed.join(threads[["thread", "thread_no"]], on="thread")
    # nsys records a call twice if it has a backtrace; the inner one has the value (nsys 2025.3)
    rows = rows.with_columns(_are_among(rows, numbered).alias("failed"))
    within = pl.col("failed").any().over(pl.col("outermost").cum_sum())
    return _runs(rows.with_columns(within & pl.col("takes")).filter("outermost"))


_KEY: Final = ["thread_no", "start_ns", "end_ns", "correlation", "name"]


def _are_among(calls: pl.DataFrame, others: pl.DataFrame) -> pl.Series:
    """Whether each call is one of the others."""
    named = calls.with_columns(pl.col("name").cast(pl.String))
    found = named.join(others, on=_KEY, how="semi", nulls_equal=True)["call"]
    return calls["call"].is_in(found.implode())


def _runs(rows: pl.DataFrame) -> Retries:
    """The retries among memory calls with `failed`. A run of a thread goes up to a call that gets
    memory; a retry is what it has from the first failed call on, if anything is given back."""
    gets = pl.col("takes") & ~pl.col("failed")
    ended = (pl.col("thread_no") != pl.col("thread_no").shift(1)) | gets.shift(1)
    rows = rows.with_columns(gets.alias("gets"), ended.fill_null(value=True).cum_sum().alias("run"))
    tried = rows.filter(pl.col("failed").cum_max().over("run"))
    frees = ~pl.col("takes")
    of_run = tried.group_by("run", maintain_order=True).agg(
        pl.col("thread_no", "call", "start_ns").first(),
        pl.col("end_ns").filter(frees | pl.col("gets")).last(),
        pl.col("failed").sum().cast(pl.UInt32),
        frees.sum().cast(pl.UInt32).alias("frees"),
    )
    return of_run.filter(pl.col("frees") > 0).select(RETRIES.names()).match_to_schema(RETRIES)


def in_retries(rows: pl.DataFrame, retries: Retries, axis: Axis) -> pl.Series:
    """Whether each row begins in a retry of its thread, by `thread_no` and `start_ns`."""
    place = rows.select(axis.at(pl.col("thread_no"), pl.col("start_ns"))).to_series()
    spans = merge(on_axis(retries, axis, "thread_no"))
    begun = spans["start"].search_sorted(place, side="right")
    past = spans["end"].search_sorted(place, side="right")
    return (begun > past) & place.is_not_null()


def idle_in_retries(
    retries: Retries, gaps: pl.DataFrame, threads: pl.DataFrame, users: pl.DataFrame, axis: Axis
) -> pl.DataFrame:
    """How long each GPU of its process idles in each retry: `retry` (its row), `device_no`, `ns`.

    Args:
        retries: the retries.
        gaps: the idle time of GPUs, with `device_no`, `start_ns`, `end_ns`.
        threads: the threads.
        users: which processes use which GPUs.
        axis: of GPUs.
    """
    idle = Cover(merge(on_axis(gaps, axis)))
    processes = threads[["thread_no", "process"]]
    rows = retries.with_row_index("retry").join(processes, on="thread_no").join(users, on="process")
    at = on_axis(rows, axis)
    ns = idle.between(at["start"], at["end"]).alias("ns")
    return rows.with_columns(ns).sort("retry", "device_no").select("retry", "device_no", "ns")
