"""The tables and columns of an nsys export that we read, by nsys's names, and these as frames."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from nsysflow.analysis.schema import SHAPES, is_possible
from nsysflow.base.errors import Incomplete, Remedy


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of an export.

    Attributes:
        name: as nsys spells it.
        columns: the columns that we read. One that an export lacks is filled with null.
        required: the columns that every version of nsys writes.
        detail: whether to leave it out with a note if it cannot be used, as the rest stays true.
    """

    name: str
    columns: pl.Schema
    required: tuple[str, ...]
    detail: bool = False


_SPAN: Final = {"start": pl.Int64(), "end": pl.Int64()}
_OP: Final = {
    **_SPAN,
    "deviceId": pl.Int32(),
    "streamId": pl.Int64(),
    "correlationId": pl.Int64(),
    "globalPid": pl.Int64(),
}
_ON_STREAM: Final = {
    "deviceId": pl.Int32(),
    "streamId": pl.Int64(),
    "correlationId": pl.Int64(),
    "globalPid": pl.Int64(),
    "eventSyncId": pl.Int64(),
}


def _labels(name: str) -> Table:
    columns = pl.Schema({"id": pl.Int64(), "name": pl.String(), "label": pl.String()})
    return Table(name=name, columns=columns, required=("id",), detail=True)


def _op(suffix: str, **columns: pl.DataType) -> Table:
    return Table(
        name=f"CUPTI_ACTIVITY_KIND_{suffix}",
        columns=pl.Schema({**_OP, **columns}),
        required=("start", "end", "deviceId"),
    )


Shapes = bool | Literal["grid"]
"""How much is read of how kernels were launched: all, their grid and block, or nothing."""

GRID: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
"""The blocks of a kernel and their threads. Only the `kernels` table and findings need them."""

BESIDE_GRID: Final = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
"""The rest of a kernel's launch configuration. Only the `kernels` table needs it."""


RETURNED: Final = "returnValue"
"""What a call returned. It is read of calls that found no memory."""

