"""What mutated inputs broke once, made small."""

import json
import pickle
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

import nsysflow
from nsysflow.agents.folder import Folder, Reports
from nsysflow.agents.server import Tools
from nsysflow.analysis.load import folders
from nsysflow.analysis.load.export_tables import TABLES
from nsysflow.analysis.load.folders import EXPORTS, read_folder
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.load.plain_pickle import OddPickle, plain_values
from nsysflow.analysis.load.snapshot import _trace_of, is_snapshot
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay import calls as replay_calls
from nsysflow.analysis.replay.apply import Names
from nsysflow.analysis.replay.calls import _turns
from nsysflow.analysis.replay.changes import Removal
from nsysflow.analysis.replay.replay import recorded
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.trace import NoteKind
from nsysflow.base.errors import Damaged
from nsysflow.base.names import CONTROLS
from tests.analysis.test_invariants import assert_invariants
from tests.cli.running import refused, run
from tests.exports import change, write_export
from tests.fuzz.inputs import small_export
from tests.fuzz.mutations import _as_bytes
from tests.oracle.model import to_trace
from tests.pftrace import INCREMENTAL, MAIN_TRACK, Rocprof
from tests.rocpd import FORMS, Database, Form, write_rocpd
from tests.tiny import WORKER, analysis_of, call, kernel, launch, opened, plain_of


def test_work_of_no_length_has_no_idle_time_to_explain() -> None:
    analysis = analysis_of(launch(0, 5, 1), kernel(10, 10, 1))
    assert analysis.accounting["window_ns"].to_list() == [0]
    assert "idle-gpu" not in [each.finding.rule for each in analysis.found.valued]


def test_a_range_without_a_name_is_a_phase_like_others() -> None:
    analysis = analysis_of(
        *(opened(0, 30, ""), launch(1, 5, 1), kernel(5, 10, 1), kernel(20, 25, 2)),
        *(launch(12, 18, 2), launch(31, 33, 3), kernel(40, 45, 3)),
    )
    assert analysis.phases["path"].to_list() == ["(nameless)"]
    assert_invariants(analysis)


@pytest.mark.parametrize("form", FORMS)
def test_calls_of_an_unknown_thread_are_replayed_and_left_out_of_pictures(
    tmp_path: Path, form: Form
) -> None:
    rocprof = Database(form)
    rocprof.call(0, 10, 1)
    rocprof.kernel(12, 40, 1)
    rocprof.call(41, 100, 2, "hipDeviceSynchronize")
    for rows in rocprof.rows.values():
        for row in rows:
            row.update({name: None for name in ("tid", "track_id", "pid") if name in row})
    report = write_rocpd(tmp_path / "1_results.db", rocprof)
    assert run("whatif", report, "--remove", "all").exit_code == 0
    assert run("show", report, "--no-browser").exit_code == 0


SNAPSHOT: Final[dict[object, Any]] = {"segments": [], "device_traces": [[]]}


def test_a_name_in_a_snapshot_that_holds_itself_many_times_over_ends() -> None:
    name: Any = ["x"]
    for _ in range(60):
        name = [name, name]
    annotation = {"name": name, "stage": "START", "time_us": 1}
    with pytest.raises(ValueError, match="no name"):
        _trace_of({**SNAPSHOT, "external_annotations": [annotation]}, "r")


def test_a_key_in_a_pickle_that_holds_itself_many_times_over_ends() -> None:
    twice = b"".join(b"q%ch%c\x86" % (at, at) for at in range(60))
    with pytest.raises(OddPickle, match="neither text nor a number"):
        plain_values(b"\x80\x04}K\x01" + twice + b"K\x01s.")


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_a_snapshot_is_one_in_each_way_to_pickle_it(protocol: int) -> None:
    assert is_snapshot(pickle.dumps(SNAPSHOT, protocol=protocol))


def test_the_name_of_a_gpu_does_not_control_the_terminal(tmp_path: Path) -> None:
    gpu = {"name": "H200\x1b[2J"}
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], gpus=[gpu])
    said = run("analyze", report, "--no-files").output
    assert "H200·[2J" in said
    assert "\x1b" not in said


