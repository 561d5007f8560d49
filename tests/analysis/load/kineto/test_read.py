"""A torch.profiler trace is decoded exactly, and becomes the same frames as an nsys report."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind
from nsysflow.base.errors import Damaged, NotAReport
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


SPANS = st.tuples(st.integers(0, 4_300_000_000_000_999), st.integers(0, 10**12))


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "t.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def microseconds(ns: int) -> str:
    """A time as torch writes it: three decimals."""
    return f"{ns // 1000}.{ns % 1000:03}"


@settings(max_examples=5)
@given(st.lists(SPANS, min_size=20, max_size=50))
def test_times_are_exact_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]]
) -> None:
    blank = json.dumps(event("user_annotation", "a", "TS", "DUR"))
    events = [
        blank.replace('"TS"', microseconds(start)).replace('"DUR"', microseconds(length))
        for start, length in spans
    ]
    text = f'{{"traceEvents": [{", ".join(events)}]}}'
    found = (
        load(written(tmp_path_factory.mktemp("t"), text)).ranges.select("start_ns", "end_ns").rows()
    )
    assert found == [(start, start + length) for start, length in spans]


def test_a_drawn_lane_is_not_a_stream(tmp_path: Path) -> None:
    moved = {"stream": 7, "original_stream": 41, "graph node id": 3}
    noted = {"stream": 12, "annotated_stream": 7}
    trace = load(write(tmp_path, kernel(**moved), kernel(**noted), cudaGraphInlineAnnotated=True))
    assert trace.ops["stream"].to_list() == [41, 12]


@pytest.mark.parametrize("where", [{"correlation": 2**63}, {"stream": "9" * 20}, {"bytes": 2**70}])
def test_a_number_too_large_is_damage(tmp_path: Path, where: dict[str, object]) -> None:
    copy = event("gpu_memcpy", "Memcpy HtoD", pid=0, tid=7, args={"device": 0, **where})
    with pytest.raises(Damaged, match="does not fit 64 bits") as caught:
        load(write(tmp_path, copy))
    assert caught.value.command == "profiler.export_chrome_trace('run.pt.trace.json')"


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    assert load(written(tmp_path, json.dumps([kernel()]))).ops.height == 1


def test_json_of_another_kind_is_not_a_report(tmp_path: Path) -> None:
    events = '{"traceEvents": {}}', '{"traceEvents": [{"ph": "X"}]}'
    for document in ("{}", "[]", '{"a": [1]}', *events):
        with pytest.raises(NotAReport, match="not a trace of torch"):
            load(written(tmp_path, document))


@pytest.mark.parametrize("size", [1, 100, 5000, -1, -20])
def test_a_truncated_trace_is_refused(tmp_path: Path, size: int) -> None:
    content = gzip.decompress(REAL.read_bytes()).strip()[:size]
    with pytest.raises(Damaged, match="truncated or corrupt"):
        load(written(tmp_path, content))


@pytest.mark.parametrize(
    "odd",
    [
        event("user_annotation", "a", ts=None),
        event("user_annotation", "a", ts="soon"),
        event("user_annotation", "a", ts="NaN"),
        event("user_annotation", "a", tid=True),
        event("user_annotation", "a", dur=2**60),
        event("user_annotation", "a", tid=[1]),
        kernel(device="zero"),
        kernel(correlation=2**70),
    ],
)
def test_an_impossible_event_is_damage(tmp_path: Path, odd: dict[str, Any]) -> None:
    path = write(tmp_path, odd)
    with pytest.raises(Damaged, match=f"{path} is corrupt"):
        load(path)


def test_brackets_without_end_and_half_of_a_surrogate_pair_are_damage(tmp_path: Path) -> None:
    for text in ("[" * 100_000, json.dumps([event("user_annotation", "\ud800")])):
        with pytest.raises(Damaged):
            load(written(tmp_path, text))


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity", "1e400", '"\t"', '"caf\xe9"'])
def test_near_json_that_python_reads_is_read(tmp_path: Path, odd: str) -> None:
    text = write(tmp_path, event("user_annotation", "a"), kernel(occupancy="ODD")).read_text()
    trace = load(written(tmp_path, text.replace('"ODD"', odd).encode("latin-1")))
    assert trace.ops.height == 1
    assert trace.ranges["end_ns"].to_list() == [3000]


@pytest.mark.parametrize("properties", [None, 3, [3], [{"id": "0"}], [{"id": 2**40}], [{"id": 0}]])
def test_a_gpu_is_listed_whatever_is_said_of_it(tmp_path: Path, properties: object) -> None:
    trace = load(write(tmp_path, kernel(), deviceProperties=properties))
    assert trace.devices["device"].to_list() == [0]