TABLES: Final[Mapping[str, Table]] = {
    "strings": Table(
        name="StringIds",
        columns=pl.Schema({"id": pl.UInt32(), "value": pl.String()}),
        required=("id", "value"),
    ),
    "calls": Table(
        name="CUPTI_ACTIVITY_KIND_RUNTIME",
        columns=pl.Schema(
            {
                **_SPAN,
                "globalTid": pl.Int64(),
                "correlationId": pl.Int64(),
                "nameId": pl.UInt32(),
            }
        ),
        required=("start", "end", "nameId"),
    ),
    "kernels": _op(
        "KERNEL",
        graphNodeId=pl.Int64(),
        demangledName=pl.UInt32(),
        shortName=pl.UInt32(),
        registersPerThread=pl.Int32(),
        gridX=pl.Int32(),
        gridY=pl.Int32(),
        gridZ=pl.Int32(),
        blockX=pl.Int32(),
        blockY=pl.Int32(),
        blockZ=pl.Int32(),
        staticSharedMemory=pl.Int64(),
        dynamicSharedMemory=pl.Int64(),
    ),
    "memcpys": _op(
        "MEMCPY",
        graphNodeId=pl.Int64(),
        bytes=pl.Int64(),
        copyKind=pl.Int64(),
        srcKind=pl.Int64(),
        dstKind=pl.Int64(),
    ),
    "memsets": _op("MEMSET", graphNodeId=pl.Int64()),
    "graphs": _op("GRAPH_TRACE"),
    "nvtx": Table(
        name="NVTX_EVENTS",
        columns=pl.Schema(
            {
                **_SPAN,
                "eventType": pl.Int64(),
                "globalTid": pl.Int64(),
                "domainId": pl.Int64(),
                "textId": pl.UInt32(),
                "text": pl.String(),
            }
        ),
        required=("start", "eventType", "globalTid"),
        detail=True,
    ),
    "overhead": Table(
        name="PROFILER_OVERHEAD",
        columns=pl.Schema({**_SPAN, "globalTid": pl.Int64(), "nameId": pl.UInt32()}),
        required=("start", "end"),
        detail=True,
    ),
    "event_records": Table(
        name="CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        columns=pl.Schema(_ON_STREAM),
        required=("streamId",),
        detail=True,
    ),
    "waits": Table(
        name="CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        columns=pl.Schema({**_ON_STREAM, "contextId": pl.Int64()}),
        required=("streamId",),
        detail=True,
    ),
    "contexts": Table(
        name="TARGET_INFO_CUDA_CONTEXT_INFO",
        columns=pl.Schema(
            {"processId": pl.Int64(), "contextId": pl.Int64(), "deviceId": pl.Int32()}
        ),
        required=("processId", "contextId", "deviceId"),
        detail=True,
    ),
    "graph_nodes": Table(
        name="CUDA_GRAPH_NODE_EVENTS",
        columns=pl.Schema(
            {
                "start": pl.Int64(),
                "globalTid": pl.Int64(),
                "graphNodeId": pl.Int64(),
                "originalGraphNodeId": pl.Int64(),
            }
        ),
        required=("start", "graphNodeId"),
        detail=True,
    ),
    "memory": Table(
        name="CUDA_GPU_MEMORY_USAGE_EVENTS",
        columns=pl.Schema(
            {
                "start": pl.Int64(),
                "globalPid": pl.Int64(),
                "deviceId": pl.Int32(),
                "address": pl.Int64(),
                "bytes": pl.Int64(),
                "memKind": pl.Int64(),
                "memoryOperationType": pl.Int64(),
                "correlationId": pl.Int64(),
                "localMemoryPoolAddress": pl.Int64(),
                "localMemoryPoolSize": pl.Int64(),
                "localMemoryPoolUtilizedSize": pl.Int64(),
            }
        ),
        required=("start", "deviceId", "bytes", "memKind", "memoryOperationType"),
        detail=True,
    ),
    "histories": Table(
        name="NSYSFLOW_MEMORY",
        columns=pl.Schema({"pid": pl.Int64(), "history": pl.String()}),
        required=("pid", "history"),
        detail=True,
    ),
    "threads": Table(
        name="ThreadNames",
        columns=pl.Schema({"globalTid": pl.Int64(), "nameId": pl.UInt32(), "priority": pl.Int64()}),
        required=("globalTid", "nameId"),
        detail=True,
    ),
    "cuda_devices": Table(
        name="TARGET_INFO_CUDA_DEVICE",
        columns=pl.Schema({"gpuId": pl.Int32(), "cudaId": pl.Int32(), "pid": pl.Int64()}),
        required=("gpuId", "cudaId", "pid"),
        detail=True,
    ),
    "gpus": Table(
        name="TARGET_INFO_GPU",
        columns=pl.Schema(
            {
                "id": pl.Int32(),
                "name": pl.String(),
                "uuid": pl.String(),
                "smCount": pl.Int32(),
                "memoryBandwidth": pl.Int64(),
            }
        ),
        required=("id",),
        detail=True,
    ),
    "diagnostics": Table(
        name="DIAGNOSTIC_EVENT",
        columns=pl.Schema({"severity": pl.Int32(), "text": pl.String()}),
        required=("text",),
        detail=True,
    ),
    "export_info": Table(
        name="META_DATA_EXPORT",
        columns=pl.Schema({"name": pl.String(), "value": pl.String()}),
        required=("name", "value"),
        detail=True,
    ),
    "gpu_metric_names": Table(
        name="TARGET_INFO_GPU_METRICS",
        columns=pl.Schema(
            {"typeId": pl.Int64(), "metricId": pl.Int64(), "metricName": pl.String()}
        ),
        required=("typeId", "metricId", "metricName"),
        detail=True,
    ),
    "event_types": _labels("ENUM_NSYS_EVENT_TYPE"),
    "copy_kinds": _labels("ENUM_CUDA_MEMCPY_OPER"),
    "memory_kinds": _labels("ENUM_CUDA_MEM_KIND"),
    "memory_operations": _labels("ENUM_CUDA_DEV_MEM_EVENT_OPER"),
}
"""The tables by the field of `Raw` that each fills, big ones first. `histories` is one of ours:
`nsysflow profile` adds it (`load/allocator.py`)."""

