"""What PyTorch's allocator did under nsys: like a snapshot, on the report's clock (spec §26.14)."""

import json
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.runtime.memory import compact
from tests.analysis.load.frames import event, mark
from tests.analysis.load.test_snapshot import (
    BEGUN_US,
    MIB,
    MODEL,
    Entry,
    block,
    happened,
    lives,
    read,
    segment,
)
from tests.exports import process, write_export
from tests.oracle.export import read_export
from tests.oracle.model import from_trace

PID: Final = 1000
LIBRARY: Final = {"filename": "/usr/lib/python3/dist-packages/torch/x.py", "line": 3, "name": "run"}
STACK: Final = [LIBRARY, MODEL]
BEGAN_NS: Final = 1000 * BEGUN_US - 5_000
"""When the report's clock was 0, by the time of the system."""


def history(segments: list[Entry], *histories: list[Entry], **more: object) -> dict[str, Any]:
    """What a process leaves of a snapshot."""
    kept = compact({"segments": segments, "device_traces": [*histories]})
    left: dict[str, Any] = json.loads(json.dumps({**kept, "pid": PID, **more}))
    return left


def export(folder: Path, *histories: object, late_ns: tuple[int, ...] = (900, 7)) -> Path:
    """An export with these histories, and marks of the process's clock that were late."""
    marks = [
        event(mark(unix_ns=BEGAN_NS + at), start=at + late)
        for at, late in zip((0, 1000), late_ns, strict=False)
    ]
    rows = [{"pid": PID, "history": json.dumps(each)} for each in histories]
    tables = {"NSYSFLOW_MEMORY": rows}
    on_gpu_1 = [{"deviceId": 1}]
    return write_export(folder / "r.sqlite", kernels=on_gpu_1, nvtx=marks, tables=tables)


@settings(max_examples=20)
@given(lives())
def test_levels_are_those_of_the_same_snapshot(
    tmp_path_factory: pytest.TempPathFactory, life: tuple[list[Entry], dict[int, int], list[int]]
) -> None:
    entries, live, _ = life
    folder = tmp_path_factory.mktemp("life")
    segments = [segment(MIB, *[block(address, size) for address, size in live.items()])]
    path = export(folder, history(segments, entries))
    found, expected = load(path), read(folder, segments, entries)
    levels = pl.exclude("time_ns", "process")
    assert found.memory.select(levels).equals(expected.memory.select(levels))
    assert {*from_trace(found).memory} == {*read_export(path).memory}


FULL: Final = history(
    [segment(4 * MIB, block(3, MIB, frames=STACK), device=1)],
    [],
    [
        happened("alloc", MIB, 0, address=2, frames=STACK),
        happened("segment_alloc", 2 * MIB, 2),
        happened("oom", 9 * MIB, 4, device_free=7, frames=[MODEL]) | {"addr": 7},
        happened("free_requested", MIB, 4, address=2),
    ],
    full=True,
)
FULL["devices"][1]["usable"] = 99


def test_times_are_the_report_s_and_lines_those_of_the_program(tmp_path: Path) -> None:
    path = export(tmp_path, FULL)
    pack(path, tmp_path / "packed.sqlite")
    for file in (path, tmp_path / "packed.sqlite"):
        trace = load(file)
        recorded = trace.memory.filter(pl.col("time_ns") > 0)
        assert recorded["time_ns"].to_list() == [5_007, 7_007, 9_008]
        assert recorded["device"].unique().to_list() == [1]
        assert recorded["process"].unique().to_list() == [process()]
        assert [str(note)[:32] for note in trace.notes][-1] == "PyTorch kept only the last chang"
        analysis = nsysflow.analyze(trace)
        failed = ("time_ns", "asked_bytes", "allocated_bytes", "reserved_bytes", "free_bytes")
        assert analysis.out_of_memory.select(failed).rows() == [
            (9_007, 9 * MIB, 2 * MIB, 4 * MIB, 7)
        ]
        assert analysis.out_of_memory["source"].to_list() == ["model.py:88 in attend"]
        assert not analysis.found.valued or analysis.found.valued[0].finding.rule == "out-of-memory"
    packed = (tmp_path / "packed.sqlite").read_bytes()
    assert b"/home/me" in path.read_bytes()
    assert b"/home/me" not in packed
    assert load(path).gpu_memory.rows() == [(process(), 1, 99)]
    assert {*from_trace(load(path)).out_of_memory} == {*read_export(path).out_of_memory}


HUGE: Final = {"history": [], "blocks": [[1, (1 << 52) - 1, None]] * 2, "reserved": 0}


@pytest.mark.parametrize(
    ("left", "late_ns", "seen"),
    [
        ({"pid": 1}, (0,), "is damaged (it is none)"),
        (FULL | {"stacks": [[9]]}, (0,), "is damaged (list index"),
        (FULL | {"stacks": []}, (0,), "is damaged (0)"),
        (FULL | {"devices": [HUGE]}, (0,), "is damaged (there are"),
        (FULL, (), "has no mark of its clock"),
    ],
)
def test_a_history_that_cannot_be_used_is_left_out(
    left: object, late_ns: tuple[int, ...], seen: str, tmp_path: Path
) -> None:
    trace = load(export(tmp_path, left, late_ns=late_ns))
    assert trace.memory.is_empty()
    assert any(seen in str(note) and str(PID) in str(note) for note in trace.notes)
