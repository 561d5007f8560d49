"""Canonical rows as plain Python values, a reader of its own, and the way to and from `Trace`."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.trace import Trace

PROCESS_MASK = ~0xFFFFFF
LOW_24_BITS = 0xFFFFFF


@dataclass(frozen=True)
class Shape:
    """How one kernel was launched."""

    grid_x: int = 1
    grid_y: int = 1
    grid_z: int = 1
    block_x: int = 32
    block_y: int = 1
    block_z: int = 1
    registers: int = 16
    shared_bytes: int = 0


@dataclass(frozen=True)
class Copy:
    """What one memcpy moved, and between which kinds of memory."""

    bytes: int
    direction: str
    source_memory: str | None
    target_memory: str | None


@dataclass(frozen=True)
class Op:
    """One GPU operation; `shape` of kernels, `copy` of memcpys."""

    kind: str
    start_ns: int
    end_ns: int
    device: int
    process: int | None
    stream: int
    correlation: int | None
    graph_node: int | None
    name: str
    short_name: str
    shape: Shape | None = None
    copy: Copy | None = None


@dataclass(frozen=True)
class Call:
    """One CUDA API call, its name without version suffix."""

    start_ns: int
    end_ns: int
    process: int
    thread: int
    correlation: int | None
    name: str


@dataclass(frozen=True)
class Range:
    """One NVTX range; `end_ns` is None for one that never ended."""

    start_ns: int
    end_ns: int | None
    kind: str
    process: int
    thread: int
    domain: str | None
    name: str
    row: int


@dataclass(frozen=True)
class Overhead:
    """One stretch of the profiler's own work on a thread of the program."""

    start_ns: int
    end_ns: int
    process: int
    thread: int
    name: str


@dataclass(frozen=True)
class Thread:
    """One named thread."""

    process: int
    thread: int
    name: str


@dataclass(frozen=True)
class Device:
    """One physical GPU."""

    device: int
    name: str | None
    uuid: str | None
    sm_count: int | None
    memory_bytes_per_s: int | None


@dataclass(frozen=True)
class Diagnostic:
    """One remark of the profiler about its own capture."""

    severity: int
    text: str


