"""From the tables of an nsys export to a `Trace`.

Times are nanoseconds since the session started, as nsys writes them.
"""

from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.frames.columns import distinct, greatest, repeated, scatter_table
from nsysflow.analysis.frames.scratch import Scratch, in_files
from nsysflow.analysis.load.allocator import allocator_rows
from nsysflow.analysis.load.export_tables import (
    Raw,
)
from nsysflow.analysis.load.kernel_names import GENERIC, MANGLED, VERSION, short_kernel_name
from nsysflow.analysis.load.labels import (
    direction,
    memory_change,
    memory_kind,
    nvtx_event_types,
)
from nsysflow.analysis.load.marks import (
    began_ns,
    capture_rows,
    first_of_each,
    flops_rows,
    graph_range_rows,
    loader_times,
    with_auto_domain,
)
from nsysflow.analysis.load.messages import messages
from nsysflow.analysis.load.notes import nameless_calls, notes_on
from nsysflow.analysis.load.observations import (
    gave_up_of_mark,
    given_up,
    last_observations,
    observation_notes,
)
from nsysflow.analysis.load.readings import gpu_states, gpu_traffic, process_cpu, thread_cpu
from nsysflow.analysis.load.sampled import (
    GIL_DOMAIN,
    gpu_samples,
    recorded_stacks,
    sampled_clocks,
)
from nsysflow.analysis.schema import os_pid, process_of
from nsysflow.analysis.trace import Note, Trace
from nsysflow.base.names import NAMELESS
from nsysflow.runtime.protocol import KEY

_VALUE: Final = pl.col("value")

_NO_STREAM: Final = 0xFFFF_FFFF
"""CUPTI's stream number for a wait that names no stream."""

_LONGEST_TABLE: Final = 1 << 22
"""Strings are looked up by position up to this id. nsys numbers them from 0, so real ids are far
below; a damaged one may ask for 2^32 rows."""


def correlation() -> pl.Expr:
    """The correlation id; null where the export has 0, which means none."""
    number = pl.col("correlationId")
    return pl.when(number != 0).then(number).alias("correlation")


def plain_api_name() -> pl.Expr:
    """The name of an API call without its version."""
    return pl.col("value").str.replace(VERSION.pattern, "")


def short_name() -> pl.Expr:
    """The short name of a kernel by its full name."""
    return pl.col("value").map_elements(short_kernel_name, pl.String)


def trace_of(raw: Raw, report: str, scratch: Scratch | None = None) -> Trace:
    """The canonical frames of an export, named `report`; the largest are kept in `scratch`."""
    process = _only_process(raw)
    ranges = _ranges(raw, process)
    of_gil = (pl.col("domain") == GIL_DOMAIN).fill_null(value=False)
    gil = _gil(ranges.filter(of_gil))
    marks = _marks_of_ours(raw, process)
    cpu = thread_cpu(marks.rows())
    stacks = recorded_stacks(raw, pl.concat([gil["thread"], cpu["thread"]]))
    following = stacks.frames["stack"].n_unique()
    allocator = allocator_rows(raw.histories, began_ns(marks.rows()), following)
    captures = first_of_each(marks[["process", "text"]].rows())
    ops = in_files(_with_physical_gpu(_ops(raw, process), raw.cuda_devices), scratch)
    calls = _calls(raw, raw.calls, process)
    return Trace(
        report=report,
        ops=ops,
        shapes=_shapes(raw.kernels),
        copy_details=_copy_details(raw),
        calls=calls,
        failed_calls=_calls(raw, raw.failed_calls, process).cast({"name": pl.String}),
        ranges=ranges.filter(~of_gil),
        gil=gil,
        overhead=_overhead(raw, process),
        event_records=_on_streams(raw, raw.event_records, process),
        waits=_on_streams(raw, _with_device_of_context(raw, process), process),
        graph_nodes=_graph_nodes(raw, process),
        graph_ranges=graph_range_rows(marks.rows()),
        threads=_threads(raw),
        devices=_devices(raw.gpus, ops),
        diagnostics=raw.diagnostics,
        backtraces=stacks.backtraces,
        samples=stacks.samples,
        frames=pl.concat([stacks.frames, allocator.frames]),
        gpu_samples=gpu_samples(raw),
        gpu_states=_gpu_states(raw, marks),
        gpu_traffic=_with_physical_gpu(gpu_traffic(marks.rows()), raw.cuda_devices).drop("process"),
        thread_cpu=cpu,
        process_cpu=process_cpu(marks.rows()),
        loader_times=loader_times(marks.rows()),
        memory=pl.concat(
            [_memory(raw, process), _with_physical_gpu(allocator.memory, raw.cuda_devices)]
        ),
        out_of_memory=_with_physical_gpu(allocator.out_of_memory, raw.cuda_devices),
        gpu_memory=_with_physical_gpu(allocator.gpu_memory, raw.cuda_devices),
        captures=capture_rows(captures),
        flops=flops_rows(captures),
        messages=messages(raw),
        source=source_of(raw.export_info),
        notes=(
            *notes_on(raw),
            *_nameless(calls),
            *allocator.notes,
            *given_up(map(gave_up_of_mark, marks["text"])),
            *observation_notes(last_observations(marks["process", "text"].rows())),
        ),
    )


