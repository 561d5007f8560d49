"""What only some exports have: stacks, samples and counters."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.load.sampled import wanted_metrics
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import Damaged
from tests.analyses import loaded
from tests.exports import Row, change, note_kinds, thread, write_export
from tests.oracle.export import read_export

BACKTRACES = {"eventType": 75, "text": "Python Backtrace on CUDA", "domainId": 1}


def stack(*frames: tuple[int, int, int]) -> str:
    """A backtrace's JSON of (function, file, line)."""
    rows = [{"Function": f, "File": file, "Line": line} for f, file, line in frames]
    about = {"Thread state": "Running", "Frames count": len(rows), "Frames": rows}
    return json.dumps({"Python Backtrace on CUDA": about})


def backtrace(start: int, *frames: tuple[int, int, int]) -> dict[str, Any]:
    return {"start": start, "eventType": 34, "domainId": 1, "jsonText": stack(*frames)}


def export(path: Path, nvtx: list[dict[str, Any]], strings: dict[int, str] | None = None) -> Path:
    return write_export(path, kernels=[{}], calls=[{}], nvtx=nvtx, strings=strings)


# --- backtraces -----------------------------------------------------------------------------------


def test_each_distinct_stack_is_kept_once_innermost_frame_first(tmp_path: Path) -> None:
    strings = {500: "step", 501: "/home/me/train.py", 502: "&lt;module&gt;"}
    frames = ((500, 501, 3), (502, 501, 9))
    nvtx = [BACKTRACES, backtrace(0, *frames), backtrace(5, *frames), backtrace(7, frames[1])]
    trace = load(export(tmp_path / "r.sqlite", nvtx, strings))
    assert trace.backtraces.rows() == [(0, thread(), 0), (5, thread(), 0), (7, thread(), 1)]
    assert trace.frames.rows() == [
        (0, 0, "/home/me/train.py", 3, "step"),
        (0, 1, "/home/me/train.py", 9, "<module>"),
        (1, 0, "/home/me/train.py", 9, "<module>"),
    ]


def test_marks_of_other_domains_and_other_json_are_not_backtraces(tmp_path: Path) -> None:
    other = backtrace(0, (500, 501, 3)) | {"domainId": 2}
    junk = [{**other, "domainId": 1, "jsonText": text} for text in ("{", "[]", '{"a": 1}')]
    trace = load(export(tmp_path / "r.sqlite", [BACKTRACES, other, *junk]))
    assert trace.backtraces.is_empty()
    assert trace.frames.is_empty()


@pytest.mark.parametrize("frame", [(500, -5, 3), (1 << 40, 501, 3), (500, 501, 1 << 70)])
def test_a_backtrace_with_a_number_out_of_range_is_ignored(
    tmp_path: Path, frame: tuple[int, int, int]
) -> None:
    report = export(tmp_path / "r.sqlite", [BACKTRACES, backtrace(0, frame)])
    assert load(report).backtraces.is_empty()
    pack(report, tmp_path / "packed.sqlite")
    assert load(tmp_path / "packed.sqlite").backtraces.is_empty()


# --- counters -------------------------------------------------------------------------------------

GPU_1 = 0x1000100000001


def counters(path: Path, names: dict[int, str], values: list[tuple[int, int, int, Any]]) -> Path:
    """An export with counters: names by metric id, and (timestamp, type, metric, value)."""
    keys = ("timestamp", "typeId", "metricId", "value")
    types = {type_id for _, type_id, *_ in values}
    named: list[Row] = [
        {"typeId": type_id, "metricId": metric, "metricName": name}
        for type_id in types
        for metric, name in names.items()
    ]
    rows: list[Row] = [dict(zip(keys, value, strict=True)) for value in values]
    tables = {"GPU_METRICS": rows, "TARGET_INFO_GPU_METRICS": named}
    return write_export(path, kernels=[{}], calls=[{}], tables=tables)


def test_a_sample_is_one_row_on_the_gpu_that_its_type_names(tmp_path: Path) -> None:
    names = {3: "SMs Active [Throughput %]", 4: "SM Issue [Throughput %]", 9: "GR Active"}
    values = [(5, GPU_1, 3, 90), (5, GPU_1, 4, 20), (5, GPU_1, 9, 99), (15, GPU_1, 3, 80)]
    path = counters(tmp_path / "r.sqlite", names, values)
    packed = tmp_path / "packed.sqlite"
    pack(path, packed)
    for report in (path, packed):
        assert load(report).gpu_samples.rows() == [
            (5, 1, 90, 20, None, None, None),
            (15, 1, 80, None, None, None, None),
        ]


def test_a_counter_is_rounded_to_a_whole_number(tmp_path: Path) -> None:
    values = [20, 20.4, 20.5, 0.2, 100.0, float("inf"), None]
    rows = [(at, GPU_1, 3, value) for at, value in enumerate(values)]
    path = counters(tmp_path / "r.sqlite", {3: "SMs Active"}, rows)
    found = load(path).gpu_samples["sm_active_pct"].to_list()
    assert found == [20, 20, 21, 0, 100, None]  # a row without a value is left out
    change(path, "DELETE FROM GPU_METRICS WHERE timestamp > 4")
    assert [sample.sm_active_pct for sample in read_export(path).gpu_samples] == found[:5]


def test_a_counter_that_is_text_is_damage(tmp_path: Path) -> None:
    path = counters(
        tmp_path / "r.sqlite", {3: "SMs Active"}, [(5, GPU_1, 3, 20), (6, GPU_1, 3, "x")]
    )
    with pytest.raises(Damaged, match="text where numbers belong"):
        load(path)


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("SMs Active [Throughput %]", "sm_active_pct"),
        ("SM Active", "sm_active_pct"),
        ("SM Issue", "sm_issue_pct"),
        ("Tensor Active [Throughput %]", "tensor_active_pct"),
        ("Tensor Active / FP16 Active", "tensor_active_pct"),
        ("DRAM Read Bandwidth [Throughput %]", "dram_read_pct"),
        ("VRAM Write Bandwidth", "dram_write_pct"),
        ("DRAM Write Throughput", "dram_write_pct"),
        ("Unallocated Warps in Active SMs [Throughput %]", None),
        ("Compute Warps in Flight [Avg]", None),
        ("SMs Active [Avg]", None),
        ("PCIe Read Throughput", None),
        ("DRAM Bandwidth", None),
    ],
)
def test_a_counter_is_known_by_any_of_its_names(name: str, metric: str | None) -> None:
    names = pl.DataFrame({"typeId": [1], "metricId": [2], "metricName": [name]})
    found = wanted_metrics(names)["metric"].to_list()
    assert found == ([] if metric is None else [metric])


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
