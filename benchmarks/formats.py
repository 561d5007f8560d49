"""Write a trace as torch.profiler and as rocprofv3 write theirs: the same kernels, copies, calls
and ranges, in the other formats. For measurements of loading; the tests write files by hand."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import polars as pl

from nsysflow.analysis.schema import ID_MASK
from nsysflow.analysis.trace import Trace

_PID: Final = 813

_HEAD: Final = """{
  "schemaVersion": 1,
  "deviceProperties": [
  ],
  "traceEvents": [
"""
_EVENT: Final = """  {{
    "ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {},
    "ts": {}, "dur": {},
    "args": {{
      {}
    }}
  }},
"""
_ARROW: Final = """  {{
    "ph": "{}", "id": {}, "pid": {}, "tid": {}, "ts": {},
    "cat": "ac2g", "name": "ac2g"
  }},
"""
_TAIL: Final = """  {
    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 0.000
  }
  ]
}
"""
_KERNEL: Final = (
    '"External id": 16,      "queued": 0, "device": {device}, "context": 1,      "stream":'
    ' {stream}, "correlation": {correlation},      "registers per thread": {registers},      '
    '"shared memory": {shared_bytes},      "blocks per SM": 0.969697,      "warps per SM": 3.878788'
    ',      "grid": [{grid_x}, {grid_y}, {grid_z}],      "block": [{block_x}, {block_y}, {block_z}]'
    ',      "est. achieved occupancy %": 6'
)
_COPY: Final = (
    '"External id": 10,      "device": {device}, "context": 1,      "stream": {stream},'
    ' "correlation": {correlation},      "bytes": {bytes}, "memory bandwidth (GB/s)": 16.7610918296'
)
_CALL: Final = '"External id": 10,      "cbid": 211, "correlation": {}'
_RANGE: Final = '"External id": 1,"Record function id": 0, "Ev Idx": 0'


def kineto_text(trace: Trace) -> Iterator[str]:
    """The trace as torch.profiler writes it, with the arrows from calls to what they launched."""
    names = {name: json.dumps(name) for name in _names(trace)}
    yield _HEAD
    for row in trace.ranges.iter_rows(named=True):
        yield _EVENT.format("user_annotation", names[row["name"]], *_on_thread(row), _RANGE)
    for row in trace.calls.iter_rows(named=True):
        number, place = row["correlation"] or 0, _on_thread(row)
        yield _EVENT.format("cuda_runtime", names[row["name"]], *place, _CALL.format(number))
        yield _ARROW.format("s", number, *place[:3])
    for row in _kernels(trace).iter_rows(named=True):
        yield from _on_gpu("kernel", names[row["name"]], row, _KERNEL)
    for row in _copies(trace).iter_rows(named=True):
        yield from _on_gpu("gpu_memcpy", '"Memcpy HtoD (Pageable -> Device)"', row, _COPY)
    yield _TAIL


def _on_gpu(category: str, name: str, row: dict[str, Any], args: str) -> Iterator[str]:
    """An operation, and the end of the arrow to it."""
    place = row["device"], row["stream"], _us(row["start_ns"])
    length = _us(row["end_ns"] - row["start_ns"])
    yield _EVENT.format(category, name, *place, length, args.format_map(row))
    yield _ARROW.format("f", row["correlation"], *place)


def _on_thread(row: dict[str, Any]) -> tuple[object, ...]:
    """Process, thread, start and duration of an event of the host."""
    start_ns, end_ns = row["start_ns"], row["end_ns"]
    return _PID, row["thread"] & ID_MASK, _us(start_ns), _us(end_ns - start_ns)


def _us(ns: int) -> str:
    """Nanoseconds in microseconds, with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03}"


def _names(trace: Trace) -> list[str]:
    """Each name of a kernel, call or range once."""
    frames = (trace.ranges, trace.calls, trace.ops)
    names = pl.concat([frame["name"].cast(pl.String) for frame in frames])
    return names.unique(maintain_order=True).to_list()


def _kernels(trace: Trace) -> pl.DataFrame:
    """Kernels with their shapes; what is missing is 0."""
    rows = trace.ops.filter(pl.col("kind") == "kernel")
    return rows.hstack(trace.shapes[rows["detail"]]).fill_null(0)


def _copies(trace: Trace) -> pl.DataFrame:
    """Copies with their bytes; what is missing is 0."""
    rows = trace.ops.filter(pl.col("kind") == "memcpy")
    return rows.hstack(trace.copy_details[rows["detail"]].select("bytes")).fill_null(0)


_GUID: Final = "0a1b2c3d-0a1b-7c3d-8e4f-0123456789ab"
_SUFFIX: Final = "_" + _GUID.replace("-", "_")
_CATEGORIES: Final = (
    "MARKER_CORE_RANGE_API",
    "HIP_RUNTIME_API_EXT",
    "KERNEL_DISPATCH",
    "MEMORY_COPY",
)