def _only_process(raw: Raw) -> int | None:
    """The report's process if it has only one and some rows lack theirs; else None."""
    threads = [raw.calls["globalTid"], raw.nvtx["globalTid"]]
    processes = [frame["globalPid"] for frame in raw.ops]
    if not any(column.null_count() for column in (*threads, *processes)):
        return None
    process = process_of(pl.col("globalTid"))
    masked = [column.to_frame().select(process).to_series() for column in threads]
    processes_of_rows = pl.concat([c.unique().drop_nulls() for c in (*masked, *processes)]).unique()
    return int(processes_of_rows[0]) if len(processes_of_rows) == 1 else None


def _strings(raw: Raw, ids: pl.Series, value: pl.Expr = _VALUE) -> pl.Series:
    """The strings of `ids`, as categories; null where an id has none.

    They are looked up by position in a table as long as the largest id: 4 ms for 2.4 M rows. A
    join takes 20 ms and copies all other columns. Which ids occur is found in the same way.
    """
    if ids.null_count() == len(ids):
        return repeated(None, len(ids), pl.Categorical).alias("value")
    longest = greatest(ids) + 1
    if longest > _LONGEST_TABLE:
        used = _categories(raw.strings.filter(pl.col("id").is_in(ids.unique().implode())), value)
        return ids.replace_strict(
            used["id"], used["value"], default=None, return_dtype=pl.Categorical
        )
    met = repeated(value=False, length=longest).scatter(ids.drop_nulls(), True)
    used = _categories(raw.strings.filter(met.gather(raw.strings["id"], null_on_oob=True)), value)
    return scatter_table(longest, used["id"], used["value"])[ids].alias("value")


def _categories(strings: pl.DataFrame, value: pl.Expr) -> pl.DataFrame:
    """`id`, and `value` as a category."""
    first = strings.unique("id", keep="first", maintain_order=True)
    return first.select("id", value.cast(pl.Categorical).alias("value"))


def _as_ops(
    frame: pl.DataFrame, kind: str, name: pl.Expr, short_name: pl.Expr, process: int | None
) -> pl.DataFrame:
    """One kind of operation as `schema.OPS`; `device` is still the number in its process."""
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
    specific = _strings(raw, _generic_kernels(raw), short_name())
    nameless = pl.lit(NAMELESS, pl.Categorical)
    kernel = pl.coalesce(pl.lit(full), pl.lit(short), nameless)
    short_kernel = pl.coalesce(pl.lit(specific), pl.lit(short), pl.lit(full), nameless)
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


def _generic_kernels(raw: Raw) -> pl.Series:
    """Per kernel, the id of its full name where its short one is generic or mangled; else null."""
    name = pl.col("value")
    generic = raw.strings.filter(name.is_in([*GENERIC]) | name.str.starts_with(MANGLED))["id"]
    is_generic = pl.col("shortName").is_in(generic.implode())
    return raw.kernels.select(pl.when(is_generic).then("demangledName")).to_series()