_NVTX_JSON: Final = Table(
    name="NVTX_EVENTS",
    columns=pl.Schema(
        {
            "start": pl.Int64(),
            "globalTid": pl.Int64(),
            "eventType": pl.Int64(),
            "domainId": pl.Int64(),
            "jsonText": pl.Categorical(),
            "jsonTextId": pl.UInt32(),
        }
    ),
    required=("start", "eventType", "globalTid"),
    detail=True,
)

SAMPLED: Final[Mapping[str, Table]] = {
    "failed_calls": Table(
        name="CUPTI_ACTIVITY_KIND_RUNTIME",
        columns=pl.Schema({**TABLES["calls"].columns, RETURNED: pl.Int64()}),
        required=TABLES["calls"].required,
    ),
    "backtraces": _NVTX_JSON,
    "python_samples": _NVTX_JSON,
    "messages": _NVTX_JSON,
    "gpu_samples": Table(
        name="GPU_METRICS",
        columns=pl.Schema(
            {
                "timestamp": pl.Int64(),
                "typeId": pl.Int64(),
                "metricId": pl.Int64(),
                "value": pl.Float64(),  # INTEGER in the versions at hand; not promised
            }
        ),
        required=("timestamp", "typeId", "metricId", "value"),
        detail=True,
    ),
}
"""Tables of which only some rows are read, by the field of `Raw`; `sampled` says which rows."""

_UNREAD: Final = """
    binaryData blockX cacheConfig callchainId category clockRate color computeMajor computeMinor
    constantMemory contextId copyCount ctrlDevPath ctxswDevPath cuDevice busLocation chipName
    asyncEngines bytes deprecatedSrcId deprecatedSyncType doubleValue dstContextId dstDeviceId end
    endGlobalTid eventClass eventId floatValue globalPid graphExecId graphId graphNodeId
    greenContextId gridId hwId importedMemoryPoolAddress importedMemoryPoolProcessId int32Value
    int64Value isDiscrete isGreenContext jsonText jsonTextId l2CacheSize launchType
    localMemoryPerThread localMemoryPoolReleaseThreshold localMemoryTotal luid mangledName
    maxBlockDimX maxBlockDimY maxBlockDimZ maxBlocksPerSm maxGridDimX maxGridDimY maxGridDimZ
    maxIPC maxRegistersPerBlock maxRegistersPerSm maxShmemPerBlock maxShmemPerBlockOptin
    maxShmemPerSm maxThreadsPerBlock maxWarpsPerSm memKind migrationCause name nameId nodeMask
    nullStreamId parentContextId pc pwGpuId rangeId rawTimestamp returnValue revision
    sharedMemoryExecuted sharedMemoryLimitConfig smMajor smMinor source sourceId srcContextId
    srcDeviceId start syncType threadsPerWarp timestamp timestampType totalMemory typeName
    uint32Value uint64Value value virtualAddress vmId clusterSchedulingPolicy clusterX clusterY
    clusterZ maxActiveClusters maxPotentialClusterSize numMultiprocessors numaNodeId
    qmdBulkReleaseDone qmdLastCtaDone qmdPreexitDone sharedMemoryRequestedPercentage
    streamId tensorSizeMinusOneElements uuid
"""
UNREAD_COLUMNS: Final = frozenset(_UNREAD.split())
"""Columns of those tables that we know and do not need: schema 3.20 has them, or (from
clusterSchedulingPolicy on) NVIDIA's exporter guide of a later version. Others get a note."""


_GRID: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def asked_shapes(frame: pl.DataFrame, asked: Shapes) -> pl.DataFrame:
    """SHAPES with null in the columns that were not asked for: some loaders cannot leave them
    out."""
    wanted = {True: tuple(SHAPES), "grid": _GRID, False: ()}[asked]
    return frame.with_columns(
        pl.lit(None, dtype).alias(name) for name, dtype in SHAPES.items() if name not in wanted
    )