def test_a_wait_of_an_unknown_thread_is_in_no_phase() -> None:
    inside, outside, unknown = (call(at, at + 5, "cudaStreamSynchronize") for at in (3, 31, 10))
    plain = plain_of(
        *(opened(0, 30, "step"), launch(0, 2, 1), kernel(2, 8, 1), launch(16, 18, 2)),
        *(kernel(18, 25, 2), inside, outside, call(1, 2, "cudaGetDevice", thread=WORKER)),
    )
    calls = to_trace(plain_of(unknown)).calls.with_columns(thread=pl.lit(None, pl.Int64))
    trace = to_trace(plain)
    timeline = Timeline(replace(trace, calls=pl.concat([trace.calls, calls])), Options())
    names = Names(timeline=timeline, recorded=recorded(timeline))
    assert len(names.stalls(Removal(kind="sync", at="step"))) == 1


def mark(at: int, **ours: object) -> dict[str, Any]:
    """A mark of ours in an export."""
    return {"eventType": 34, "start": at, "end": None, "text": json.dumps({"nsysflow": ours})}


METRIC: Final = {"typeId": 1, "metricId": 9}
ALLOCATED: Final = {"history": [("alloc", 1, 512, 10**15, None)], "blocks": [], "reserved": 512}
HISTORY: Final = {
    "pid": 1000,
    "frames": [],
    "stacks": [],
    "devices": [{**ALLOCATED, "usable": 4096}],
}
MEMORY: Final = {"NSYSFLOW_MEMORY": [{"pid": 1000, "history": json.dumps(HISTORY)}]}


@pytest.mark.parametrize("at", [-(1 << 63), (1 << 63) - 1])
def test_an_event_at_an_impossible_time_is_left_out(tmp_path: Path, at: int) -> None:
    ranges = [["layer", None, 5, 7, 1000]]
    metrics: dict[str, Any] = {
        "GPU_METRICS": [{"timestamp": time, **METRIC, "value": 99} for time in (at, 5)],
        "TARGET_INFO_GPU_METRICS": [{**METRIC, "metricName": "SM Active"}],
    }
    report = write_export(
        tmp_path / "r.sqlite",
        kernels=[{}],
        calls=[{}],
        nvtx=[mark(at, clock_ns=9, graph_ranges=ranges), mark(at, unix_ns=1_000)],
        tables={**metrics, **MEMORY},
    )
    trace = nsysflow.load(report)
    assert trace.gpu_samples["time_ns"].to_list() == [5]
    assert [note.text[:20] for note in trace.notes if note.kind == NoteKind.UNUSABLE_ROWS] == [
        "3 rows were left out"
    ]