def _with_physical_gpu(ops: pl.DataFrame, cuda_devices: pl.DataFrame) -> pl.DataFrame:
    """`ops`, or other rows of devices, with `device` as the physical GPU: "device 0" may be another
    GPU in each process."""
    if ops.is_empty():
        return ops
    numbered = cuda_devices.drop_nulls().unique(
        ["pid", "cudaId"], keep="first", maintain_order=True
    )
    numbered = numbered.filter(pl.col("gpuId") != pl.col("cudaId"))
    if numbered.is_empty():
        return ops
    pid = os_pid(pl.col("process"))
    gpus = (
        distinct(ops.select("process", "device"))
        .with_columns(pid=pid)
        .join(numbered, left_on=["pid", "device"], right_on=["pid", "cudaId"])
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
    """`frame` with our names for thread and times, and with its process."""
    return frame.with_columns(
        process_of(pl.col("globalTid")).fill_null(pl.lit(process, pl.Int64)).alias("process"),
    ).rename({"start": "start_ns", "end": "end_ns", "globalTid": "thread"})


def _calls(raw: Raw, rows: pl.DataFrame, process: int | None) -> pl.DataFrame:
    name = _strings(raw, rows["nameId"], plain_api_name())
    named = rows.with_columns(correlation(), name.fill_null(NAMELESS).alias("name"))
    return _on_threads(named, process).select(schema.CALLS.names())


def _nameless(calls: pl.DataFrame) -> list[Note]:
    count = int((calls["name"] == NAMELESS).sum())
    return [nameless_calls(count, len(calls))] if count else []


def _overhead(raw: Raw, process: int | None) -> pl.DataFrame:
    name = _strings(raw, raw.overhead["nameId"]).fill_null(NAMELESS).alias("name")
    return _on_threads(raw.overhead.with_columns(name), process).select(schema.OVERHEAD.names())


def _on_streams(raw: Raw, frame: pl.DataFrame, process: int | None) -> pl.DataFrame:
    """Records of events, or waits: `schema.EVENT_RECORDS` and `schema.WAITS`, which are alike."""
    stream, record = pl.col("streamId"), pl.col("eventSyncId")
    rows = frame.select(
        pl.col("globalPid").fill_null(pl.lit(process, pl.Int64)).alias("process"),
        pl.col("deviceId").alias("device"),
        correlation(),
        pl.when(stream != _NO_STREAM).then(stream).alias("stream"),
        pl.when(record != 0).then(record).alias("record"),
    )
    return _with_physical_gpu(rows, raw.cuda_devices)


def _with_device_of_context(raw: Raw, process: int | None) -> pl.DataFrame:
    """The waits with the device of their context: nsys writes 0 in each, whatever the device."""
    pid = os_pid(pl.col("globalPid").fill_null(pl.lit(process, pl.Int64))).alias("processId")
    key = ["processId", "contextId"]
    contexts = raw.contexts.unique(key, keep="first", maintain_order=True)
    contexts = contexts.rename({"deviceId": "of_context"})
    return (
        raw.waits.with_columns(pid)
        .join(contexts, on=key, how="left", maintain_order="left")
        .with_columns(pl.coalesce("of_context", "deviceId").alias("deviceId"))
    )


def _graph_nodes(raw: Raw, process: int | None) -> pl.DataFrame:
    original = pl.col("originalGraphNodeId")
    return raw.graph_nodes.select(
        pl.col("start").alias("start_ns"),
        process_of(pl.col("globalTid")).fill_null(pl.lit(process, pl.Int64)).alias("process"),
        pl.col("globalTid").alias("thread"),
        pl.col("graphNodeId").alias("node"),
        pl.when(original != 0).then(original).alias("original"),
    )


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
        .pipe(with_auto_domain)
    )


_GIL_STATES: Final = {"Holding GIL": "holding", "Waiting for GIL": "waiting"}
"""What nsys calls each state."""


def _gil(ranges: pl.DataFrame) -> pl.DataFrame:
    """`schema.GIL` of the ranges of `GIL_DOMAIN`."""
    state = pl.col("name").replace_strict(_GIL_STATES, default=None, return_dtype=schema.GIL_STATE)
    stated = ranges.with_columns(state.alias("state"))
    return stated.drop_nulls(["thread", "state"]).select(schema.GIL.names())


