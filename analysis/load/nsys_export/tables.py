"""The tables and columns of an nsys export that we read, by nsys's names.

This is the only list of those names. The types are as narrow as in the canonical frames.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of an export.

    Attributes:
        name: as nsys spells it.
        columns: the columns that we read. One that an export lacks is filled with null.
        required: the columns that every version of nsys writes.
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
_ON_STREAM: Final = {
    "deviceId": pl.Int32(),
    "streamId": pl.Int64(),
    "correlationId": pl.Int64(),
    "globalPid": pl.Int64(),
    "eventSyncId": pl.Int64(),
}
_LABELS: Final = pl.Schema({"id": pl.Int64(), "name": pl.String(), "label": pl.String()})


def _op(suffix: str, **columns: pl.DataType) -> Table:
    return Table(
        name=f"CUPTI_ACTIVITY_KIND_{suffix}",
        columns=pl.Schema({**_OP, **columns}),
        required=("start", "end", "deviceId"),
    )


Shapes = bool | Literal["grid"]
"""How much is read of how kernels were launched: all, their grid, or nothing."""

GRID: Final = ("gridX", "gridY", "gridZ")
"""The blocks of a kernel. Only the `kernels` table and findings need them."""

BESIDE_GRID: Final = (
    "registersPerThread",
    "blockX",
    "blockY",
    "blockZ",
    "staticSharedMemory",
    "dynamicSharedMemory",
)
"""The rest of a kernel's launch configuration. Only the `kernels` table needs it."""


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
    "event_records": Table(
        name="CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        columns=pl.Schema(_ON_STREAM),
        required=("streamId",),
    ),
    "waits": Table(
        name="CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        columns=pl.Schema({**_ON_STREAM, "contextId": pl.Int64()}),
        required=("streamId",),
    ),
    "contexts": Table(
        name="TARGET_INFO_CUDA_CONTEXT_INFO",
        columns=pl.Schema(
            {"processId": pl.Int64(), "contextId": pl.Int64(), "deviceId": pl.Int32()}
        ),
        required=("processId", "contextId", "deviceId"),
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
"""The tables by the field of `Raw` that each fills, big ones first."""

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
    required=("start", "eventType"),
)

SAMPLED: Final[Mapping[str, Table]] = {
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
    ),
}
"""Tables of which only some rows are read, by the field of `Raw`; `sampled` says which rows."""

_UNREAD: Final = """
    binaryData blockX cacheConfig callchainId category clockRate color computeMajor computeMinor
    constantMemory contextId copyCount ctrlDevPath ctxswDevPath cuDevice busLocation chipName
    asyncEngines bytes deprecatedSrcId deprecatedSyncType doubleValue dstContextId dstDeviceId
    end endGlobalTid eventClass eventId floatValue globalPid graphExecId graphId graphNodeId
    greenContextId gridId hwId int32Value int64Value isDiscrete isGreenContext jsonText
    jsonTextId l2CacheSize launchType localMemoryPerThread localMemoryTotal luid mangledName
    maxBlockDimX maxBlockDimY maxBlockDimZ maxBlocksPerSm maxGridDimX maxGridDimY maxGridDimZ
    maxIPC maxRegistersPerBlock maxRegistersPerSm maxShmemPerBlock maxShmemPerBlockOptin
    maxShmemPerSm maxThreadsPerBlock maxWarpsPerSm memKind migrationCause nameId nodeMask
    nullStreamId
    parentContextId pwGpuId rangeId rawTimestamp returnValue revision sharedMemoryExecuted
    sharedMemoryLimitConfig smMajor smMinor source sourceId srcContextId srcDeviceId start
    syncType threadsPerWarp timestamp timestampType totalMemory typeName uint32Value uint64Value
    value virtualAddress vmId clusterSchedulingPolicy clusterX clusterY clusterZ
    maxActiveClusters maxPotentialClusterSize numMultiprocessors numaNodeId qmdBulkReleaseDone
    qmdLastCtaDone qmdPreexitDone sharedMemoryRequestedPercentage tensorSizeMinusOneElements
    uuid
"""
UNREAD_COLUMNS: Final = frozenset(_UNREAD.split())
"""Columns of those tables that we know and do not need: schema 3.20 has them, or (from
clusterSchedulingPolicy on) NVIDIA's exporter guide of a later version. Others get a note."""
