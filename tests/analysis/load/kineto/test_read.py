"""A torch.profiler trace becomes the same frames as an nsys report."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.notes import NoteKind
from nsysflow.analysis.trace import Trace
from tests.analysis.load.frames import assert_schemas
from tests.analysis.load.kineto.traces import REAL, event, kernel, write
from tests.exports import note_kinds


def test_a_real_trace_has_its_schemas_and_all_its_work() -> None:
    trace = load(REAL)
    assert_schemas(trace)
    assert trace.report == "h200-kineto"
    assert trace.ops["kind"].value_counts().sort("kind")["count"].to_list() == [105, 9, 15]
    assert trace.calls.height == 154
    assert trace.devices.rows() == [(0, "NVIDIA H200", None, 132, None)]
    assert trace.notes == ()


def test_every_operation_of_a_real_trace_finds_its_call() -> None:
    trace = load(REAL)
    keys = ["process", "correlation"]
    assert trace.ops.join(trace.calls, on=keys, how="anti").is_empty()


def test_steps_lose_their_number_so_that_they_repeat() -> None:
    phases = nsysflow.analyze(load(REAL)).phases
    assert phases.filter(path="ProfilerStep")["instances"].to_list() == [3]


def test_pageable_and_pinned_copies_are_distinguished() -> None:
    details = load(REAL).copy_details.unique().sort("direction")
    sides = details.select("direction", "source_memory", "target_memory").cast(pl.String).rows()
    assert set(sides) == {
        ("HtoD", "pageable", "device"),
        ("DtoH", "device", "pinned"),
        ("DtoD", "device", "device"),
    }


def test_what_a_trace_lacks_is_null(tmp_path: Path) -> None:
    copy = event("gpu_memcpy", "Memcpy HtoD", pid=1, tid=7, args={})
    trace = load(write(tmp_path, kernel(correlation=0), copy))
    assert_schemas(trace)
    assert trace.shapes.rows() == [(None,) * 8]
    assert trace.copy_details.rows() == [(None, "HtoD", None, None)]
    assert trace.ops["correlation"].to_list() == [None, None]
    assert trace.ops["process"].to_list() == [None, None]
    assert trace.ops["device"].to_list() == [0, 1]


def rewritten(folder: Path, change: Callable[[dict[str, Any]], object]) -> Trace:
    """The real trace, after a change to each of its events."""
    document = json.loads(gzip.decompress(REAL.read_bytes()))
    for one in document["traceEvents"]:
        change(one)
    path = folder / "h200-kineto.json"
    path.write_text(json.dumps(document))
    return load(path)


def assert_as_the_real_one(trace: Trace) -> None:
    real = load(REAL)
    for frame in ("ops", "calls", "ranges", "threads", "devices", "copy_details", "shapes"):
        assert_frame_equal(getattr(trace, frame), getattr(real, frame))


def test_quoted_numbers_are_numbers(tmp_path: Path) -> None:
    def quote(one: dict[str, Any]) -> None:
        for held in (one, one.get("args", {})):
            numbers = {key: held[key] for key in held if isinstance(held[key], int)}
            held.update({key: str(held[key]) for key in numbers if key not in ("ts", "dur")})

    assert_as_the_real_one(rewritten(tmp_path, quote))


def test_categories_of_early_kineto_versions_are_read(tmp_path: Path) -> None:
    once = {
        "kernel": "Kernel",
        "cuda_runtime": "Runtime",
        "cpu_op": "Operator",
        "gpu_memcpy": "Memcpy",
        "gpu_memset": "Memset",
    }

    def age(one: dict[str, Any]) -> None:
        one["cat"] = once.get(one.get("cat", ""), one.get("cat"))

    assert_as_the_real_one(rewritten(tmp_path, age))


def test_operators_are_not_ranges(tmp_path: Path) -> None:
    trace = load(write(tmp_path, event("cpu_op", "aten::mm")))
    assert trace.ranges.is_empty()
    assert note_kinds(trace) == [NoteKind.NO_GPU_WORK, NoteKind.NO_RANGES]
