"""What only some exports have: stacks, samples, counters, and the JSON of marks and of NCCL."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.marks import capture_rows, first_of_each, flops_rows
from nsysflow.analysis.load.messages import sent, slim_payload
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.load.sampled import wanted_metrics
from nsysflow.analysis.trace import NoteKind
from tests.analyses import loaded
from tests.analysis.load.frames import (
    DOMAINS,
    Frame,
    assert_read,
    counters,
    event,
    loaded_and_packed,
    mark,
    stack,
)
from tests.analysis.load.kineto import traces
from tests.exports import change, note_kinds, process, thread, write_export
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
    out_of_range: tuple[Frame, ...] = ((500, -5, 3), (1 << 40, 501, 3), (500, 501, 1 << 70))
    junk += [stack("backtrace", 0, frame) for frame in out_of_range]
    nvtx = [DOMAINS["backtrace"], {**one, "domainId": 2}, *junk]
    for trace in loaded_and_packed(export(tmp_path / "r.sqlite", *nvtx)):
        assert trace.backtraces.is_empty()
        assert trace.frames.is_empty()


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


def test_a_real_report_has_a_sample_a_millisecond() -> None:
    trace = loaded("h200-host-split")
    apart = sorted(trace.samples["time_ns"].diff().drop_nulls())
    assert 1_000_000 <= apart[len(apart) // 2] <= 1_050_000
    assert note_kinds(trace) == []


# --- Python's lock --------------------------------------------------------------------------------


def locked(start: int, end: int | None, tid: int, **text: object) -> dict[str, Any]:
    """A range in nsys's domain of the GIL."""
    return {"start": start, "end": end, "domainId": 4, "globalTid": thread(tid), **text}


GIL_EVENTS: Final = (
    {"eventType": 75, "textId": "GIL Trace", "text": None, "domainId": 4, "end": None},
    locked(10, 20, 7, text=None, textId="Holding GIL"),
    locked(12, 20, 8, text="Waiting for GIL"),
    locked(20, None, 8, text="Holding GIL"),
    locked(30, 40, 8, text="Something new"),
    locked(30, 40, 8, text="Waiting for GIL", eventType=34),
)


def test_ranges_of_the_gil_are_no_ranges_and_its_threads_keep_their_samples(tmp_path: Path) -> None:
    of_holder, of_another = (stack("sample", 5, *DEEP, tid=thread(tid)) for tid in (7, 9))
    report = export(
        *(tmp_path / "r.sqlite", DOMAINS["sample"], of_holder, of_another, *GIL_EVENTS),
        {"text": "GIL Trace", "start": 1, "end": 50},
    )
    for trace in loaded_and_packed(report):
        assert trace.ranges["name"].to_list() == ["GIL Trace"]
        assert trace.gil.rows() == [
            (10, 20, thread(7), "holding"),
            (12, 20, thread(8), "waiting"),
            (20, None, thread(8), "holding"),
        ]
        assert trace.samples.rows() == [(5, thread(7), 0)]
        of_oracle = read_export(report)
        assert [row.state for row in of_oracle.gil] == trace.gil["state"].to_list()
        assert [row.thread for row in of_oracle.samples] == [thread(7)]


def test_threads_whose_cpu_time_was_read_keep_their_samples(tmp_path: Path) -> None:
    of_read, of_another = (stack("sample", 5, *DEEP, tid=thread(tid)) for tid in (7, 9))
    read = event(mark(thread_cpu=[[1000, 5, 0], [7, 6, 0]]), start=3)
    report = export(tmp_path / "r.sqlite", DOMAINS["sample"], of_read, of_another, read)
    for trace in loaded_and_packed(report):
        assert trace.samples.rows() == [(5, thread(7), 0)]
        assert [row.thread for row in read_export(report).samples] == [thread(7)]
    none = export(tmp_path / "none.sqlite", DOMAINS["sample"], of_read, event(mark()))
    for trace in loaded_and_packed(none):
        assert trace.samples.is_empty()


def test_a_report_with_ranges_of_the_gil_alone_has_no_ranges(tmp_path: Path) -> None:
    trace = load(export(tmp_path / "r.sqlite", *GIL_EVENTS))
    assert trace.ranges.is_empty()
    assert NoteKind.NO_RANGES in note_kinds(trace)


# --- counters -------------------------------------------------------------------------------------


def counted(path: Path, names: dict[int, str], *values: tuple[int, int, Any]) -> Path:
    """An export with these counters."""
    return write_export(path, kernels=[{}], calls=[{}], tables=counters(names, *values))


