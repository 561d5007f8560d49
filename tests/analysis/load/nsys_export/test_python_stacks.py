"""Periodic Python samples of an export."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.trace import Trace
from tests.analyses import loaded
from tests.exports import note_kinds, thread, write_export

SAMPLES: Final = {"eventType": 75, "text": "Python Periodic Sampling", "domainId": 3}
STRINGS: Final = {500: "step", 501: "/home/me/train.py", 502: "&lt;module&gt;"}


def sample(start: int, *frames: tuple[int, int, int], on: int | None = None) -> dict[str, Any]:
    """A sample of (function, file, line) frames, on the main thread by default."""
    rows = [{"Function": f, "File": file, "Line": line} for f, file, line in frames]
    text = json.dumps({"Python Periodic Sampling": {"Frames count": len(rows), "Frames": rows}})
    of = {"eventType": 34, "domainId": 3, "jsonText": text}
    return {**of, "start": start, "globalTid": on or thread()}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Three samples of a thread that calls CUDA, and one of a thread that does not."""
    deep, flat = ((500, 501, 3), (502, 501, 9)), ((502, 501, 9),)
    nvtx = [
        SAMPLES,
        sample(0, *deep),
        sample(5, *flat),
        sample(9, *deep),
        sample(6, *flat, on=thread(7)),
    ]
    return write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=nvtx, strings=STRINGS)


def assert_as_recorded(trace: Trace) -> None:
    assert trace.samples.rows() == [(0, thread(), 0), (5, thread(), 1), (9, thread(), 0)]
    names = trace.frames.select("stack", "depth", "line", "function").rows()
    assert names == [(0, 0, 3, "step"), (0, 1, 9, "<module>"), (1, 0, 9, "<module>")]


def test_samples_are_those_of_threads_that_call_cuda(report: Path) -> None:
    assert_as_recorded(load(report))
    assert load(report).backtraces.is_empty()


def test_a_packed_report_keeps_its_samples_and_each_stack_once(
    report: Path, tmp_path: Path
) -> None:
    packed, again = tmp_path / "packed.sqlite", tmp_path / "again.sqlite"
    pack(report, packed)
    pack(packed, again)
    assert_as_recorded(load(packed))
    assert again.read_bytes() == packed.read_bytes()
    with closing(sqlite3.connect(packed)) as db:
        stacks = "SELECT count(*) FROM StringIds WHERE value LIKE '%Frames%'"
        assert db.execute(stacks).fetchone() == (2,)
        assert db.execute("SELECT count(*) FROM NVTX_EVENTS").fetchone() == (4,)


def test_samples_that_were_not_exported_have_a_note(tmp_path: Path) -> None:
    nvtx = [{}, SAMPLES, {**sample(0), "jsonText": None}]
    trace = load(write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=nvtx))
    assert trace.samples.is_empty()
    (said,) = [note.text for note in trace.notes if note.kind.name == "BACKTRACES_NOT_EXPORTED"]
    assert said.startswith("Python samples were recorded, but not exported")


def test_a_real_report_has_a_sample_a_millisecond() -> None:
    trace = loaded("h200-host-split")
    apart = sorted(trace.samples["time_ns"].diff().drop_nulls())
    assert 1_000_000 <= apart[len(apart) // 2] <= 1_050_000
    assert note_kinds(trace) == []
