"""What a process launched, in order: where repeating steps are looked for (spec §8.24)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.classes import GRAPH_LAUNCH
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.columns import matching, repeated
from nsysflow.analysis.frames.intervals import last_at_or_before
from nsysflow.analysis.schema import GRID

OPTIMIZER: Final = (
    r"(?i)multi_tensor_apply|adam|addcdiv|adagrad|rmsprop"
    r"|(?:^|[^a-z])(?:sgd|lamb|lion|muon)(?:[^a-z]|$)"
)
"""Kernels that update a model: once in each step of a training."""

SOLVER: Final = (
    r"(?i)gesvd|svd_|offa_stage|sytr[df]|hetr[df]|syev|heev|stedc|laed|steqr|geqr|gebrd|larf"
    r"|potr[fs]|getr[fs]|laswp|tr(?:sm|sv)(?:[^a-z]|$)"
)
"""Kernels of a solver (LAPACK's names): one call of it repeats them many times."""

EXCHANGE: Final = r"HtoD|DtoH"
"""Copies between host and GPU: a step has its input, or its result, and a layer has neither."""

LAUNCHED: Final = pl.Schema(
    {
        "name": pl.UInt64(),
        "exact": pl.UInt64(),
        "begun_ns": pl.Int64(),
        "done_ns": pl.Int64(),
        "thread_no": pl.UInt32(),
        "gpu_ns": pl.Int64(),
        "computes": pl.Boolean(),
        "solver": pl.Boolean(),
        "graph": pl.Boolean(),
        "optimizer": pl.Boolean(),
        "exchange": pl.Boolean(),
        "backward": pl.Boolean(),
    }
)
"""A row per launch of a process on its largest device, in order. `name` is what it launched, as a
number, `exact` this with the grid; `gpu_ns` the time of all that it launched."""
Launched = Annotated[pl.DataFrame, LAUNCHED]


def launches_in_order(events: Events, process: int) -> Launched:
    """What a process launched on the device with most of its operations."""
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("gpu_ns")
    columns = ("call", "device_no", "first", "kind", "name", "detail", "thread_no")
    ops = events.ops.lazy().filter(pl.col("process") == process, pl.col("call").is_not_null())
    rows = ops.select(*columns, "launch_start_ns", "launch_end_ns", length).collect()
    devices = rows.group_by("device_no").len().sort("len", "device_no", descending=[True, False])
    further = rows.filter(~pl.col("first")).group_by("call").agg(further_ns=pl.col("gpu_ns").sum())
    rows = rows.filter("first")
    if len(devices) > 1:
        rows = rows.join(devices.head(1), on="device_no", how="semi", maintain_order="left")
    if not further.is_empty():
        further_ns = pl.col("further_ns").fill_null(0)
        rows = rows.join(further, on="call", how="left", maintain_order="left")
        rows = rows.with_columns(pl.col("gpu_ns") + further_ns)
    if not rows["launch_start_ns"].is_sorted():
        rows = rows.sort("launch_start_ns", maintain_order=True)
    kernel, name = rows["kind"] == "kernel", rows["name"]
    graph = matching(events.calls["name"][rows["call"]], GRAPH_LAUNCH)
    code = name.to_physical().cast(pl.UInt64) * 2 + graph.cast(pl.UInt64)
    grids = events.trace.shapes.select(GRID)
    grids = grids[rows["detail"].set(~kernel, None)]
    launched = rows.select(
        code.alias("name"),
        pl.select(code.alias("name"), *grids).hash_rows().alias("exact"),
        pl.col("launch_start_ns").alias("begun_ns"),
        pl.col("launch_end_ns").alias("done_ns"),
        "thread_no",
        "gpu_ns",
        ~pl.col("kind").is_in(["memcpy", "memset"]).alias("computes"),
        (kernel & matching(name, SOLVER)).alias("solver"),
        graph.alias("graph"),
        (kernel & matching(name, OPTIMIZER)).alias("optimizer"),
        ((rows["kind"] == "memcpy") & matching(name, EXCHANGE)).alias("exchange"),
        events.threads["autograd"][rows["thread_no"]].alias("backward"),
    )
    return _with_syncs(launched, events, process)


def _with_syncs(launched: pl.DataFrame, events: Events, process: int) -> Launched:
    """An exchange is, too, what was launched last when the host began to wait for the GPU."""
    threads = events.threads.filter(pl.col("process") == process)["thread_no"]
    waits = events.calls.filter(
        pl.col("class") == "sync", pl.col("thread_no").is_in(threads.implode())
    )
    at = last_at_or_before(launched["begun_ns"], waits["start_ns"]).drop_nulls().unique()
    waited = repeated(value=False, length=len(launched)).scatter(at, True)
    exchange = launched["exchange"] | waited
    return launched.with_columns(exchange.alias("exchange")).match_to_schema(LAUNCHED)
