"""Small nsys SQLite exports, written by hand.

Rows are dicts of nsys's columns that replace defaults. A string in place of a string id is added to
StringIds. A table without rows (None) is absent, as in real exports.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from nsysflow.analysis.trace import NoteKind, Trace

PID: Final = 1000
Row = Mapping[str, Any]
Rows = Iterable[Row] | None


def process(pid: int = PID) -> int:
    """nsys's globalPid."""
    return pid << 24


def thread(tid: int = PID, pid: int = PID) -> int:
    """nsys's globalTid; the main thread's by default."""
    return pid << 24 | tid


_OP: Final = {
    "start": 0, "end": 10, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1,
    "globalPid": process(),
}  # fmt: skip
_ON_THREAD: Final = {"start": 0, "end": 10, "globalTid": thread()}

DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": {
        **_OP, "demangledName": "void ns::add<float>(int)", "shortName": "add",
        "registersPerThread": 32,
        **dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), 1),
        "staticSharedMemory": 0, "dynamicSharedMemory": 0, "graphNodeId": None,
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {
        **_OP, "bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2, "graphNodeId": None,
    },
    "CUPTI_ACTIVITY_KIND_MEMSET": {**_OP, "value": 0, "bytes": 64, "graphNodeId": None},
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": {**_OP, "graphId": 1, "graphExecId": 1},
    "CUPTI_ACTIVITY_KIND_RUNTIME": {
        **_ON_THREAD, "eventClass": 0, "correlationId": 1, "nameId": "cudaLaunchKernel_v7000",
        "returnValue": 0,
    },
    "NVTX_EVENTS": {
        **_ON_THREAD, "eventType": 59, "text": None, "textId": None, "domainId": 0,
        "jsonText": None,
    },
    "PROFILER_OVERHEAD": {**_ON_THREAD, "nameId": "CUPTI Buffer flush", "returnValue": 0},
    "ThreadNames": {"nameId": "python3", "priority": 20, "globalTid": thread()},
    "TARGET_INFO_CUDA_DEVICE": {"gpuId": 0, "cudaId": 0, "pid": PID},
    "TARGET_INFO_GPU": {
        "vmId": 0, "id": 0, "name": "NVIDIA H200", "uuid": "uuid-0", "smCount": 132,
        "memoryBandwidth": 4_814_304_000_000,
    },
    "DIAGNOSTIC_EVENT": {"timestamp": 0, "severity": 1, "text": "Profiling has started."},
    "META_DATA_EXPORT": {"name": "EXPORT_SCHEMA_VERSION", "value": "3.20.3"},
}  # fmt: skip
_TEXT: Final = frozenset({"text", "jsonText", "name", "value", "uuid", "label", "metricName"})
_STRING_IDS: Final = frozenset({"nameId", "textId", "demangledName", "shortName"})


TABLES: Final = {
    "kernels": "CUPTI_ACTIVITY_KIND_KERNEL",
    "memcpys": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memsets": "CUPTI_ACTIVITY_KIND_MEMSET",
    "graphs": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "calls": "CUPTI_ACTIVITY_KIND_RUNTIME",
    "nvtx": "NVTX_EVENTS",
    "overhead": "PROFILER_OVERHEAD",
    "threads": "ThreadNames",
    "cuda_devices": "TARGET_INFO_CUDA_DEVICE",
    "gpus": "TARGET_INFO_GPU",
    "diagnostics": "DIAGNOSTIC_EVENT",
}
"""Names of tables for `write_export`."""


def write_export(
    path: Path,
    *,
    tables: Mapping[str, Iterable[Row]] | None = None,
    strings: Mapping[int, str] | None = None,
    **rows: Rows,
) -> Path:
    """Write an export and return its path.

    Args:
        path: the SQLite file to write.
        tables: rows of other tables by name. Those without `DEFAULTS` need whole rows;
            META_DATA_EXPORT's rows are replaced.
        strings: further StringIds.
        **rows: rows of the table of that name in `TABLES`; their columns replace its `DEFAULTS`.
    """
    given: dict[str, Rows] = {
        **{TABLES[name]: of_table for name, of_table in rows.items()},
        "META_DATA_EXPORT": [{}, {"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2.0"}],
        **(tables or {}),
    }
    ids = {text: number for number, text in (strings or {}).items()}
    with closing(sqlite3.connect(path)) as db:
        for table, new in given.items():
            if new is not None:
                _write_table(db, table, [DEFAULTS.get(table, {}) | dict(row) for row in new], ids)
        db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(n, t) for t, n in ids.items()])
        db.commit()
    return path


def _write_table(
    db: sqlite3.Connection, name: str, rows: list[dict[str, Any]], ids: dict[str, int]
) -> None:
    columns = list(dict.fromkeys([*DEFAULTS.get(name, {}), *(c for row in rows for c in row)]))
    numbers = {c for row in rows for c, value in row.items() if isinstance(value, int)}
    typed = ", ".join(
        f'"{c}" {"TEXT" if c in _TEXT and c not in numbers else "INTEGER"}' for c in columns
    )
    db.execute(f"CREATE TABLE {name} ({typed})")
    marks = ", ".join("?" * len(columns))
    values = [[_value(column, row.get(column), ids) for column in columns] for row in rows]
    db.executemany(f"INSERT INTO {name} VALUES ({marks})", values)


def _value(column: str, value: object, ids: dict[str, int]) -> object:
    if column in _STRING_IDS and isinstance(value, str):
        return ids.setdefault(value, max(ids.values(), default=-1) + 1)
    return value


def add_rows(path: Path, table: str, count: int) -> Path:
    """Add `count` copies of a table's first row and return the path."""
    return change(
        path,
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        f" INSERT INTO {table} SELECT {table}.* FROM n, {table} WHERE {table}.rowid = 1",
    )


def note_kinds(trace: Trace) -> list[NoteKind]:
    """The kinds of a trace's notes."""
    return [note.kind for note in trace.notes]


def change(path: Path, *statements: str) -> Path:
    """Run SQL on a file and return its path."""
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return path
