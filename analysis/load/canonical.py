"""From an nsys export's raw tables to the canonical frames of a `Trace`.

Times are nanoseconds since the session started, as nsys writes them.
"""

from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.keys import os_pid, process_of
from nsysflow.analysis.load.labels import direction, memory_kind, nvtx_event_types
from nsysflow.analysis.load.marks import captures, declared
from nsysflow.analysis.load.messages import messages
from nsysflow.analysis.load.notes import notes_on
from nsysflow.analysis.load.raw import API_SUFFIX, Raw
from nsysflow.analysis.load.sampled import gpu_samples, stacks
from nsysflow.analysis.trace import Trace
from nsysflow.handshake import KEY

_VALUE: Final = pl.col("value")
_NAMELESS: Final = "(nameless)"

_LONGEST_TABLE: Final = 1 << 22
"""nsys numbers its strings from 0; a table by number is for exports that do, not for all of u32."""


def correlation() -> pl.Expr:
    """The correlation id; null where the export has 0, which joins with nothing."""
    found = pl.col("correlationId")
    return pl.when(found != 0).then(found).alias("correlation")


def plain_api_name() -> pl.Expr:
    """A string without the version suffixes of an API name."""
    return pl.col("value").str.replace(API_SUFFIX.pattern, "")


def trace_of(raw: Raw, report: str) -> Trace:
    """The canonical frames of an export, named `report`."""
    process = _only_process(raw)
    backtraces, frames = stacks(raw)
    marks = _marks_of_ours(raw, process)
    ops = _with_physical_gpu(_ops(raw, process), raw.cuda_devices)
    calls = _calls(raw, process)
    return Trace(
        report=report,
        ops=ops,
        shapes=_shapes(raw.kernels),
        copy_details=_copy_details(raw),
        calls=calls,
        ranges=_ranges(raw, process),
        overhead=_overhead(raw, process),
        threads=_threads(raw),
        devices=_devices(raw.gpus, ops),
        diagnostics=raw.diagnostics,
        backtraces=backtraces,
        frames=frames,
        gpu_samples=gpu_samples(raw),
        captures=captures(marks),
        flops=declared(marks),
        messages=messages(raw),
        source=source_of(raw.export_info),
        notes=(*notes_on(raw), *_nameless(calls)),
    )


def _only_process(raw: Raw) -> int | None:
    """The report's process where it has just one: that of rows which do not name theirs."""
    threads = [raw.calls["globalTid"], raw.nvtx["globalTid"]]
    ops = [raw.kernels, raw.memcpys, raw.memsets, raw.graphs]
    processes = [frame["globalPid"] for frame in ops]
    if not any(column.null_count() for column in (*threads, *processes)):
        return None
    of = process_of(pl.col("globalTid"))
    masked = [column.to_frame().select(of).to_series() for column in threads]
    found = pl.concat([c.unique().drop_nulls() for c in (*masked, *processes)]).unique()
    return int(found[0]) if len(found) == 1 else None


def _strings(raw: Raw, ids: pl.Series, value: pl.Expr = _VALUE) -> pl.Series:
    """The strings of `ids`, as categories.

    They are looked up by position in a table as long as the largest id: 2.4 M rows take 4 ms, a
    join takes 20 ms and copies every column beside it.
    """
    used = raw.strings.join(ids.unique().to_frame("id"), on="id", how="semi")
    used = used.select("id", value.cast(pl.Categorical).alias("value"))
    longest = (ids.to_frame("id").select(pl.max("id")).item() or 0) + 1
    if longest > _LONGEST_TABLE:
        return ids.replace_strict(
            used["id"], used["value"], default=None, return_dtype=pl.Categorical
        )
    table = pl.select(pl.int_range(longest, dtype=pl.UInt32).alias("id"))
    return table.join(used, on="id", how="left", maintain_order="left")["value"].gather(ids)