@dataclass(frozen=True, kw_only=True)
class Raw:
    """The tables of an export: nsys's column names, the types of `tables.TABLES`, in row order.

    Attributes:
        shown: the report's path as the user typed it, for messages.
        present: names of the tables that the export has.
        unknown: columns of those tables that no version known to us has, as `table.column`.
        unread: why each table was left out that cannot be used, by its name.
        unusable: how many rows were left out because a value that every row has was missing, or a
            time was impossible.
    """

    shown: str
    present: frozenset[str]
    unknown: tuple[str, ...]
    unread: Mapping[str, str]
    unusable: int
    strings: pl.DataFrame
    calls: pl.DataFrame
    kernels: pl.DataFrame
    memcpys: pl.DataFrame
    memsets: pl.DataFrame
    graphs: pl.DataFrame
    nvtx: pl.DataFrame
    overhead: pl.DataFrame
    event_records: pl.DataFrame
    waits: pl.DataFrame
    contexts: pl.DataFrame
    graph_nodes: pl.DataFrame
    threads: pl.DataFrame
    cuda_devices: pl.DataFrame
    gpus: pl.DataFrame
    diagnostics: pl.DataFrame
    export_info: pl.DataFrame
    gpu_metric_names: pl.DataFrame
    event_types: pl.DataFrame
    copy_kinds: pl.DataFrame
    memory_kinds: pl.DataFrame
    memory_operations: pl.DataFrame
    memory: pl.DataFrame
    histories: pl.DataFrame
    failed_calls: pl.DataFrame
    backtraces: pl.DataFrame
    python_samples: pl.DataFrame
    messages: pl.DataFrame
    gpu_samples: pl.DataFrame

    @property
    def ops(self) -> tuple[pl.DataFrame, ...]:
        """The tables of GPU operations."""
        return self.kernels, self.memcpys, self.memsets, self.graphs


class Unfit(Exception):
    """A table holds what does not belong there; the message says what and where."""


def unusable_tables(
    shown: str, present: Mapping[str, tuple[str, ...]], remedy: Remedy
) -> dict[str, str]:
    """Why each table cannot be used that lacks a column that every export has, by its name.

    Args:
        shown: the report's path, for messages.
        present: the export's tables with their columns.
        remedy: how to make the export again.

    Raises:
        Incomplete: without this table, nothing true can be said of the report.
    """
    if "StringIds" not in present:
        raise Incomplete(f"{shown} is incomplete: it has no table StringIds", *remedy)
    unread = {}
    for table in (*TABLES.values(), SAMPLED["gpu_samples"]):
        columns = present.get(table.name, ())
        missing = [name for name in table.required if name not in columns]
        if columns and missing:
            why = f"{table.name} has no column {missing[0]}"
            if not table.detail:
                raise Incomplete(f"{shown} is incomplete: its table {why}", *remedy)
            unread[table.name] = why
    return unread


def _unknown_columns(present: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """The columns of an export that no version known to us has, as `table.column`."""
    for table in (*TABLES.values(), SAMPLED["gpu_samples"]):
        columns, known = present.get(table.name, ()), UNREAD_COLUMNS.union(table.columns)
        yield from (f"{table.name}.{name}" for name in columns if name not in known)


def assemble(
    shown: str,
    present: Mapping[str, tuple[str, ...]],
    unread: Mapping[str, str],
    frames: Mapping[str, pl.DataFrame],
) -> Raw:
    """A `Raw` of frames in the schemas of `TABLES` and `SAMPLED`, without unusable rows."""
    tables = {**TABLES, **SAMPLED}
    usable = {field: _usable(frame, tables[field]) for field, frame in frames.items()}
    return Raw(
        shown=shown,
        present=frozenset(present),
        unknown=tuple(_unknown_columns(present)),
        unread=unread,
        unusable=sum(len(frame) - len(usable[field]) for field, frame in frames.items()),
        **usable,
    )


_TIMES: Final = ("start", "end", "timestamp")


def _usable(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    """The rows of events that have every required value and possible times; of other tables all
    rows."""
    times = [name for name in _TIMES if name in table.columns]
    if times and any(frame[name].null_count() for name in table.required):
        frame = frame.drop_nulls(list(table.required))
    known = [is_possible(pl.col(name)).fill_null(value=True) for name in times]
    if not known or (possible := frame.select(pl.all_horizontal(known)).to_series()).all():
        return frame
    return frame.filter(possible)
