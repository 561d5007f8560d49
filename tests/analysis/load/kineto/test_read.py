"""A torch.profiler trace becomes the same frames as an nsys report."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind
from tests.analysis.load.frames import assert_schemas
from tests.analysis.load.kineto.traces import REAL, event, kernel, write
from tests.exports import note_kinds


def test_a_real_trace_has_all_its_work_with_its_calls() -> None:
    trace = load(REAL)
    assert_schemas(trace)
    assert trace.report == "h200-kineto"
    assert trace.ops["kind"].value_counts().sort("kind")["count"].to_list() == [105, 9, 15]
    assert trace.calls.height == 154
    assert trace.ops.join(trace.calls, on=["process", "correlation"], how="anti").is_empty()
    assert trace.devices.rows() == [(0, "NVIDIA H200", None, 132, None)]
    assert trace.notes == ()
    # steps lose their number, so that they repeat
    phases = nsysflow.analyze(trace).phases
    assert phases.filter(path="ProfilerStep")["instances"].to_list() == [3]
    sides = trace.copy_details.select("direction", "source_memory", "target_memory").unique()
    assert set(sides.cast(pl.String).rows()) == {
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


def quoted(one: dict[str, Any]) -> None:
    """Write numbers as text."""
    for held in (one, one.get("args", {})):
        numbers = {key: held[key] for key in held if isinstance(held[key], int)}
        held.update({key: str(held[key]) for key in numbers if key not in ("ts", "dur")})


def aged(one: dict[str, Any]) -> None:
    """Write the categories of early Kineto versions."""
    once = {"cuda_runtime": "Runtime", "cpu_op": "Operator", "gpu_memcpy": "Memcpy"}
    once |= {"kernel": "Kernel", "gpu_memset": "Memset"}
    one["cat"] = once.get(one.get("cat", ""), one.get("cat"))


@pytest.mark.parametrize("change", [quoted, aged])
def test_numbers_in_quotes_and_early_categories_are_read_alike(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    document = json.loads(gzip.decompress(REAL.read_bytes()))
    for one in document["traceEvents"]:
        change(one)
    path = tmp_path / "h200-kineto.json"
    path.write_text(json.dumps(document))
    trace, real = load(path), load(REAL)
    for frame in ("ops", "calls", "ranges", "threads", "devices", "copy_details", "shapes"):
        assert_frame_equal(getattr(trace, frame), getattr(real, frame))


def test_operators_are_not_ranges(tmp_path: Path) -> None:
    trace = load(write(tmp_path, event("cpu_op", "aten::mm")))
    assert trace.ranges.is_empty()
    assert note_kinds(trace) == [NoteKind.NO_GPU_WORK, NoteKind.NO_RANGES]