def test_memory_without_steps_has_no_larger_batch(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", nvtx=[mark(0, unix_ns=1_000)], tables=MEMORY)
    assert nsysflow.analyze(nsysflow.load(report)).larger_batch.is_empty()


def test_an_export_without_texts_of_ranges_is_packed(tmp_path: Path) -> None:
    report, out = tmp_path / "r.sqlite", tmp_path / "p.sqlite"
    ours = mark(0, clock_ns=9, graph_ranges=[["layer", None, 5, 7, 1000]])
    registered = [{**ours, "textId": ours["text"]}, {"textId": "step"}]
    change(
        write_export(report, kernels=[{}], calls=[{}], nvtx=registered),
        "ALTER TABLE NVTX_EVENTS DROP COLUMN text",
    )
    pack(report, out)
    before, after = nsysflow.load(report), nsysflow.load(out)
    assert before.ranges["name"].to_list() == after.ranges["name"].to_list() == ["step"]
    assert (
        before.graph_ranges["name"].to_list() == after.graph_ranges["name"].to_list() == ["layer"]
    )


def test_of_two_strings_with_one_number_the_first_is_packed(tmp_path: Path) -> None:
    report, out = tmp_path / "r.sqlite", tmp_path / "p.sqlite"
    change(
        write_export(report, kernels=[{}], calls=[{}]),
        "CREATE TABLE twice AS SELECT * FROM StringIds",
        "INSERT INTO twice SELECT id, 'again' FROM StringIds",
        "DROP TABLE StringIds",
        "ALTER TABLE twice RENAME TO StringIds",
    )
    pack(report, out)
    assert nsysflow.load(report).ops.equals(nsysflow.load(out).ops)


def test_a_table_with_one_row_number_twice_is_not_packed(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", kernels=[{}, {}], calls=[{}])
    with sqlite3.connect(report) as db:
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        root = "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
        (page,) = db.execute(root).fetchone()
    damaged = bytearray(report.read_bytes())
    leaf = (page - 1) * page_bytes
    second_row = leaf + int.from_bytes(damaged[leaf + 10 : leaf + 12], "big")
    number_at = second_row + (2 if damaged[second_row] & 0x80 else 1)  # behind the row's length
    assert damaged[number_at] == 2
    damaged[number_at] = 1
    report.write_bytes(damaged)
    said = run("pack", report, "-o", tmp_path / "p.sqlite", code=1).output
    assert "is corrupt: SQLite says: UNIQUE constraint failed" in said


def test_a_name_does_not_control_the_terminal_of_whatif(tmp_path: Path) -> None:
    report = write_export(tmp_path / "a\x7f\x9b.sqlite", kernels=[{}], calls=[{}])
    said = run("whatif", report, "--remove", "all").output
    assert "a·· replayed" in said
    assert not re.search(CONTROLS, said)


@pytest.mark.parametrize("text", ["caf\udce9", "\ud800"])
def test_a_text_that_is_no_utf8_becomes_bytes(text: str) -> None:
    assert _as_bytes(text).decode("utf-8", "surrogatepass") == text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at", [1 - (1 << 63), (1 << 63) - 1])
def test_an_event_of_rocpd_at_an_impossible_time_is_left_out(
    tmp_path: Path, form: Form, at: int
) -> None:
    rocprof = Database(form)
    for start, end in ((0, 10), (at, at)):
        rocprof.call(start, end, 1)
        rocprof.kernel(start, end, 1)
    trace = nsysflow.load(write_rocpd(tmp_path / "1_results.db", rocprof))
    assert trace.ops["start_ns"].to_list() == trace.calls["start_ns"].to_list() == [0]
    assert [note.text[:20] for note in trace.notes if note.kind == NoteKind.UNUSABLE_ROWS] == [
        "1 calls and ranges w",
        "1 rows were left out",
    ]


def test_a_range_of_rocpd_on_an_unknown_track_is_left_out(tmp_path: Path) -> None:
    rocprof = Database("tracks")
    for at in (0, 100):
        rocprof.call(at, at + 90, 0, "roctxRangePushA", "MARKER_CORE_RANGE_API", "step")
        rocprof.call(at + 1, at + 9, at + 1)
        rocprof.kernel(at + 12, at + 40, at + 1)
    for region in rocprof.rows[f"rocpd_region{rocprof.suffix}"][2:]:
        region["track_id"] += 10**9
    trace = nsysflow.load(write_rocpd(tmp_path / "1_results.db", rocprof))
    assert trace.ranges["start_ns"].to_list() == [0]
    assert "1 calls and ranges were left out" in trace.notes[0].text


@pytest.mark.parametrize(("order", "turns"), [("ab", 1), ("aabb", 1), ("abab", 3), ("baab", 2)])
def test_turns_of_two_threads_are_counted(order: str, turns: int) -> None:
    first, other = (
        pl.Series([at for at, thread in enumerate(order) if thread == one]) for one in "ab"
    )
    assert _turns(first, other) == turns


def test_many_threads_of_few_calls_are_not_compared_in_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 250 threads there are 31,125 pairs."""
    monkeypatch.setattr(replay_calls, "_turns", None)
    threads = range(WORKER, WORKER + 9)
    waits = (
        call(at, at + 1, "cudaStreamSynchronize", thread=thread)
        for thread in threads
        for at in range(4)
    )
    recorded(Timeline(to_trace(plain_of(*waits, launch(9, 10, 1), kernel(11, 12, 1))), Options()))


def test_slices_of_rocprofv3_at_impossible_times_are_left_out(tmp_path: Path) -> None:
    rocprof = Rocprof()
    for start, end in ((12, 40), (1 << 62, (1 << 62) + 9), (50, 1 << 62)):
        rocprof.call(1, 9, 1)
        rocprof.kernel(start, end, 1)
    (tmp_path / "r.pftrace").write_bytes(rocprof.out.content())
    trace = nsysflow.load(tmp_path / "r.pftrace")
    assert trace.ops["end_ns"].to_list() == [40]
    assert any("2 " in note.text for note in trace.notes if note.kind == NoteKind.UNUSABLE_ROWS)


@pytest.mark.parametrize("clock", [{"timestamp": 1 << 63}, {"unit_multiplier_ns": 1 << 62}])
def test_a_trace_whose_clock_stands_at_an_impossible_time_is_corrupt(
    clock: dict[str, int], tmp_path: Path
) -> None:
    rocprof = Rocprof()
    clocks = protos.ClockSnapshot()
    clocks.clocks.add(clock_id=INCREMENTAL, is_incremental=True, **{"timestamp": 5} | clock)
    rocprof.out.packet(clock_snapshot=clocks)
    rocprof.kernel(12, 40, 1)
    (tmp_path / "r.pftrace").write_bytes(rocprof.out.content())
    with pytest.raises(Damaged, match="a clock at an impossible time"):
        nsysflow.load(tmp_path / "r.pftrace")


def test_a_range_of_rocprofv3_on_an_unknown_track_is_left_out(tmp_path: Path) -> None:
    rocprof = Rocprof()
    for at, track in ((0, MAIN_TRACK), (100, 77)):
        rocprof.slice(track, at, at + 90, "step", "marker_api", {"corr_id": at + 2})
        rocprof.slice(track, at + 1, at + 9, "hipLaunchKernel", "hip_api", {"corr_id": at + 1})
        rocprof.kernel(at + 12, at + 40, at + 1)
    report = tmp_path / "r.pftrace"
    report.write_bytes(rocprof.out.content())
    trace = nsysflow.load(report)
    assert trace.ranges["start_ns"].to_list() == [0]
    assert [note.text for note in trace.notes if note.kind == NoteKind.UNUSABLE_ROWS] == [
        "1 ranges were left out: their thread is unknown"
    ]


def test_a_schema_of_rocpd_with_thousands_of_digits_is_a_newer_one(tmp_path: Path) -> None:
    rocprof = Database(FORMS[0])
    rocprof.call(0, 10, 1)
    rocprof.kernel(12, 40, 1)
    (metadata,) = (rows for name, rows in rocprof.rows.items() if name.startswith("rocpd_metadata"))
    metadata[0]["value"] = "9" * 5_000
    trace = nsysflow.load(write_rocpd(tmp_path / "1_results.db", rocprof))
    assert NoteKind.NEWER_SCHEMA in [note.kind for note in trace.notes]


def test_declared_flops_of_a_gpu_without_times_are_no_finding(tmp_path: Path) -> None:
    report = small_export(tmp_path / "r.sqlite")
    change(report, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -1")
    assert run("analyze", report, "--no-files", "--flops-per-step", "1e12").exit_code == 0


def test_a_file_on_which_polars_panics_is_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panics(file: Path, names: list[str]) -> pl.LazyFrame:
        raise pl.exceptions.PanicException(f"{file.name}: assertion failed")

    for name in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds"):
        table = next(table for table in TABLES.values() if table.name == name)
        empty = pl.DataFrame(schema=dict.fromkeys(table.columns, pl.Int64))
        empty.write_parquet(tmp_path / f"{name}.parquet")
    monkeypatch.setattr(folders, "rows_of", panics)
    with pytest.raises(Damaged, match=r"\.parquet cannot be read \(\w+\.parquet: assertion failed"):
        read_folder(tmp_path, EXPORTS[0], "r")


def test_a_table_whose_name_is_bytes_is_not_read(tmp_path: Path) -> None:
    report = small_export(tmp_path / "r.sqlite")
    with closing(sqlite3.connect(report)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET name = CAST(name AS BLOB) WHERE name = 'NVTX_EVENTS'")
        db.commit()
    assert nsysflow.load(report).ranges.is_empty()
    run("pack", report, "-o", tmp_path / "packed.sqlite")


def test_an_error_does_not_control_the_terminal_of_an_agent(tmp_path: Path) -> None:
    answer = Tools(Reports(Folder(tmp_path), Options())).open_report("\x1b[2J.sqlite")
    assert answer.is_error
    assert not re.search(CONTROLS, answer.model_dump()["content"][0]["text"])


def test_a_path_in_the_settings_with_a_null_byte_is_refused(here: Path) -> None:
    (here / "nsysflow.toml").write_text('[check]\nbaseline = "\\u0000"\n')
    said = refused("check", "report.json", code=1)
    assert "nsysflow.toml: baseline" in said
    assert "must be text without null bytes" in said