def _marks_of_ours(raw: Raw, process: int | None) -> pl.DataFrame:
    """`process`, `start_ns`, `text` of each mark that `nsysflow.steps` may have written."""
    mark = nvtx_event_types(raw.event_types)["NvtxMark"]
    marks = _on_threads(raw.nvtx.filter(pl.col("eventType") == mark), process)
    registered = _strings(raw, marks["textId"]).cast(pl.String)
    text = pl.coalesce(pl.col("text"), pl.lit(registered)).alias("text")
    ours = pl.col("text").str.contains(KEY, literal=True)
    return marks.select("process", "start_ns", text).filter(ours)


def threads_read(raw: Raw) -> pl.Series:
    """The threads whose CPU time was read."""
    return thread_cpu(_marks_of_ours(raw, _only_process(raw)).rows())["thread"].unique().sort()


def _gpu_states(raw: Raw, marks: pl.DataFrame) -> pl.DataFrame:
    """What processes sampled themselves, and the clocks among nsys's counters."""
    ours = _with_physical_gpu(gpu_states(marks.rows()), raw.cuda_devices)
    return pl.concat([ours.select(schema.GPU_STATES.names()), sampled_clocks(raw)])


_ON_GPU: Final = ("device", "array")
"""The kinds of memory that lie on the GPU whatever touches them."""

_OF_PROCESS: Final = ["process", "device"]


def _memory(raw: Raw, process: int | None) -> pl.DataFrame:
    """`schema.MEMORY` of what CUDA allocated and freed (spec §26.2)."""
    if raw.memory.is_empty():
        return schema.MEMORY.to_frame()
    pool = pl.col("localMemoryPoolAddress")
    rows = raw.memory.with_row_index("row").select(
        pl.col("start").alias("time_ns"),
        "row",
        pl.col("deviceId").alias("device"),
        pl.col("globalPid").fill_null(pl.lit(process, pl.Int64)).alias("process"),
        correlation(),
        "address",
        (memory_change(raw.memory_operations) * pl.col("bytes")).alias("bytes"),
        pl.when(pool != 0).then(pool).alias("pool"),
        pl.col("localMemoryPoolSize").alias("size"),
        pl.col("localMemoryPoolUtilizedSize").alias("used"),
        memory_kind("memKind", raw.memory_kinds).is_in(_ON_GPU).alias("on_gpu"),
    )
    rows = _with_physical_gpu(rows.filter("on_gpu").drop_nulls("bytes"), raw.cuda_devices)
    return (
        rows.sort("time_ns", "row")
        .with_columns(*_levels_of_cuda(), pl.lit("cuda", schema.MEMORY_SOURCE).alias("source"))
        .with_columns(
            pl.lit(None, pl.Int64).alias("thread"), pl.lit(None, pl.UInt32).alias("stack")
        )
        .select(schema.MEMORY.names())
    )


def _levels_of_cuda() -> tuple[pl.Expr, pl.Expr]:
    """`allocated_bytes` and `reserved_bytes` after each row, in order."""
    of_pool = pl.col("pool").is_not_null()
    size, used = (
        pl.col(name).fill_null(0) - pl.col(name).fill_null(0).shift(1, fill_value=0)
        for name in ("size", "used")
    )
    size, used = (change.over(*_OF_PROCESS, "pool") for change in (size, used))
    reserved = pl.when(of_pool).then(size).otherwise("bytes").cum_sum()
    lowest = reserved.min().clip(upper_bound=0)
    allocated = pl.when(of_pool).then(used).cum_sum().forward_fill()
    return (
        allocated.over(_OF_PROCESS).alias("allocated_bytes"),
        (reserved - lowest).over(_OF_PROCESS).alias("reserved_bytes"),
    )


def _threads(raw: Raw) -> pl.DataFrame:
    """One name per thread: PyTorch's own (`pt_…`) if it has one, else that of highest priority."""
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
    """The GPUs that the report describes or that an operation ran on."""
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
    values = dict(export_info[["name", "value"]].iter_rows())
    version = values.get("EXPORT_PRODUCT_VERSION") or "of unknown version"
    exported = values.get("EXPORT_SCHEMA_VERSION") or "unknown"
    return f"Nsight Systems {version}, schema {exported}"
