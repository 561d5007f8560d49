"""What only some exports have: stacks, samples and counters."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.load.sampled import wanted_metrics
from nsysflow.base.errors import Damaged
from tests.analyses import loaded
from tests.analysis.load.frames import DOMAINS, Frame, loaded_and_packed, stack
from tests.exports import Row, change, note_kinds, thread, write_export
from tests.oracle.export import read_export

STRINGS: Final = {500: "step", 501: "/home/me/train.py", 502: "&lt;module&gt;"}
DEEP: Final = ((500, 501, 3), (502, 501, 9))


def export(path: Path, *nvtx: dict[str, Any]) -> Path:
    return write_export(path, kernels=[{}], calls=[{}], nvtx=nvtx, strings=STRINGS)


# --- stacks ---------------------------------------------------------------------------------------


def test_each_distinct_stack_is_kept_once_innermost_frame_first(tmp_path: Path) -> None:
    rows = [(0, DEEP), (5, DEEP), (7, DEEP[1:])]
    nvtx = [stack("backtrace", start, *frames) for start, frames in rows]
    trace = load(export(tmp_path / "r.sqlite", DOMAINS["backtrace"], *nvtx))
    assert trace.backtraces.rows() == [(0, thread(), 0), (5, thread(), 0), (7, thread(), 1)]
    assert trace.frames.rows() == [
        (0, 0, "/home/me/train.py", 3, "step"),
        (0, 1, "/home/me/train.py", 9, "<module>"),
        (1, 0, "/home/me/train.py", 9, "<module>"),
    ]


def test_marks_of_other_domains_and_other_json_are_not_backtraces(tmp_path: Path) -> None:
    one = stack("backtrace", 0, *DEEP)
    junk = [{**one, "jsonText": text} for text in ("{", "[]", '{"a": 1}', "[" * 100_000)]
    nvtx = [DOMAINS["backtrace"], {**one, "domainId": 2}, *junk]
    for trace in loaded_and_packed(export(tmp_path / "r.sqlite", *nvtx)):
        assert trace.backtraces.is_empty()
        assert trace.frames.is_empty()


@pytest.mark.parametrize("frame", [(500, -5, 3), (1 << 40, 501, 3), (500, 501, 1 << 70)])
def test_a_backtrace_with_a_number_out_of_range_is_ignored(tmp_path: Path, frame: Frame) -> None:
    nvtx = DOMAINS["backtrace"], stack("backtrace", 0, frame)
    for trace in loaded_and_packed(export(tmp_path / "r.sqlite", *nvtx)):
        assert trace.backtraces.is_empty()


def test_samples_are_of_threads_that_call_cuda_each_stack_packed_once(tmp_path: Path) -> None:
    rows = [(0, DEEP), (5, DEEP[1:]), (9, DEEP)]
    nvtx = [stack("sample", start, *frames) for start, frames in rows]
    of_another = stack("sample", 6, *DEEP[1:], tid=thread(7))
    report = export(tmp_path / "r.sqlite", DOMAINS["sample"], *nvtx, of_another)
    for trace in loaded_and_packed(report):
        assert trace.samples.rows() == [(0, thread(), 0), (5, thread(), 1), (9, thread(), 0)]
        names = trace.frames.select("stack", "depth", "line", "function").rows()
        assert names == [(0, 0, 3, "step"), (0, 1, 9, "<module>"), (1, 0, 9, "<module>")]
        assert trace.backtraces.is_empty()
    packed, again = tmp_path / "packed.sqlite", tmp_path / "again.sqlite"
    pack(packed, again)
    assert again.read_bytes() == packed.read_bytes()
    with closing(sqlite3.connect(packed)) as db:
        stacks = "SELECT count(*) FROM StringIds WHERE value LIKE '%Frames%'"
        assert db.execute(stacks).fetchone() == (2,)
        assert db.execute("SELECT count(*) FROM NVTX_EVENTS").fetchone() == (4,)


def test_samples_that_were_not_exported_have_a_note(tmp_path: Path) -> None:
    nvtx: list[dict[str, Any]] = [{}, DOMAINS["sample"], {**stack("sample", 0), "jsonText": None}]
    trace = load(export(tmp_path / "r.sqlite", *nvtx))
    assert trace.samples.is_empty()
    (said,) = [note.text for note in trace.notes if note.kind.name == "BACKTRACES_NOT_EXPORTED"]
    assert said.startswith("Python samples were recorded, but not exported")


def test_a_real_report_has_a_sample_a_millisecond() -> None:
    trace = loaded("h200-host-split")
    apart = sorted(trace.samples["time_ns"].diff().drop_nulls())
    assert 1_000_000 <= apart[len(apart) // 2] <= 1_050_000
    assert note_kinds(trace) == []


# --- counters -------------------------------------------------------------------------------------

GPU_1 = 0x1000100000001


def counters(path: Path, names: dict[int, str], *values: tuple[int, int, Any]) -> Path:
    """An export with counters of one GPU: names by metric id, and (timestamp, metric, value)."""
    named: list[Row] = [
        {"typeId": GPU_1, "metricId": metric, "metricName": name} for metric, name in names.items()
    ]
    keys = ("timestamp", "metricId", "value")
    rows: list[Row] = [{"typeId": GPU_1, **dict(zip(keys, of, strict=True))} for of in values]
    tables = {"GPU_METRICS": rows, "TARGET_INFO_GPU_METRICS": named}
    return write_export(path, kernels=[{}], calls=[{}], tables=tables)


def test_a_sample_is_one_row_on_the_gpu_that_its_type_names(tmp_path: Path) -> None:
    names = {3: "SMs Active [Throughput %]", 4: "SM Issue [Throughput %]", 9: "GR Active"}
    values = [(5, 3, 90), (5, 4, 20), (5, 9, 99), (15, 3, 80)]
    for trace in loaded_and_packed(counters(tmp_path / "r.sqlite", names, *values)):
        assert trace.gpu_samples.rows() == [
            (5, 1, 90, 20, None, None, None),
            (15, 1, 80, None, None, None, None),
        ]


def test_a_counter_is_rounded_to_a_whole_number(tmp_path: Path) -> None:
    values = [20, 20.4, 20.5, 0.2, 100.0, float("inf"), None]
    rows = [(at, 3, value) for at, value in enumerate(values)]
    path = counters(tmp_path / "r.sqlite", {3: "SMs Active"}, *rows)
    found = load(path).gpu_samples["sm_active_pct"].to_list()
    assert found == [20, 20, 21, 0, 100, None]  # a row without a value is left out
    change(path, "DELETE FROM GPU_METRICS WHERE timestamp > 4")
    assert [sample.sm_active_pct for sample in read_export(path).gpu_samples] == found[:5]


def test_a_counter_that_is_text_is_damage(tmp_path: Path) -> None:
    path = counters(tmp_path / "r.sqlite", {3: "SMs Active"}, (5, 3, 20), (6, 3, "x"))
    with pytest.raises(Damaged, match="text where numbers belong"):
        load(path)


def test_a_counter_is_known_by_any_of_its_names() -> None:
    metrics = {
        "SMs Active [Throughput %]": "sm_active_pct",
        "SM Active": "sm_active_pct",
        "SM Issue": "sm_issue_pct",
        "Tensor Active [Throughput %]": "tensor_active_pct",
        "Tensor Active / FP16 Active": "tensor_active_pct",
        "DRAM Read Bandwidth [Throughput %]": "dram_read_pct",
        "VRAM Write Bandwidth": "dram_write_pct",
        "DRAM Write Throughput": "dram_write_pct",
    }
    others = ["Unallocated Warps in Active SMs [Throughput %]", "Compute Warps in Flight [Avg]"]
    others += ["SMs Active [Avg]", "PCIe Read Throughput", "DRAM Bandwidth"]
    names = pl.DataFrame({"typeId": 1, "metricName": [*metrics, *others]}).with_row_index(
        "metricId"
    )
    assert wanted_metrics(names)["metric"].to_list() == [*metrics.values()]