@dataclass(frozen=True)
class TwinTrace:
    """One report as canonical rows, in any order."""

    report: str = "twin"
    ops: tuple[Op, ...] = ()
    calls: tuple[Call, ...] = ()
    ranges: tuple[Range, ...] = ()
    overhead: tuple[Overhead, ...] = ()
    threads: tuple[Thread, ...] = ()
    devices: tuple[Device, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


# --- names --------------------------------------------------------------------------------------


def api_name(name: str) -> str:
    """§1: API names carry a version suffix (`cudaLaunchKernel_v7000`, `_ptsz`): strip it."""
    while (shorter := re.sub(r"_(v\d+|ptsz|ptds)$", "", name)) != name:
        name = shorter
    return name


def range_name(name: str) -> str:
    """§7: from `, seq =`, `, op_id =`, `, sizes =` or `, input_op_ids =` on all is dropped."""
    for tail in (", seq =", ", op_id =", ", sizes =", ", input_op_ids ="):
        name = name.split(tail, 1)[0]
    return name


# --- reading an export --------------------------------------------------------------------------

MEMORY_BY_LABEL = {
    "Pageable": "pageable",
    "Pinned": "pinned",
    "Device": "device",
    "Array": "array",
    "Managed": "managed",
    "Device Static": "device",
    "Managed Static": "managed",
    "Unknown": "unknown",
}
MEMORY_BY_NUMBER = dict(enumerate(MEMORY_BY_LABEL.values()))
DIRECTION_BY_LABEL = {
    "Unknown": "unknown",
    "Host-to-Device": "HtoD",
    "Device-to-Host": "DtoH",
    "Host-to-Array": "HtoA",
    "Array-to-Host": "AtoH",
    "Array-to-Array": "AtoA",
    "Array-to-Device": "AtoD",
    "Device-to-Array": "DtoA",
    "Device-to-Device": "DtoD",
    "Host-to-Host": "HtoH",
    "Peer-to-Peer": "PtoP",
    "Unified Host-to-Device": "unified HtoD",
    "Unified Device-to-Host": "unified DtoH",
    "Unified Device-to-Device": "unified DtoD",
}
DIRECTION_BY_NUMBER = dict(enumerate(DIRECTION_BY_LABEL.values()))


class _Export:
    """An open export: rows as dicts, absent tables as no rows, absent columns as None."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.db.row_factory = sqlite3.Row
        self.tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        self.strings = {row["id"]: row["value"] for row in self.rows("StringIds")}

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        if table in self.tables:
            for row in self.db.execute(f'SELECT * FROM "{table}" ORDER BY rowid'):
                yield _Row(zip(row.keys(), row, strict=True))

    def enum(
        self, table: str, by_label: dict[str, str], fallback: dict[int, str]
    ) -> dict[int, str]:
        """§1: Enumerations are read from the `ENUM_*` tables by label, numbers as fallback."""
        found = {
            row["id"]: by_label[row["label"]]
            for row in self.rows(table)
            if row["label"] in by_label
        }
        return {**fallback, **found}


class _Row(dict[str, Any]):
    def __missing__(self, column: str) -> None:
        return None


def _process(thread: int) -> int:
    """§1: process = `globalTid & ~0xFFFFFF` = `globalPid`."""
    return thread & PROCESS_MASK


def _correlation(row: dict[str, Any]) -> int | None:
    """§1: NULL or 0 correlationId never join."""
    return row["correlationId"] or None


def read_export(path: Path) -> TwinTrace:
    """One unpacked SQLite export as canonical rows; rows of negative length are kept."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        export = _Export(db)
        return TwinTrace(
            report=path.stem,
            ops=tuple(_ops(export)),
            calls=tuple(
                Call(
                    row["start"],
                    row["end"],
                    _process(row["globalTid"]),
                    row["globalTid"],
                    _correlation(row),
                    api_name(export.strings[row["nameId"]]),
                )
                for row in export.rows("CUPTI_ACTIVITY_KIND_RUNTIME")
            ),
            ranges=tuple(_ranges(export)),
            overhead=tuple(
                Overhead(
                    row["start"],
                    row["end"],
                    _process(row["globalTid"]),
                    row["globalTid"],
                    export.strings[row["nameId"]],
                )
                for row in export.rows("PROFILER_OVERHEAD")
                if row["globalTid"] is not None
            ),
            threads=tuple(
                Thread(_process(row["globalTid"]), row["globalTid"], export.strings[row["nameId"]])
                for row in export.rows("ThreadNames")
                if row["globalTid"] is not None
            ),
            devices=tuple(
                Device(row["id"], row["name"], row["uuid"], row["smCount"], row["memoryBandwidth"])
                for row in export.rows("TARGET_INFO_GPU")
            ),
            diagnostics=tuple(
                Diagnostic(row["severity"], row["text"]) for row in export.rows("DIAGNOSTIC_EVENT")
            ),
        )


def _ops(export: _Export) -> Iterator[Op]:
    """§1: kernels, memcpys, memsets and graph traces, on their physical GPU."""
    gpus = {
        (row["pid"], row["cudaId"]): row["gpuId"] for row in export.rows("TARGET_INFO_CUDA_DEVICE")
    }
    memory = export.enum("ENUM_CUDA_MEM_KIND", MEMORY_BY_LABEL, MEMORY_BY_NUMBER)
    direction = export.enum("ENUM_CUDA_MEMCPY_OPER", DIRECTION_BY_LABEL, DIRECTION_BY_NUMBER)
    for kind in ("kernel", "memcpy", "memset", "graph"):
        table = "GRAPH_TRACE" if kind == "graph" else kind.upper()
        for row in export.rows(f"CUPTI_ACTIVITY_KIND_{table}"):
            process = row["globalPid"]
            pid = None if process is None else (process >> 24) & LOW_24_BITS
            name = short_name = kind
            shape = copy = None
            if kind == "kernel":
                name = export.strings[row["demangledName"]]
                short_name = export.strings[row["shortName"]]
                shape = Shape(
                    row["gridX"],
                    row["gridY"],
                    row["gridZ"],
                    row["blockX"],
                    row["blockY"],
                    row["blockZ"],
                    row["registersPerThread"],
                    row["staticSharedMemory"] + row["dynamicSharedMemory"],
                )
            if kind == "memcpy":
                copy = Copy(
                    row["bytes"],
                    direction.get(row["copyKind"], "unknown"),
                    memory.get(row["srcKind"]),
                    memory.get(row["dstKind"]),
                )
                name = short_name = f"memcpy {copy.direction}"
            yield Op(
                kind,
                row["start"],
                row["end"],
                gpus.get((pid, row["deviceId"]), row["deviceId"]),
                process,
                row["streamId"],
                _correlation(row),
                row["graphNodeId"],
                name,
                short_name,
                shape,
                copy,
            )


def _ranges(export: _Export) -> Iterator[Range]:
    """§1: `NVTX_EVENTS` type 59 (push/pop), 60 (start/end); type 75 names domains, per process."""
    events = list(export.rows("NVTX_EVENTS"))

    def text(event: dict[str, Any]) -> str | None:
        return event["text"] if event["text"] is not None else export.strings.get(event["textId"])

    domains = {
        (_process(event["globalTid"]), event["domainId"]): text(event)
        for event in events
        if event["eventType"] == 75
    }
    for row, event in enumerate(events):
        if event["eventType"] in (59, 60):
            process = _process(event["globalTid"])
            yield Range(
                event["start"],
                event["end"],
                "push_pop" if event["eventType"] == 59 else "start_end",
                process,
                event["globalTid"],
                domains.get((process, event["domainId"])),
                range_name(text(event) or ""),
                row,
            )


# --- to and from the analysis's own frames ------------------------------------------------------


def _frame(rows: list[Any], of: pl.Schema) -> pl.DataFrame:
    columns = {name: [getattr(row, name) for row in rows] for name in of}
    return pl.DataFrame(columns, schema=of)


def to_trace(trace: TwinTrace) -> Trace:
    """The same report as the analysis takes it."""
    shapes: list[Shape] = []
    copies: list[Copy] = []
    ops: dict[str, list[Any]] = {name: [] for name in schema.OPS}
    for op in trace.ops:
        detail = None
        if op.shape is not None:
            detail = len(shapes)
            shapes.append(op.shape)
        elif op.copy is not None:
            detail = len(copies)
            copies.append(op.copy)
        for name, values in ops.items():
            values.append(detail if name == "detail" else getattr(op, name))
    return Trace(
        report=trace.report,
        ops=pl.DataFrame(ops, schema=schema.OPS),
        shapes=_frame(shapes, schema.SHAPES),
        copy_details=_frame(copies, schema.COPY_DETAILS),
        calls=_frame(list(trace.calls), schema.CALLS),
        ranges=_frame(list(trace.ranges), schema.RANGES),
        overhead=_frame(list(trace.overhead), schema.OVERHEAD),
        threads=_frame(list(trace.threads), schema.THREADS),
        devices=_frame(list(trace.devices), schema.DEVICES),
        diagnostics=_frame(list(trace.diagnostics), schema.DIAGNOSTICS),
    )


def from_trace(trace: Trace) -> TwinTrace:
    """The same report as the twin takes it."""

    def rows(of: type, frame: pl.DataFrame) -> tuple[Any, ...]:
        names = [field.name for field in fields(of)]
        return tuple(of(*row) for row in frame.select(names).iter_rows())

    shapes = rows(Shape, trace.shapes)
    copies = rows(Copy, trace.copy_details)
    ops = []
    for row in trace.ops.iter_rows(named=True):
        detail = row.pop("detail")
        has_detail = detail is not None
        shape = shapes[detail] if has_detail and row["kind"] == "kernel" else None
        copy = copies[detail] if has_detail and row["kind"] == "memcpy" else None
        ops.append(Op(**row, shape=shape, copy=copy))
    return TwinTrace(
        report=trace.report,
        ops=tuple(ops),
        calls=rows(Call, trace.calls),
        ranges=rows(Range, trace.ranges),
        overhead=rows(Overhead, trace.overhead),
        threads=rows(Thread, trace.threads),
        devices=rows(Device, trace.devices),
        diagnostics=rows(Diagnostic, trace.diagnostics),
    )