def test_a_sample_is_one_row_on_the_gpu_that_its_type_names(tmp_path: Path) -> None:
    names = {3: "SMs Active [Throughput %]", 4: "SM Issue [Throughput %]", 9: "GR Active"}
    values = [(5, 3, 90), (5, 4, 20), (5, 9, 99), (15, 3, 80)]
    for trace in loaded_and_packed(counted(tmp_path / "r.sqlite", names, *values)):
        assert trace.gpu_samples.rows() == [
            (5, 1, 90, 20, None, None, None),
            (15, 1, 80, None, None, None, None),
        ]


def test_a_counter_is_rounded_to_a_whole_number(tmp_path: Path) -> None:
    values = [20, 20.4, 20.5, 0.2, 100.0, float("inf"), None]
    rows = [(at, 3, value) for at, value in enumerate(values)]
    path = counted(tmp_path / "r.sqlite", {3: "SMs Active"}, *rows)
    found = load(path).gpu_samples["sm_active_pct"].to_list()
    assert found == [20, 20, 21, 0, 100, None]  # a row without a value is left out
    change(path, "DELETE FROM GPU_METRICS WHERE timestamp > 4")
    assert [sample.sm_active_pct for sample in read_export(path).gpu_samples] == found[:5]


def test_a_counter_that_is_text_leaves_all_counters_out_with_a_note(tmp_path: Path) -> None:
    path = counted(tmp_path / "r.sqlite", {3: "SMs Active"}, (5, 3, 20), (6, 3, "x"))
    trace = load(path)
    assert trace.gpu_samples.is_empty()
    assert NoteKind.UNREAD_TABLES in note_kinds(trace)


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


# --- marks ----------------------------------------------------------------------------------------

WINDOW = {"capture": "3:2:5", "unprofiled_step_ns": 7}
FLOPS = {"unit": "bf16", "phases": {"forward": 10**12, "backward": 2 * 10**12}}


def test_the_first_mark_of_each_process_has_its_window_and_flops(tmp_path: Path) -> None:
    report = export(
        tmp_path / "r.sqlite",
        event("hello"),
        event(None, textId=mark(**WINDOW, flops=FLOPS)),
        event(mark(capture="9:9:9", flops={"unit": "tf32", "phases": {"forward": 5}})),
        event(mark(capture="0:0:1"), thread(2000, 2000)),
    )
    for trace in loaded_and_packed(report):
        assert trace.captures.rows() == [(process(), "3:2:5", 7), (process(2000), "0:0:1", None)]
        assert trace.flops.rows() == [
            (process(), "forward", 10**12, "bf16"),
            (process(), "backward", 2 * 10**12, "bf16"),
        ]


@pytest.mark.parametrize(
    "flops",
    [
        None,
        "many",
        {"unit": "bf16"},
        {"unit": "bf16", "phases": {}},
        {"unit": "int4", "phases": {"forward": 1}},
        {"unit": "bf16", "phases": {"forward": -1}},
        {"unit": "bf16", "phases": {"forward": True}},
        {"unit": "bf16", "phases": {"forward": 1.5}},
        {"unit": "bf16", "phases": {"forward": 1 << 63}},
        {"unit": ["bf16"], "phases": {"forward": 1}},
    ],
)
def test_flops_that_cannot_be_used_leave_the_rest_of_the_mark(flops: object) -> None:
    found = first_of_each([(1, mark(**WINDOW, flops=flops))])
    assert flops_rows(found).is_empty()
    assert capture_rows(found).rows() == [(1, "3:2:5", 7)]


def test_foreign_marks_are_ignored_and_impossible_times_null(tmp_path: Path) -> None:
    other = [mark(capture=3), mark(capture="/home/me/secret"), '{"nsysflow": ', '{"nsysflow": 3}']
    other += ['{"nsysflow": ' + "[" * 100_000, '{"other": {"capture": "3:2:5"}}', "[]", "nsysflow"]
    impossible = [mark(capture="3:2:5", unprofiled_step_ns=ns) for ns in (-4, 0, 10**30, 1.5, True)]
    pids = range(1, 1 + len(other) + len(impossible))
    marks = [
        event(text, thread(1, pid)) for pid, text in zip(pids, other + impossible, strict=True)
    ]
    captures = load(export(tmp_path / "r.sqlite", *marks)).captures
    assert captures.rows() == [(process(pid), "3:2:5", None) for pid in pids[len(other) :]]