def _as_ops(
    frame: pl.DataFrame, kind: str, name: pl.Expr, short_name: pl.Expr, process: int | None
) -> pl.DataFrame:
    """One kind of operation as `schema.OPS`, on the device that its process saw."""
    detailed = kind in ("kernel", "memcpy")
    detail = pl.int_range(pl.len(), dtype=pl.UInt32) if detailed else pl.lit(None, pl.UInt32)
    node = pl.col("graphNodeId") if "graphNodeId" in frame.columns else pl.lit(None, pl.Int64)
    return frame.select(
        pl.lit(kind, schema.OP_KIND).alias("kind"),
        pl.col("start").alias("start_ns"),
        pl.col("end").alias("end_ns"),
        pl.col("deviceId").alias("device"),
        pl.col("globalPid").fill_null(pl.lit(process, pl.Int64)).alias("process"),
        pl.col("streamId").alias("stream"),
        correlation(),
        node.alias("graph_node"),
        name.cast(pl.Categorical).alias("name"),
        short_name.cast(pl.Categorical).alias("short_name"),
        detail.alias("detail"),
    )


def _ops(raw: Raw, process: int | None) -> pl.DataFrame:
    full = _strings(raw, raw.kernels["demangledName"])
    short = _strings(raw, raw.kernels["shortName"])
    nameless = pl.lit(_NAMELESS, pl.Categorical)
    kernel = pl.coalesce(pl.lit(full), pl.lit(short), nameless)
    short_kernel = pl.coalesce(pl.lit(short), pl.lit(full), nameless)
    copy = pl.format("memcpy {}", direction("copyKind", raw.copy_kinds))
    memset, graph = pl.lit("memset"), pl.lit("graph")
    return pl.concat(
        [
            _as_ops(raw.kernels, "kernel", kernel, short_kernel, process),
            _as_ops(raw.memcpys, "memcpy", copy, copy, process),
            _as_ops(raw.memsets, "memset", memset, memset, process),
            _as_ops(raw.graphs, "graph", graph, graph, process),
        ],
    )


def _with_physical_gpu(ops: pl.DataFrame, cuda_devices: pl.DataFrame) -> pl.DataFrame:
    """`device` as the physical GPU: two processes may each call another one "device 0"."""
    found = cuda_devices.drop_nulls().unique(["pid", "cudaId"], keep="first", maintain_order=True)
    pid = os_pid(pl.col("process"))
    gpus = (
        ops.select("process", "device")
        .unique()
        .with_columns(pid=pid)
        .join(found, left_on=["pid", "device"], right_on=["pid", "cudaId"])
        .filter(pl.col("gpuId") != pl.col("device"))
        .select("process", "device", "gpuId")
    )
    if gpus.is_empty():
        return ops
    gpu = pl.coalesce("gpuId", "device").alias("device")
    joined = ops.join(gpus, on=["process", "device"], how="left", maintain_order="left")
    return joined.with_columns(gpu).drop("gpuId")


def _shapes(kernels: pl.DataFrame) -> pl.DataFrame:
    shared = pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory")
    return kernels.select(
        pl.col("gridX").alias("grid_x"),
        pl.col("gridY").alias("grid_y"),
        pl.col("gridZ").alias("grid_z"),
        pl.col("blockX").alias("block_x"),
        pl.col("blockY").alias("block_y"),
        pl.col("blockZ").alias("block_z"),
        pl.col("registersPerThread").alias("registers"),
        shared.alias("shared_bytes"),
    )


def _copy_details(raw: Raw) -> pl.DataFrame:
    return raw.memcpys.select(
        "bytes",
        direction("copyKind", raw.copy_kinds).alias("direction"),
        memory_kind("srcKind", raw.memory_kinds).alias("source_memory"),
        memory_kind("dstKind", raw.memory_kinds).alias("target_memory"),
    )


def _on_threads(frame: pl.DataFrame, process: int | None) -> pl.DataFrame:
    """`frame` with `thread` and `process` keys and our names for the times."""
    return frame.with_columns(
        process_of(pl.col("globalTid")).fill_null(pl.lit(process, pl.Int64)).alias("process"),
    ).rename({"start": "start_ns", "end": "end_ns", "globalTid": "thread"})


def _calls(raw: Raw, process: int | None) -> pl.DataFrame:
    name = _strings(raw, raw.calls["nameId"], plain_api_name())
    named = raw.calls.with_columns(correlation(), name.fill_null(_NAMELESS).alias("name"))
    return _on_threads(named, process).select(schema.CALLS.names())


