"""What we read of an nsys export: its tables and columns, in nsys's own words.

This is the one list of foreign names; `nsys_sqlite` and `parquetdir` fill a `Raw` from it and
`canonical` turns that into a `Trace`. Integers are as narrow as the canonical frames want them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.errors import Incomplete

API_SUFFIX: Final = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
"""The version at the end of an API name: `cudaLaunchKernel_v7000_ptsz`, `cuMemAlloc_v2`."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of an export.

    Attributes:
        name: as nsys spells it.
        columns: those that we read; one that this version lacks is filled with null.
        required: those that every version has.
    """

    name: str
    columns: pl.Schema
    required: tuple[str, ...]


_SPAN: Final = {"start": pl.Int64(), "end": pl.Int64()}
_OP: Final = {
    **_SPAN,
    "deviceId": pl.Int32(),
    "streamId": pl.Int64(),
    "correlationId": pl.Int64(),
    "globalPid": pl.Int64(),
}
_LABELS: Final = pl.Schema({"id": pl.Int64(), "name": pl.String(), "label": pl.String()})


def _op(suffix: str, **columns: pl.DataType) -> Table:
    return Table(
        name=f"CUPTI_ACTIVITY_KIND_{suffix}",
        columns=pl.Schema({**_OP, **columns}),
        required=("start", "end", "deviceId"),
    )


SHAPE_COLUMNS: Final = (
    "registersPerThread",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "staticSharedMemory",
    "dynamicSharedMemory",
)
"""How a kernel was launched: nothing but the kernels table needs it."""


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
        required=("start", "eventType"),
    ),
    "overhead": Table(
        name="PROFILER_OVERHEAD",
        columns=pl.Schema({**_SPAN, "globalTid": pl.Int64(), "nameId": pl.UInt32()}),
        required=("start", "end"),
    ),
    "threads": Table(
        name="ThreadNames",
        columns=pl.Schema({"globalTid": pl.Int64(), "nameId": pl.UInt32(), "priority": pl.Int64()}),
        required=("globalTid", "nameId"),
    ),
    "cuda_devices": Table(
        name="TARGET_INFO_CUDA_DEVICE",
        columns=pl.Schema({"gpuId": pl.Int32(), "cudaId": pl.Int32(), "pid": pl.Int64()}),
        required=("gpuId", "cudaId", "pid"),
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
    ),
    "diagnostics": Table(
        name="DIAGNOSTIC_EVENT",
        columns=pl.Schema({"severity": pl.Int32(), "text": pl.String()}),
        required=("text",),
    ),
    "export_info": Table(
        name="META_DATA_EXPORT",
        columns=pl.Schema({"name": pl.String(), "value": pl.String()}),
        required=("name", "value"),
    ),
    "gpu_metric_names": Table(
        name="TARGET_INFO_GPU_METRICS",
        columns=pl.Schema(
            {"typeId": pl.Int64(), "metricId": pl.Int64(), "metricName": pl.String()}
        ),
        required=("typeId", "metricId", "metricName"),
    ),
    "event_types": Table(name="ENUM_NSYS_EVENT_TYPE", columns=_LABELS, required=("id",)),
    "copy_kinds": Table(name="ENUM_CUDA_MEMCPY_OPER", columns=_LABELS, required=("id",)),
    "memory_kinds": Table(name="ENUM_CUDA_MEM_KIND", columns=_LABELS, required=("id",)),
}
"""The fields of `Raw` and the tables that fill them, big ones first."""

_NVTX_JSON: Final = Table(
    name="NVTX_EVENTS",
    columns=pl.Schema(
        {
            "start": pl.Int64(),
            "globalTid": pl.Int64(),
            "eventType": pl.Int64(),
            "domainId": pl.Int64(),
            "jsonText": pl.Categorical(),
        }
    ),
    required=("start", "eventType"),
)

SAMPLED: Final[Mapping[str, Table]] = {
    "backtraces": _NVTX_JSON,
    "messages": _NVTX_JSON,
    "gpu_samples": Table(
        name="GPU_METRICS",
        columns=pl.Schema(
            {
                "timestamp": pl.Int64(),
                "typeId": pl.Int64(),
                "metricId": pl.Int64(),
                "value": pl.Float64(),  # INTEGER in every version at hand; the format promises none
            }
        ),
        required=("timestamp", "typeId", "metricId", "value"),
    ),
}
"""Fields of `Raw` for which few rows of a big table are wanted: `sampled` says which."""

_UNREAD: Final = """
    binaryData blockX cacheConfig callchainId category clockRate color computeMajor computeMinor
    constantMemory contextId copyCount ctrlDevPath ctxswDevPath cuDevice busLocation chipName
    asyncEngines bytes deprecatedSrcId doubleValue dstContextId dstDeviceId endGlobalTid eventClass
    floatValue globalPid graphExecId graphId graphNodeId greenContextId gridId int32Value
    int64Value isDiscrete jsonText jsonTextId l2CacheSize launchType localMemoryPerThread
    localMemoryTotal luid mangledName maxBlockDimX maxBlockDimY maxBlockDimZ maxBlocksPerSm
    maxGridDimX maxGridDimY maxGridDimZ maxIPC maxRegistersPerBlock maxRegistersPerSm
    maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm maxThreadsPerBlock maxWarpsPerSm memKind
    migrationCause nodeMask pwGpuId rangeId rawTimestamp returnValue revision sharedMemoryExecuted
    sharedMemoryLimitConfig smMajor smMinor source sourceId srcContextId srcDeviceId threadsPerWarp
    timestamp timestampType totalMemory typeName uint32Value uint64Value value virtualAddress vmId
    clusterSchedulingPolicy clusterX clusterY clusterZ maxActiveClusters maxPotentialClusterSize
    numMultiprocessors numaNodeId qmdBulkReleaseDone qmdLastCtaDone qmdPreexitDone
    sharedMemoryRequestedPercentage tensorSizeMinusOneElements uuid