def listed(clock_ns: int, *ranges: Any) -> str:
    """The text of a mark that lists the ranges of captured graphs."""
    return mark(clock_ns=clock_ns, graph_ranges=ranges)


def test_listed_ranges_move_by_the_smallest_difference_of_clocks(tmp_path: Path) -> None:
    forward = ("forward", None, 8_000, 8_400, 1002)
    step = ("step", "nsysflow.auto", 8_500, 8_600, 7)
    report = export(
        tmp_path / "r.sqlite",
        event(listed(9_000), start=100),
        event(listed(9_100), start=110),
        event(listed(9_200, forward, step), start=290),
        event(listed(2_000, ("b", None, 2_000, 2_001, 1)), thread(2000, 2000), start=6),
        *(event(listed(1, unusable)) for unusable in ([1, None, 2, 3, 4], ["a", None, -2, 3, 4])),
        event(mark(clock_ns=1, graph_ranges=7)),
    )
    other = process(2000)
    for trace in loaded_and_packed(report):
        assert trace.graph_ranges.rows() == [
            (-990, -590, "push_pop", process(), thread(1002), None, "forward", 0),
            (-490, -390, "push_pop", process(), thread(7), "nsysflow.auto", "step", 1),
            (6, 7, "push_pop", other, thread(1, 2000), None, "b", 2),
        ]


def test_a_kineto_trace_holds_the_window_beside_its_events(tmp_path: Path) -> None:
    call = traces.call(1, 1)
    for about, rows in (({"nsysflow": WINDOW}, [(traces.PID << 24, "3:2:5", 7)]), ({}, [])):
        trace = load(traces.write(tmp_path, call, traces.kernel(), **about))
        assert trace.captures.rows() == rows


REAL = (
    '{"NCCL communicator ID":15653356006786056834,"Message size [bytes]":33554432,'
    '"Reduction operation":"Sum"}'
)
"""A payload as nsys 2025.3 exports it with --include-json=true."""


def test_a_payload_has_size_and_communicator_and_a_slim_one_nothing_else() -> None:
    slim = slim_payload(REAL)
    assert slim is not None
    assert sent(slim) == sent(REAL) == (33_554_432, 15_653_356_006_786_056_834)
    assert set(json.loads(slim)) == {"NCCL communicator ID", "Message size [bytes]"}
    assert slim_payload(slim) == slim


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", '"Message size [bytes]"', "[" * 100_000, '{"No. of ranks":2,"Rank":0}'),
        *(f'{{"Message size [bytes]":{n}}}' for n in ('"33"', -1, 9223372036854775808, "true")),
    ],
)
def test_a_payload_without_a_usable_size_is_left_out(text: str) -> None:
    assert sent(text)[0] is None
    assert slim_payload(text) is None


# --- what calls returned --------------------------------------------------------------------------

FULL: Final = {"nameId": "cudaMalloc_v3020", "returnValue": 2}
FREED: Final = {"start": 40, "end": 50, "nameId": "cudaFree_v3020"}


@pytest.mark.parametrize(
    ("calls", "failed"),
    [
        ([FULL, FREED], [(0, 10, process(), thread(), 1, "cudaMalloc")]),
        (
            [{**FULL, "nameId": "cuMemCreate"}, {**FREED, "nameId": "cuMemRelease"}],
            [(0, 10, process(), thread(), 1, "cuMemCreate")],
        ),
        ([{**FULL, "returnValue": 1}, FREED], []),  # for another reason
        ([{**FULL, "nameId": "cudaEventQuery"}, {**FULL, "returnValue": 0}, FREED], []),
        ([{**FULL, "nameId": "cudaMallocHost"}, {"nameId": "cudaMalloc"}, FREED], []),  # the host's
    ],
)
def test_allocations_that_found_no_memory_are_read_and_packed(
    tmp_path: Path, calls: list[dict[str, Any]], failed: list[tuple[Any, ...]]
) -> None:
    assert_read(write_export(tmp_path / "r.sqlite", kernels=[{}], calls=calls), failed_calls=failed)


def test_a_report_without_return_values_or_frees_has_no_failed_calls(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[FULL, FREED])
    change(report, "ALTER TABLE CUPTI_ACTIVITY_KIND_RUNTIME DROP COLUMN returnValue")
    assert_read(report, failed_calls=[])
    assert note_kinds(load(report)) == [NoteKind.NO_RANGES]
    alone = load(write_export(tmp_path / "alone.sqlite", kernels=[{}], calls=[FULL]))
    assert alone.failed_calls.is_empty()  # nothing was tried again
