"""What an SQLite export says is what the frames hold."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nsysflow.analysis import schema
from nsysflow.analysis.load import load
from nsysflow.analysis.load.kernel_names import short_kernel_name
from nsysflow.analysis.trace import Trace
from tests.analyses import every_report, loaded
from tests.exports import Row, change, process, thread, write_export
from tests.reports import sqlite_report

FRAMES = {
    "ops": schema.OPS,
    "shapes": schema.SHAPES,
    "copy_details": schema.COPY_DETAILS,
    "calls": schema.CALLS,
    "ranges": schema.RANGES,
    "overhead": schema.OVERHEAD,
    "threads": schema.THREADS,
    "devices": schema.DEVICES,
    "diagnostics": schema.DIAGNOSTICS,
    "backtraces": schema.BACKTRACES,
    "frames": schema.FRAMES,
    "gpu_samples": schema.GPU_SAMPLES,
    "captures": schema.CAPTURES,
}


def assert_schemas(trace: Trace) -> None:
    for name, of in FRAMES.items():
        assert getattr(trace, name).schema == of, name


@every_report
def test_every_frame_has_its_schema_and_every_row_arrives(name: str, tmp_path: Path) -> None:
    trace = loaded(name)
    assert_schemas(trace)
    assert trace.report == name
    assert trace.source == "Nsight Systems 2025.3.2.0, schema 3.20.3"
    assert trace.ops["detail"].drop_nulls().len() == trace.shapes.height + trace.copy_details.height


def test_an_export_with_nothing_but_strings_has_empty_frames(tmp_path: Path) -> None:
    trace = load(write_export(tmp_path / "empty.sqlite"))
    assert_schemas(trace)
    assert all(getattr(trace, name).is_empty() for name in FRAMES)
    assert any("--trace cuda" in note for note in trace.notes)
    assert any("--trace nvtx" in note for note in trace.notes)


def test_tables_without_rows_have_empty_frames(tmp_path: Path) -> None:
    nothing: list[dict[str, object]] = []
    trace = load(write_export(tmp_path / "empty.sqlite", kernels=nothing, calls=nothing))
    assert_schemas(trace)
    assert trace.ops.is_empty()


def test_two_processes_that_see_device_0_are_on_the_gpus_they_were_given(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "two.sqlite",
        kernels=[{"globalPid": process(1)}, {"globalPid": process(2)}],
        cuda_devices=[{"pid": 1, "gpuId": 3}, {"pid": 2, "gpuId": 5}],
        gpus=[{"id": 3, "uuid": "three"}],
    )
    trace = load(path)
    assert trace.ops["device"].to_list() == [3, 5]
    assert trace.devices["device"].to_list() == [3, 5]
    assert trace.devices["uuid"].to_list() == ["three", None]


def test_without_a_row_for_its_process_a_device_is_what_the_process_saw(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "r.sqlite", kernels=[{"deviceId": 1}], cuda_devices=[{"pid": 7, "gpuId": 4}]
    )
    assert load(path).ops["device"].to_list() == [1]


@pytest.mark.parametrize("none", [None, 0])
def test_an_operation_without_correlation_is_kept_and_noted(
    tmp_path: Path, none: int | None
) -> None:
    path = write_export(
        tmp_path / "r.sqlite", kernels=[{"correlationId": none}, {"correlationId": 4}], calls=[{}]
    )
    trace = load(path)
    assert trace.ops["correlation"].to_list() == [None, 4]
    assert any("1 of 2 GPU operations have no correlation id" in note for note in trace.notes)


def test_columns_that_a_version_lacks_are_null(tmp_path: Path) -> None:
    path = write_export(tmp_path / "old.sqlite", kernels=[{}], memcpys=[{}])
    change(
        path,
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN graphNodeId",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN gridX",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN srcKind",
    )
    trace = load(path)
    assert_schemas(trace)
    assert trace.ops["graph_node"].to_list() == [None, None]
    assert trace.shapes["grid_x"].to_list() == [None]
    assert trace.copy_details["source_memory"].to_list() == [None]


def test_unknown_columns_and_a_newer_schema_are_noted_and_change_nothing(tmp_path: Path) -> None:
    plain = write_export(tmp_path / "plain.sqlite", kernels=[{}], calls=[{}])
    newer = write_export(
        tmp_path / "newer.sqlite",
        kernels=[{"flux": 3}],
        calls=[{}],
        tables={"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "4.0.1"}]},
    )
    known, unknown = load(plain), load(newer)
    assert_frame_equal(known.ops, unknown.ops)
    assert any("CUPTI_ACTIVITY_KIND_KERNEL.flux" in note for note in unknown.notes)
    assert any("schema 4.0.1 is newer" in note for note in unknown.notes)
    assert not any("unknown" in note for note in known.notes)


def test_columns_of_the_published_schema_are_no_news(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "later.sqlite",
        kernels=[{"clusterX": 2, "graphId": 1, "qmdLastCtaDone": None}],
        calls=[{}],
        nvtx=[{}],
        cuda_devices=[{"uuid": "u", "numMultiprocessors": 132}],
        gpus=[{"numaNodeId": 0}],
    )
    assert load(path).notes == ()


@every_report
def test_a_report_of_a_known_version_has_no_news(name: str) -> None:
    assert not any("unknown columns" in note or "newer" in note for note in loaded(name).notes)


def test_rows_in_another_order_make_the_same_trace(tmp_path: Path) -> None:
    path = sqlite_report(tmp_path)
    before = load(path)
    with closing(sqlite3.connect(path)) as db:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
            rows = db.execute(f"SELECT * FROM {table}").fetchall()
            random.Random(1).shuffle(rows)
            db.execute(f"DELETE FROM {table}")
            db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
        db.commit()
    after = load(path)
    assert_frame_equal(before.calls.sort(pl.all()), after.calls.sort(pl.all()))
    shaped = [
        trace.ops.filter(kind="kernel").join(
            trace.shapes.with_row_index("detail"), on="detail", how="left"
        )
        for trace in (before, after)
    ]
    one, other = (frame.drop("detail").sort(pl.all()) for frame in shaped)
    assert_frame_equal(one, other)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaLaunchKernelExC_v11060_ptsz", "cudaLaunchKernelExC"),
        ("cudaMemcpyAsync_ptds", "cudaMemcpyAsync"),
        ("cuMemAlloc_v2", "cuMemAlloc"),
        ("cuCtxSynchronize", "cuCtxSynchronize"),
    ],
)
def test_api_names_lose_their_version(tmp_path: Path, name: str, plain: str) -> None:
    path = write_export(tmp_path / "r.sqlite", calls=[{"nameId": name}])
    assert load(path).calls["name"].to_list() == [plain]


def test_a_kernel_whose_strings_are_missing_keeps_its_row(tmp_path: Path) -> None:
    rows = [{"demangledName": 999, "shortName": 4_000_000_000}]
    path = write_export(tmp_path / "r.sqlite", kernels=rows, strings={0: "unused"})
    assert load(path).ops["name"].to_list() == ["(nameless)"]


def test_calls_whose_strings_are_missing_are_counted_in_a_note(tmp_path: Path) -> None:
    calls = [{"nameId": name} for name in (999, "cudaLaunchKernel_v7000", 998)]
    path = write_export(tmp_path / "r.sqlite", calls=calls)
    (note,) = [note for note in load(path).notes if "StringIds" in note]
    assert note.startswith("2 of 3 CUDA calls have no name")


def test_text_that_is_no_utf8_keeps_what_can_be_read(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", nvtx=[{"text": b"caf\xe9"}, {"text": "café"}])
    assert load(path).ranges["name"].to_list() == ["caf\ufffd", "café"]


def test_a_batch_of_nulls_before_the_first_text_does_not_decide_the_type(tmp_path: Path) -> None:
    rows = [{"text": None, "textId": "registered"}] * 70_000
    path = write_export(tmp_path / "r.sqlite", nvtx=[*rows, {"text": "explicit"}])
    names = load(path).ranges["name"]
    assert names[0] == "registered"
    assert names[-1] == "explicit"
    assert load(path).ranges["row"].to_list() == list(range(70_001))


def test_a_domain_is_its_process_s_own_and_the_default_one_has_no_name(tmp_path: Path) -> None:
    one, two = thread(1, pid=1), thread(2, pid=2)
    path = write_export(
        tmp_path / "r.sqlite",
        nvtx=[
            {"eventType": 75, "domainId": 1, "text": "NCCL", "globalTid": one, "end": None},
            {"eventType": 75, "domainId": 1, "textId": "mine", "globalTid": two, "end": None},
            {"domainId": 1, "text": "a", "globalTid": one},
            {"domainId": 1, "text": "b", "globalTid": two, "eventType": 60},
            {"domainId": 0, "text": "c", "globalTid": one, "end": None},
            {"domainId": None, "text": "d", "globalTid": one},
            {"eventType": 34, "text": "a mark", "globalTid": one, "end": None},
        ],
    )
    ranges = load(path).ranges
    assert ranges["domain"].to_list() == ["NCCL", "mine", None, None]
    assert ranges["kind"].to_list() == ["push_pop", "start_end", "push_pop", "push_pop"]
    assert ranges["end_ns"].to_list() == [10, 10, None, 10]
    assert ranges["row"].to_list() == [0, 1, 2, 3]


def test_labels_of_the_export_decide_over_the_numbers_we_know(tmp_path: Path) -> None:
    labels = {
        "ENUM_CUDA_MEM_KIND": [{"id": 8, "name": "X", "label": "Pinned"}],
        "ENUM_CUDA_MEMCPY_OPER": [{"id": 1, "name": "X", "label": "Device-to-Host"}],
        "ENUM_NSYS_EVENT_TYPE": [{"id": 159, "name": "X", "label": "NvtxPushPopRange"}],
    }
    copies: list[Row] = [
        {"copyKind": 1, "srcKind": 8, "dstKind": 0},
        {"copyKind": 10, "srcKind": None, "dstKind": 77},
    ]
    nvtx = [{"eventType": 159, "text": "a"}]
    trace = load(write_export(tmp_path / "r.sqlite", memcpys=copies, nvtx=nvtx, tables=labels))
    assert trace.copy_details["direction"].to_list() == ["DtoH", "PtoP"]
    assert trace.copy_details["source_memory"].to_list() == ["pinned", None]
    assert trace.copy_details["target_memory"].to_list() == ["pageable", "unknown"]
    assert trace.ops["name"].to_list() == ["memcpy DtoH", "memcpy PtoP"]
    assert trace.ranges["name"].to_list() == ["a"]


def test_rows_without_a_process_are_the_only_process_s(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", kernels=[{"globalPid": None}], calls=[{}])
    assert load(path).ops["process"].to_list() == [process()]


def test_rows_without_a_process_stay_so_where_there_are_two(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "r.sqlite",
        kernels=[{"globalPid": None}],
        calls=[{"globalTid": thread(1, pid=1)}, {"globalTid": thread(2, pid=2)}],
    )
    assert load(path).ops["process"].to_list() == [None]


def test_operations_of_negative_length_are_left_to_the_analysis(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", kernels=[{"start": 9, "end": 2}])
    assert load(path).ops.height == 1


def test_rows_without_times_are_left_out_and_noted(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", kernels=[{"start": None}, {}], calls=[{}])
    trace = load(path)
    assert trace.ops.height == 1
    assert any(note.startswith("1 rows without") for note in trace.notes)


def test_launches_without_any_kernel_are_noted(tmp_path: Path) -> None:
    path = write_export(tmp_path / "r.sqlite", memsets=[{}], calls=[{}])
    assert any("too old for the CUDA driver" in note for note in load(path).notes)


def test_a_thread_has_one_name_and_pytorch_s_own_wins(tmp_path: Path) -> None:
    names: list[Row] = [{"nameId": "python3"}, {"nameId": "pt_autograd_0", "priority": 10}]
    trace = load(write_export(tmp_path / "r.sqlite", threads=names))
    assert trace.threads.rows() == [(process(), thread(), "pt_autograd_0")]


@every_report
def test_kernels_are_shortened_as_nsys_does(name: str) -> None:
    kernels = loaded(name).ops.filter(kind="kernel").select("name", "short_name").unique()
    for full, short in kernels.cast(pl.String).iter_rows():
        assert short_kernel_name(full) == short


def test_graphs_traced_whole_are_said_to_hide_their_kernels(tmp_path: Path) -> None:
    whole = load(write_export(tmp_path / "g.sqlite", graphs=[{}, {"correlationId": 2}], calls=[{}]))
    assert any("the kernels of 2 launches are hidden" in note for note in whole.notes)
    assert any("--graph-trace node" in note for note in whole.notes)
    plain = load(write_export(tmp_path / "k.sqlite", kernels=[{}], calls=[{}]))
    assert not any("graph" in note for note in plain.notes)