"""
UNREAD_COLUMNS: Final = frozenset(_UNREAD.split())
"""Columns of those tables that schema 3.20 has, or NVIDIA's exporter guide of a later version (the
last three lines), and we have no use for; others are news."""


@dataclass(frozen=True, kw_only=True)
class Raw:
    """An export's tables as frames: nsys's column names, the types of `TABLES`, in row order.

    Attributes:
        shown: the report's path as the user typed it, for messages.
        present: names of the tables that the export has.
        news: columns of those tables that no version known to us has, as `table.column`.
        unusable: how many rows lacked a value that every row has, and were left out.
    """

    shown: str
    present: frozenset[str]
    news: tuple[str, ...]
    unusable: int
    strings: pl.DataFrame
    calls: pl.DataFrame
    kernels: pl.DataFrame
    memcpys: pl.DataFrame
    memsets: pl.DataFrame
    graphs: pl.DataFrame
    nvtx: pl.DataFrame
    overhead: pl.DataFrame
    threads: pl.DataFrame
    cuda_devices: pl.DataFrame
    gpus: pl.DataFrame
    diagnostics: pl.DataFrame
    export_info: pl.DataFrame
    gpu_metric_names: pl.DataFrame
    event_types: pl.DataFrame
    copy_kinds: pl.DataFrame
    memory_kinds: pl.DataFrame
    backtraces: pl.DataFrame
    messages: pl.DataFrame
    gpu_samples: pl.DataFrame


EXPORT_AGAIN: Final = (
    "Export it again:\n  nsys export --type sqlite --force-overwrite=true REPORT.nsys-rep"
)


def check_tables(shown: str, present: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Hold an export's tables, with their columns, to what every version has.

    Returns:
        The columns that are news to us, as `table.column`.

    Raises:
        Incomplete: a table or column that every export has is missing.
    """
    news: list[str] = []
    if "StringIds" not in present:
        msg = f"{shown} has no StringIds table: the export is incomplete. {EXPORT_AGAIN}"
        raise Incomplete(msg)
    for table in (*TABLES.values(), SAMPLED["gpu_samples"]):
        columns = present.get(table.name, ())
        missing = [name for name in table.required if name not in columns]
        if columns and missing:
            msg = (
                f"{shown} has no column {missing[0]} in its table {table.name},"
                f" which every export has. {EXPORT_AGAIN}"
            )
            raise Incomplete(msg)
        known = UNREAD_COLUMNS.union(table.columns)
        news += [f"{table.name}.{name}" for name in columns if name not in known]
    return tuple(news)


def assemble(
    shown: str, present: Mapping[str, tuple[str, ...]], frames: Mapping[str, pl.DataFrame]
) -> Raw:
    """A `Raw` of frames in the schemas of `TABLES` and `SAMPLED`, without the rows that cannot be
    used.

    Raises:
        Incomplete: a table or column that every export has is missing.
    """
    news = check_tables(shown, present)
    tables = {**TABLES, **SAMPLED}
    usable = {field: _usable(frame, tables[field]) for field, frame in frames.items()}
    lost = sum(frame.height - usable[field].height for field, frame in frames.items())
    return Raw(shown=shown, present=frozenset(present), news=news, unusable=lost, **usable)


def _usable(frame: pl.DataFrame, table: Table) -> pl.DataFrame:
    happened = not {"start", "timestamp"}.isdisjoint(table.required)
    # a NULL in what merely describes loses nothing
    if happened and any(frame[name].null_count() for name in table.required):
        return frame.drop_nulls(list(table.required))
    return frame