def _nameless(calls: pl.DataFrame) -> list[str]:
    count = int((calls["name"] == _NAMELESS).sum())
    if not count:
        return []
    return [
        f"{count} of {len(calls)} CUDA calls have no name in StringIds: what they did is unknown,"
        " and they count as other CUDA calls"
    ]


def _overhead(raw: Raw, process: int | None) -> pl.DataFrame:
    name = _strings(raw, raw.overhead["nameId"]).fill_null(_NAMELESS).alias("name")
    return _on_threads(raw.overhead.with_columns(name), process).select(schema.OVERHEAD.names())


def _ranges(raw: Raw, process: int | None) -> pl.DataFrame:
    types = nvtx_event_types(raw.event_types)
    kinds = {types["NvtxPushPopRange"]: "push_pop", types["NvtxStartEndRange"]: "start_end"}
    events = _on_threads(raw.nvtx, process)
    wanted = pl.col("eventType").is_in([*kinds, types["NvtxDomainCreate"]])
    events = events.filter(wanted)
    registered = _strings(raw, events["textId"]).cast(pl.String)
    events = events.with_columns(
        pl.coalesce(pl.col("text"), pl.lit(registered)).alias("name"),
        pl.col("domainId").fill_null(0),
    )
    domains = (
        events.filter(pl.col("eventType") == types["NvtxDomainCreate"])
        .unique(["process", "domainId"], keep="first", maintain_order=True)
        .select("process", "domainId", pl.col("name").alias("domain"))
    )
    kind = pl.col("eventType").replace_strict(kinds, return_dtype=schema.RANGE_KIND)
    return (
        events.filter(pl.col("eventType").is_in([*kinds]))
        .with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"))
        .join(domains, on=["process", "domainId"], how="left", maintain_order="left")
        .with_columns(kind.alias("kind"), pl.col("name").fill_null(""))
        .select(schema.RANGES.names())
    )


def _marks_of_ours(raw: Raw, process: int | None) -> list[tuple[int | None, str]]:
    """What the steps' own window says of itself: processes and texts of marks with our key."""
    mark = nvtx_event_types(raw.event_types)["NvtxMark"]
    marks = _on_threads(raw.nvtx.filter(pl.col("eventType") == mark), process)
    registered = _strings(raw, marks["textId"]).cast(pl.String)
    texts = marks.select("process", pl.coalesce(pl.col("text"), pl.lit(registered)).alias("text"))
    ours = pl.col("text").str.contains(KEY, literal=True)
    return texts.filter(ours).rows()


def _threads(raw: Raw) -> pl.DataFrame:
    """One name a thread: PyTorch's own before what it inherited, else that of highest priority."""
    named = raw.threads.select(
        process_of(pl.col("globalTid")).alias("process"),
        pl.col("globalTid").alias("thread"),
        _strings(raw, raw.threads["nameId"]).cast(pl.String).alias("name"),
        "priority",
    )
    return (
        named.drop_nulls(["thread", "name"])
        .sort(pl.col("name").str.starts_with("pt_"), "priority", descending=True)
        .unique("thread", keep="first", maintain_order=True)
        .sort("thread")
        .drop("priority")
    )


def _devices(gpus: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """The GPUs that the report describes, and those that only its operations name."""
    described = gpus.drop_nulls("id").unique("id", keep="first", maintain_order=True)
    used = ops.select(pl.col("device").unique()).drop_nulls()
    return (
        described.select(
            pl.col("id").alias("device"),
            "name",
            "uuid",
            pl.col("smCount").alias("sm_count"),
            pl.col("memoryBandwidth").alias("memory_bytes_per_s"),
        )
        .join(used, on="device", how="full", coalesce=True)
        .sort("device")
    )


def source_of(export_info: pl.DataFrame) -> str:
    """What wrote the export, e.g. `Nsight Systems 2025.3.2.0, schema 3.20.3`."""
    found = dict(export_info.select("name", "value").iter_rows())
    version = found.get("EXPORT_PRODUCT_VERSION") or "of unknown version"
    exported = found.get("EXPORT_SCHEMA_VERSION") or "unknown"
    return f"Nsight Systems {version}, schema {exported}"
