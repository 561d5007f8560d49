"""Files of other tools are named with what they are and what to type next."""

import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.other_formats import FORMATS
from nsysflow.base.errors import NotAReport

XPLANE: Final = b"\x0a\x05\x08\x01\x12\x01a"
EVENT: Final = {"ph": "X", "cat": "blink", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}

FILES: Final[dict[str, tuple[bytes, str]]] = {
    "kernels.ncu-rep": (b"NVR\0", "a report of Nsight Compute"),
    "run.qdstrm": (b"x", "an unfinished recording of Nsight Systems"),
    "host.xplane.pb": (XPLANE, "a profile of XLA"),
    "snapshot.pickle": (pickle.dumps({"segments": [], "x": 1}), "a memory snapshot of PyTorch"),
    "weights.pkl": (pickle.dumps({"weight": 1}), "a Python pickle"),
    "kernel_trace.csv": (b'"Kind","Agent_Id","Queue_Id"\n', "a CSV table of rocprof"),
    "results.csv": (b"Index,KernelName,gpu-id\n", "a CSV table of rocprof"),
    "stats.csv": (b"Time (%),Total Time (ns),Instances\n", "a CSV table of nsys stats"),
    "lines.json": (
        b'{"Type":48,"TraceProcessEvent":{"startNs":"1"}}\n{"Type":79,"CudaEvent":{}}\n',
        "a JSON export of Nsight Systems",
    ),
    "tables.json": (b'{"StringIds": [{"id": 0, "value": ""}]}', "a JSON export of Nsight Systems"),
    "results.json": (b'{"rocprofiler-sdk-tool": []}', "the JSON output of rocprofv3"),
    "et.json": (b'{"schema": "1.0.1", "nodes": []}', "an execution trace of PyTorch"),
    "chrome.json": (
        json.dumps({"traceEvents": [EVENT]}).encode(),
        "a Chrome trace with events of blink, but not a trace of torch.profiler",
    ),
    "report.json": (b'{"schema": 1, "tool": {}, "verdict": ""}', "a report.json of nsysflow"),
    "graph.json": (b'{"nodes": [], "b": 1}', "JSON with b, nodes, but not a trace"),
    "list.json": (b"[1, 2]", "JSON, but not a trace of torch.profiler"),
    "notes.txt": (b"hello", "not an SQLite file, nor another report"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_tool_is_named(name: str, tmp_path: Path) -> None:
    content, what = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(NotAReport) as caught:
        load(path)
    assert caught.value.seen.startswith(f"{path} is {what}")
    assert caught.value.advice
    assert caught.value.command


def test_each_format_has_a_file_here() -> None:
    told = [what for _, what in FILES.values()]
    for kind in FORMATS:
        assert any(kind.is_a.startswith(what) for what in told), kind.is_a


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        (["rocpd_api", "rocpd_op"], "a database of rocmProfileData"),
        (["b", "a", "c", "e", "d"], "an SQLite database, but not an Nsight Systems export: it has"
         " a, b, c, d and 1 more"),
        ([], "an SQLite database, but not an Nsight Systems export: it has no tables"),
    ],
)  # fmt: skip
def test_a_database_of_another_tool_is_named(tables: list[str], what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 1")
        for table in tables:
            db.execute(f"CREATE TABLE {table} (id)")
    with pytest.raises(NotAReport) as caught:
        load(path)
    assert caught.value.seen.startswith(f"{path} is {what}")
