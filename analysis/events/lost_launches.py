"""Launches without an operation: lost, or queued when the recording ended (spec §12)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import KERNEL_LAUNCH
from nsysflow.analysis.events.events import Calls, Events
from nsysflow.analysis.events.graphs import capture_began
from nsysflow.analysis.frames.columns import repeated

LOST_LAUNCHES: Final = pl.Schema(
    {
        "call": pl.UInt32(),
        "process": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "correlation": pl.Int64(),
        "name": pl.Categorical(),
    }
)
"""A row per launch of a kernel or graph without an operation, by process and start."""
LostLaunches = Annotated[pl.DataFrame, LOST_LAUNCHES]

MARKED_LAUNCHES: Final = pl.Schema({**LOST_LAUNCHES, "alone": pl.Boolean(), "lost": pl.Boolean()})
"""A row per kernel launch. `alone` is true of one without an operation (else null), `lost` where
many such launches come in a row."""


def lost_launches(events: Events) -> LostLaunches:
    """The launches of kernels and graphs without an operation, by process and start.

    Launches during a stream capture are recorded instead of run, and are left out; any thread of
    the process may capture. Copies and memsets without an operation are no loss: one of 0 bytes
    has none.
    """
    ops = events.ops
    led = repeated(value=False, length=len(events.calls))
    led = led.scatter(ops["call"].drop_nulls(), True)
    calls = _kernel_launches(events, events.calls.filter(~led))
    key = ["process", "correlation"]
    # few calls are left: to look each operation up among them is quicker than the reverse
    led_otherwise = ops.select(key).join(calls.select(key).unique(), on=key, how="semi")
    return calls.join(led_otherwise, on=key, how="anti", maintain_order="left")


def _with_process(calls: Calls, events: Events) -> LostLaunches:
    """Some of the calls, with their process and in the columns of lost launches."""
    process = events.threads["process"][calls["thread_no"]]
    return calls.select(
        "call", process.alias("process"), "start_ns", "end_ns", "correlation", "name"
    )


def _outside_capture(calls: LostLaunches, events: Events) -> LostLaunches:
    """Those of `calls` (with `process`) before which no stream capture of their process began that
    has not ended."""
    if calls.is_empty():
        return calls
    return calls.filter(capture_began(calls, events).is_null()).sort("start_ns", "call")


LEAST_LAUNCHES: Final = 20
"""A stretch has this many launches in a row without an operation. The profiler loses operations by
the buffer, thousands at a time. Single ones are lost in healthy reports too (JAX's copies)."""

_KERNEL_LAUNCH: Final = f"^{KERNEL_LAUNCH}"
_NO_KERNEL: Final = r"LaunchHostFunc$"


def launches_in_stretches(
    events: Events, lost: LostLaunches
) -> Annotated[pl.DataFrame | None, MARKED_LAUNCHES]:
    """All kernel launches by process and start; those in a stretch without operations are lost.

    Args:
        events: of the trace.
        lost: of `lost_launches`.

    Returns:
        None where too few launches lack an operation to make a stretch.
    """
    if len(lost) < LEAST_LAUNCHES:
        return None
    return _in_stretches(_kernel_launches(events, events.calls), lost)


def kernel_launches() -> pl.Expr:
    """Whether a call launches a kernel or a graph."""
    name = pl.col("name").cast(pl.String)
    return name.str.contains(_KERNEL_LAUNCH) & ~name.str.contains(_NO_KERNEL)


def _with_id(calls: LostLaunches) -> LostLaunches:
    """The launches by process and correlation id, the outermost call of each; those without an id
    are left out, since nothing can be said of them."""
    order = ["process", "start_ns", pl.col("end_ns").neg(), "correlation"]
    key = ["process", "correlation"]
    return (
        calls.drop_nulls("correlation").sort(order).unique(key, keep="first", maintain_order=True)
    )


def _kernel_launches(events: Events, calls: Calls) -> LostLaunches:
    """Those of the calls that launch kernels or graphs, outside stream capture."""
    names = calls.select(pl.col("name").unique()).filter(kernel_launches())
    launches = _with_process(calls.join(names, on="name", how="semi"), events)
    return _with_id(_outside_capture(launches, events))


def _in_stretches(launches: LostLaunches, candidates: LostLaunches) -> pl.DataFrame:
    """`launches` with `lost`: whether each is one of a stretch of `candidates`."""
    keys = candidates.select("process", "correlation", pl.lit(value=True).alias("alone"))
    marked = launches.join(keys, on=["process", "correlation"], how="left", maintain_order="left")
    alone = pl.col("alone").fill_null(value=False)
    run = pl.struct("process", alone).rle_id()
    return marked.with_columns((alone & (pl.len().over(run) >= LEAST_LAUNCHES)).alias("lost"))


MOST_QUEUED: Final = 1024
"""Launches that the queue of a stream holds: blocked ones returned with 1,017 to 1,021 before them
not done, on H100s, 2026-11-26. The next one returns when the first of them is done."""


def are_queued(calls: pl.DataFrame, events: Events, lost: LostLaunches) -> pl.Series:
    """Whether each call waited for the GPU when the recording ended: it follows the last launch of
    a kernel of its process that ran, and no more launches do than the process's streams can hold.

    Args:
        calls: with `process` and `start_ns`.
        events: of the trace.
        lost: of `lost_launches`.
    """
    kernels = events.ops.filter(pl.col("kind").is_in(["kernel", "graph"]))
    ran = kernels.group_by("process").agg(pl.col("launch_start_ns").max().alias("since_ns"))
    streams = kernels.select("process", "device_no", "stream").unique()["process"].value_counts()
    waiting = lost.join(ran, on="process")
    waiting = waiting.filter(pl.col("start_ns") > pl.col("since_ns"))["process"].value_counts()
    some = ran.join(streams, on="process").join(waiting, on="process", how="left", suffix="_lost")
    fits = pl.col("count_lost").fill_null(0) <= MOST_QUEUED * pl.col("count")
    queued = some.filter(fits).select("process", "since_ns")
    since = calls.select("process").join(queued, on="process", how="left", maintain_order="left")
    return (calls["start_ns"] > since["since_ns"]).fill_null(value=False)
