"""A torch.profiler trace is decoded exactly, and tolerantly if that loses nothing."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.analysis.load import load
from nsysflow.base.errors import Damaged, NotAReport
from tests.analysis.load.kineto.traces import REAL, event, kernel, write

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
