"""Kernel launches that lost their operations in a row (spec §12.3, §12.4)."""

from typing import Final

import polars as pl

from nsysflow.analysis.activity.lost_launches import outside_capture, with_process
from nsysflow.analysis.timeline.events import Events

LEAST_LAUNCHES: Final = 20
"""A stretch has this many launches in a row without an operation. The profiler loses operations by
the buffer, thousands at a time. Single ones are lost in healthy reports too (JAX's copies)."""

_KERNEL_LAUNCH: Final = r"^(?:cuda|cu)(?:Launch|GraphLaunch)"
_NO_KERNEL: Final = r"LaunchHostFunc$"


def launches_in_stretches(events: Events, lost: pl.DataFrame) -> pl.DataFrame | None:
    """All kernel launches by process and start, with `lost`: whether each is in a stretch.

    Args:
        events: of the trace.
        lost: of `lost_launches`.

    Returns:
        None where too few launches lack an operation to make a stretch.
    """
    candidates = _named(lost.filter(kernel_launches()))
    if len(candidates) < LEAST_LAUNCHES:
        return None
    return _in_stretches(_all(events), candidates)


def kernel_launches() -> pl.Expr:
    """Whether a call launches a kernel or a graph."""
    name = pl.col("name").cast(pl.String)
    return name.str.contains(_KERNEL_LAUNCH) & ~name.str.contains(_NO_KERNEL)


def _named(calls: pl.DataFrame) -> pl.DataFrame:
    """The launches by process and correlation id, the outermost call of each; those without an id
    are left out, since nothing can be said of them."""
    order = ["process", "start_ns", pl.col("end_ns").neg(), "correlation"]
    key = ["process", "correlation"]
    return (
        calls.drop_nulls("correlation").sort(order).unique(key, keep="first", maintain_order=True)
    )


def _all(events: Events) -> pl.DataFrame:
    """All kernel launches outside stream capture."""
    names = events.calls.select(pl.col("name").unique()).filter(kernel_launches())
    calls = with_process(events.calls.join(names, on="name", how="semi"), events)
    return _named(outside_capture(calls, events))


def _in_stretches(launches: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """`launches` with `lost`: whether each is one of a stretch of `candidates`."""
    keys = candidates.select("process", "correlation", pl.lit(value=True).alias("alone"))
    marked = launches.join(keys, on=["process", "correlation"], how="left", maintain_order="left")
    alone = pl.col("alone").fill_null(value=False)
    run = pl.struct("process", alone).rle_id()
    return marked.with_columns((alone & (pl.len().over(run) >= LEAST_LAUNCHES)).alias("lost"))