def write_rocpd(trace: Trace, path: Path) -> None:
    """The trace as rocprofv3 writes it in schema 3.0: kind by kind, with the guid in each row."""
    texts = pl.DataFrame({"string": [*_CATEGORIES, *_names(trace)]}).with_row_index("id", 1)
    number = pl.col("name").cast(pl.String).replace_strict(texts["string"], texts["id"])
    tids = (pl.concat([trace.calls["thread"], trace.ranges["thread"]]) & ID_MASK).unique()
    about = {
        "metadata": pl.DataFrame({"tag": ["schema_version"], "value": ["3.0.2"]}),
        "string": texts,
        "info_kernel_symbol": texts.select("id", kernel_name="string"),
        "info_process": pl.DataFrame({"id": [1], "pid": [_PID]}),
        "info_thread": pl.DataFrame({"id": tids, "tid": tids}).with_columns(pid=1),
        "info_agent": pl.DataFrame({"id": [1, 2], "type": ["CPU", "GPU"], "type_index": [0, 0]}),
    }
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        for table, rows in about.items():
            _insert(db, table, rows)
        for category, table, rows in (
            ("MARKER_CORE_RANGE_API", "region", _regions(trace.ranges, number)),
            ("HIP_RUNTIME_API_EXT", "region", _regions(trace.calls, number)),
            ("KERNEL_DISPATCH", "kernel_dispatch", _dispatches(_kernels(trace), number)),
            ("MEMORY_COPY", "memory_copy", _memory_copies(_copies(trace))),
        ):
            events = rows.select(
                pl.lit(_CATEGORIES.index(category) + 1).alias("category_id"),
                pl.col("correlation").fill_null(0).alias("stack_id"),
                *(pl.lit(0).alias(name) for name in ("parent_stack_id", "correlation_id")),
                *(pl.lit("{}").alias(name) for name in ("call_stack", "line_info")),
                pl.col("message").alias("extdata"),
            )
            first = _insert(db, "event", events)
            rows = rows.drop("correlation", "message").with_row_index("event_id", first)
            _insert(db, table, rows.with_columns(nid=1, pid=1, extdata=pl.lit("{}")))


def _regions(rows: pl.DataFrame, number: pl.Expr) -> pl.DataFrame:
    """Calls or ranges; the event of a range has its name as a message."""
    if "correlation" in rows.columns:
        rows = rows.with_columns(message=pl.lit("{}"))
    else:
        texts = {name: json.dumps({"message": name}) for name in rows["name"].unique()}
        rows = rows.with_columns(
            pl.col("name").replace_strict(texts).alias("message"), correlation=0
        )
    return rows.select(
        "correlation",
        "message",
        tid=pl.col("thread") & ID_MASK,
        start="start_ns",
        end="end_ns",
        name_id=number,
    )


def _dispatches(kernels: pl.DataFrame, number: pl.Expr) -> pl.DataFrame:
    """Kernels; their grids are in threads."""
    return kernels.select(
        "correlation",
        message=pl.lit("{}"),
        tid=_PID,
        agent_id=2,
        kernel_id=number,
        dispatch_id=pl.int_range(pl.len()),
        queue_id=1,
        stream_id="stream",
        start="start_ns",
        end="end_ns",
        private_segment_size=0,
        group_segment_size="shared_bytes",
        **{f"workgroup_size_{axis}": pl.col(f"block_{axis}") for axis in "xyz"},
        **{f"grid_size_{axis}": pl.col(f"grid_{axis}") * pl.col(f"block_{axis}") for axis in "xyz"},
    )


def _memory_copies(copies: pl.DataFrame) -> pl.DataFrame:
    """Copies, all of them to the GPU."""
    return copies.select(
        "correlation",
        message=pl.lit("{}"),
        tid=_PID,
        start="start_ns",
        end="end_ns",
        name_id=4,
        dst_agent_id=2,
        src_agent_id=1,
        size="bytes",
        queue_id=1,
        stream_id="stream",
    )


def _insert(db: sqlite3.Connection, table: str, rows: pl.DataFrame) -> int:
    """Add rows to a table, which is made by the first ones; the number of the first row."""
    name = f"rocpd_{table}{_SUFFIX}"
    given = rows.with_columns(guid=pl.lit(_GUID))
    columns = [column for column in given.columns if column != "id"]
    types = ", ".join(f'"{column}"' for column in columns)
    db.execute(f'CREATE TABLE IF NOT EXISTS "{name}" (id INTEGER PRIMARY KEY, {types})')
    (last,) = db.execute(f'SELECT coalesce(max(id), 0) FROM "{name}"').fetchone()
    if "id" not in given.columns:
        given = given.with_row_index("id", last + 1)
    marks = ", ".join("?" * given.width)
    into = ", ".join(f'"{column}"' for column in given.columns)
    db.executemany(f'INSERT INTO "{name}" ({into}) VALUES ({marks})', given.iter_rows())
    return int(last) + 1
