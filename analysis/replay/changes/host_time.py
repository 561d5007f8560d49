"""Host time that takes less, or none (spec §14)."""

from dataclasses import replace

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, Cover
from nsysflow.analysis.replay.dependencies.program import Program


def with_less_work(
    program: Program, where: Cover, axis: Axis, *, factor: float, kept_ns: pl.Series | None = None
) -> Program:
    """`program` with the host's time between its calls times `factor` in the intervals `where`.

    Args:
        program: what to change.
        where: on the thread axis.
        axis: of threads.
        factor: 0 for none at all.
        kept_ns: how much of each call's time before it stays in any case.
    """
    calls = program.calls
    inside = _inside(calls, calls["start_ns"] - calls["span_ns"], calls["start_ns"], where, axis)
    less = (inside * (1 - factor)).round().cast(pl.Int64)
    if kept_ns is not None:
        less = (less - kept_ns).clip(lower_bound=0)
    work = (calls["work_ns"] - less).clip(lower_bound=0)
    return replace(program, calls=calls.with_columns(work.alias("work_ns")))


def with_cheaper_calls(program: Program, where: Cover, axis: Axis) -> Program:
    """`program` with what its calls cost in the intervals `where` gone."""
    calls = program.calls
    inside = _inside(calls, calls["end_ns"] - calls["cost_ns"], calls["end_ns"], where, axis)
    return replace(program, calls=calls.with_columns(pl.col("cost_ns") - pl.lit(inside)))


def _inside(
    calls: pl.DataFrame, begin_ns: pl.Series, end_ns: pl.Series, where: Cover, axis: Axis
) -> pl.Series:
    """How much of `[begin_ns, end_ns)` of each call lies in the intervals."""
    laid = pl.DataFrame({"thread_no": calls["thread_no"], "begin": begin_ns, "end": end_ns})
    first = pl.max_horizontal("begin", axis.origin_ns)
    at = laid.select(
        axis.at(pl.col("thread_no"), first).alias("begin"),
        axis.at(pl.col("thread_no"), pl.max_horizontal("end", first)).alias("end"),
    )
    return where.between(at["begin"], at["end"])
