"""A torch.profiler trace becomes the same frames, exact to the nanosecond."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import Trace
from nsysflow.errors import Damaged, NotAReport
from tests.load.test_nsys_sqlite import assert_schemas
from tests.reports import DATA

REAL = DATA / "h200-kineto.pt.trace.json.gz"
PID = 813


def event(cat: str, name: str, ts: object = 1, dur: object = 2, **more: object) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": PID,
        "tid": PID,
        "ts": ts,
        "dur": dur,
        **more,
    }


def kernel(**args: object) -> dict[str, Any]:
    return event("kernel", "k", pid=0, tid=7, args={"device": 0, "stream": 7, **args})


def write(folder: Path, *events: object, **document: object) -> Path:
    path = folder / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, **document, "traceEvents": events}))
    return path


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


def test_autograd_threads_are_known_by_name_and_the_main_thread_by_its_id() -> None:
    threads = load(REAL).threads
    tids = threads.select(pid=pl.col("process") // 2**24, tid=pl.col("thread") & 0xFFFFFF)
    assert tids.rows() == [(813, 813), (813, 834)]
    assert threads["name"].to_list() == ["python3", "pt_autograd_0"]


def test_pageable_and_pinned_copies_are_told_apart() -> None:
    details = load(REAL).copy_details.unique().sort("direction")
    sides = details.select("direction", "source_memory", "target_memory").cast(pl.String).rows()
    assert set(sides) == {
        ("HtoD", "pageable", "device"),
        ("DtoH", "device", "pinned"),
        ("DtoD", "device", "device"),
    }


@given(st.integers(0, 4_300_000_000_000_999), st.integers(0, 10**12))
def test_times_are_exact_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, start_ns: int, length_ns: int
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.json"
    ts, dur = (f"{ns // 1000}.{ns % 1000:03}" for ns in (start_ns, length_ns))
    text = json.dumps({"traceEvents": [event("user_annotation", "a", "TS", "DUR")]})
    path.write_text(text.replace('"TS"', ts).replace('"DUR"', dur))
    found = load(path).ranges
    assert found.select("start_ns", "end_ns").rows() == [(start_ns, start_ns + length_ns)]


def test_ids_too_large_for_an_os_thread_become_small_distinct_ones(tmp_path: Path) -> None:
    large = [140_737_000_000_001, 140_737_000_000_002, -5]
    events = [event("cuda_runtime", "cudaLaunchKernel", tid=tid) for tid in [PID, *large]]
    calls = load(write(tmp_path, *events)).calls
    assert calls["process"].unique().to_list() == [PID << 24]
    tids = [thread & 0xFFFFFF for thread in calls["thread"].to_list()]
    assert tids[0] == PID
    assert len(set(tids)) == 4
    assert [thread & ~0xFFFFFF for thread in calls["thread"].to_list()] == [PID << 24] * 4


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


def test_numbers_between_quotes_are_numbers(tmp_path: Path) -> None:
    def quote(one: dict[str, Any]) -> None:
        for held in (one, one.get("args", {})):
            numbers = {key: held[key] for key in held if isinstance(held[key], int)}
            held.update({key: str(held[key]) for key in numbers if key not in ("ts", "dur")})

    assert_as_the_real_one(rewritten(tmp_path, quote))


def test_categories_of_the_first_kineto_are_those_of_today(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("where", [{"correlation": 2**63}, {"stream": "9" * 20}, {"bytes": 2**70}])
def test_a_number_too_large_is_named_in_one_sentence(
    tmp_path: Path, where: dict[str, object]
) -> None:
    copy = event("gpu_memcpy", "Memcpy HtoD", pid=0, tid=7, args={"device": 0, **where})
    with pytest.raises(Damaged) as caught:
        load(write(tmp_path, copy))
    sentence, _, hint = str(caught.value).partition("\n")
    assert "a number that takes more than 63 bits. Write one" in sentence
    assert hint == "  profiler.export_chrome_trace('run.pt.trace.json')"


def test_operators_are_no_ranges_and_no_gpu_work_is_noted(tmp_path: Path) -> None:
    trace = load(write(tmp_path, event("cpu_op", "aten::mm")))
    assert trace.ranges.is_empty()
    assert any("no GPU work" in note for note in trace.notes)
    assert any("record_function" in note for note in trace.notes)


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([kernel()]))
    assert load(path).ops.height == 1


@pytest.mark.parametrize(
    "document", ["{}", "[]", '{"a": [1]}', '{"traceEvents": {}}', '{"traceEvents": [{"ph": "X"}]}']
)
def test_json_of_another_kind_is_no_report(tmp_path: Path, document: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(document)
    with pytest.raises(NotAReport, match="not a trace of torch"):
        load(path)


@pytest.mark.parametrize("size", [1, 100, 5000, -1, -20])
def test_a_truncated_trace_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.decompress(REAL.read_bytes()).strip()[:size])
    with pytest.raises(Damaged, match="truncated or corrupt"):
        load(path)


@pytest.mark.parametrize(
    "odd",
    [
        event("user_annotation", "a", ts=None),
        event("user_annotation", "a", ts="soon"),
        event("user_annotation", "a", dur=2**60),
        event("user_annotation", "a", tid=[1]),
        kernel(device="zero"),
        kernel(correlation=2**70),
    ],
)
def test_an_event_that_cannot_be_is_damage(tmp_path: Path, odd: dict[str, Any]) -> None:
    path = write(tmp_path, odd)
    with pytest.raises(Damaged, match=f"{path} is corrupt"):
        load(path)


def test_brackets_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[" * 100_000)
    with pytest.raises(Damaged):
        load(path)
