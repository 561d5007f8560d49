"""From an export's tables to a trace: nsys's enumerations, names of kernels, and notes."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nsysflow.analysis.load import load
from nsysflow.analysis.load.kernel_names import GENERIC, short_kernel_name
from nsysflow.analysis.trace import NoteKind
from tests.analyses import every_report, loaded
from tests.analysis.load.frames import (
    DOMAINS,
    FRAMES,
    assert_schemas,
    counters,
    loaded_and_packed,
    stack,
)
from tests.analysis.load.kineto.traces import kernel, write
from tests.exports import PID, Row, change, note_kinds, process, thread, write_export


@every_report
def test_every_frame_has_its_schema_and_every_row_arrives(name: str, tmp_path: Path) -> None:
    trace = loaded(name)
    assert_schemas(trace)
    assert trace.report == name
    assert trace.source == "Nsight Systems 2025.3.2.0, schema 3.20.3"
    assert trace.ops["detail"].drop_nulls().len() == trace.shapes.height + trace.copy_details.height


@pytest.mark.parametrize("rows", [None, []], ids=["no tables", "no rows"])
def test_an_export_of_strings_has_empty_frames(tmp_path: Path, rows: list[Row] | None) -> None:
    trace = load(write_export(tmp_path / "empty.sqlite", kernels=rows, calls=rows))
    assert_schemas(trace)
    assert all(getattr(trace, name).is_empty() for name in FRAMES)
    assert note_kinds(trace) == [NoteKind.NO_GPU_WORK, NoteKind.NO_RANGES]


def test_device_0_of_two_processes_is_the_physical_gpu_of_each(tmp_path: Path) -> None:
    path = write_export(
        tmp_path / "two.sqlite",
        kernels=[{"globalPid": process(pid), "deviceId": pid == 3} for pid in (1, 2, 3)],
        cuda_devices=[{"pid": 1, "gpuId": 3}, {"pid": 2, "gpuId": 5}],
        gpus=[{"id": 3, "uuid": "three"}],
    )
    trace = load(path)
    assert trace.ops["device"].to_list() == [3, 5, 1]  # the third process names no device
    assert trace.devices["device"].to_list() == [1, 3, 5]
    assert trace.devices["uuid"].to_list() == [None, "three", None]


def test_operations_without_correlation_or_of_negative_length_are_kept(tmp_path: Path) -> None:
    rows = [{"correlationId": correlation} for correlation in (None, 0, 4)]
    path = write_export(tmp_path / "r.sqlite", kernels=[*rows, {"start": 9, "end": 2}], calls=[{}])
    assert load(path).ops["correlation"].to_list() == [None, None, 4, 1]


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


def test_api_names_lose_their_version(tmp_path: Path) -> None:
    plain = {
        "cudaLaunchKernel_v7000": "cudaLaunchKernel",
        "cudaLaunchKernelExC_v11060_ptsz": "cudaLaunchKernelExC",
        "cudaMemcpyAsync_ptds": "cudaMemcpyAsync",
        "cuMemAlloc_v2": "cuMemAlloc",
        "cuCtxSynchronize": "cuCtxSynchronize",
    }
    path = write_export(tmp_path / "r.sqlite", calls=[{"nameId": name} for name in plain])
    assert load(path).calls["name"].to_list() == [*plain.values()]


def test_a_kernel_whose_strings_are_missing_keeps_its_row(tmp_path: Path) -> None:
    rows = [{"demangledName": 999, "shortName": 4_000_000_000}]
    path = write_export(tmp_path / "r.sqlite", kernels=rows, strings={0: "unused"})
    assert load(path).ops["name"].to_list() == ["(nameless)"]


def test_each_process_has_its_own_domains_and_the_default_one_has_no_name(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("pids", "found"), [([1], process(1)), ([1, 2], None)])
def test_rows_without_a_process_belong_to_the_only_one(
    tmp_path: Path, pids: list[int], found: int | None
) -> None:
    calls = [{"globalTid": thread(pid, pid=pid)} for pid in pids]
    path = write_export(tmp_path / "r.sqlite", kernels=[{"globalPid": None}], calls=calls)
    assert load(path).ops["process"].to_list() == [found]


def test_a_thread_has_one_name_and_that_of_pytorch_wins(tmp_path: Path) -> None:
    names: list[Row] = [{"nameId": "python3"}, {"nameId": "pt_autograd_0", "priority": 10}]
    trace = load(write_export(tmp_path / "r.sqlite", threads=names))
    assert trace.threads.rows() == [(process(), thread(), "pt_autograd_0")]


def test_a_wait_names_its_stream_its_record_and_the_device_of_its_context(tmp_path: Path) -> None:
    def on_stream(correlation: int, **columns: int) -> Row:
        return {"correlationId": correlation, "globalPid": process(), "deviceId": 0, **columns}

    path = write_export(
        tmp_path / "r.sqlite",
        tables={
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT": [on_stream(7, streamId=13, eventSyncId=4)],
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
                on_stream(8, streamId=14, eventSyncId=4, contextId=1),
                on_stream(9, streamId=0xFFFF_FFFF, eventSyncId=0, contextId=2),
            ],
            "TARGET_INFO_CUDA_CONTEXT_INFO": [{"processId": PID, "contextId": 1, "deviceId": 1}],
        },
    )
    trace = load(path)
    assert trace.event_records.rows() == [(process(), 0, 7, 13, 4)]
    assert trace.waits.rows() == [(process(), 1, 8, 14, 4), (process(), 0, 9, None, None)]


def test_every_stream_wait_of_a_real_report_finds_its_record() -> None:
    trace = loaded("h200-ddp-rank1")
    waits = trace.waits.filter(trace.waits["stream"].is_not_null())
    found = waits.join(trace.event_records, on=["process", "record"])
    assert len(waits) == len(found) == 120
    assert waits["device"].unique().to_list() == trace.ops["device"].unique().to_list() == [1]


def test_labels_in_the_export_win_over_known_numbers(tmp_path: Path) -> None:
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


TENSOR = "cute::tuple<cute::C<64>, cute::C<128>>"
NAMES = {
    "void at::native::vectorized_elementwise_kernel<4, at::native::F<int>>(int, at::F)": (
        "vectorized_elementwise_kernel"
    ),
    "void at::native::(anonymous namespace)::fill<float>(float*)": "fill",
    "sm80_xmma_gemm_f32f32_execute_kernel__5x_cublas": (
        "sm80_xmma_gemm_f32f32_execute_kernel__5x_cublas"
    ),
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(T1::Params)": (
        "cutlass_80_simt_sgemm_64x64_8x5_tn_align1"
    ),
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_fprop>(cutlass_tensorop::Params)": (
        "cutlass_tensorop_f16_fprop"
    ),
    f"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<{TENSOR}>>(T1::Params)": (
        "GemmUniversal"
    ),
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::M<2,"
    f" {TENSOR}>, 64> > >(T1::Params)": "FlashAttnFwdSm90",
    "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel"
    f"::GemmUniversal<{TENSOR}>>>(T1::Params)": "GemmUniversal",
    f"void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8<bf16_t, {TENSOR}>::GemmKernel>(T1)": (
        "cutlass_3x_gemm_fp8"
    ),
    "void cutlass::device_kernel<dpsk::cuda::fp8_ptp128c::GemmKernel>(dpsk::P)": "fp8_ptp128c",
    "void cutlass::device_kernel<gqa_decode::Kernel>(gqa_decode::Kernel::Params)": "gqa_decode",
    "void cutlass::device_kernel<at::native::<unnamed>::Gemm<(int)128>>(T1)": "Gemm",
    "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent"
    "<thrust::F<float>, unsigned long>, thrust::F<float>>(T1)": "ParallelForAgent",
    "void kernel<(int)128, true, __nv_bfloat16, mine::Softmax<float>>(float*)": "Softmax",
    "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::Tile<1>>>(ck_tile::Args)": (
        "FmhaFwdKernel"
    ),
    "void rocprim::detail::trampoline_kernel<rocprim::detail::wrapped_scan_config<long>>(int)": (
        "wrapped_scan_config"
    ),
    "void kernel_wrapper<unsigned int, &packR2C_kernel_Odd_impl<unsigned int, float>>(T1)": (
        "packR2C_kernel_Odd_impl"
    ),
    "void kernel_wrapper<unsigned int, &(void unpackC2R_kernel_Odd_impl<unsigned int, float>"
    "(RealComplex_st<unsigned int>))>(T1)": "unpackC2R_kernel_Odd_impl",
    "std::enable_if<(((8)>(0)))&&mine::convert<T>::exists, void>::type mine::rms_norm<T, 8>(T*)": (
        "rms_norm"
    ),
    "_Z6kernelPf": "kernel",
    "_ZL4softILi3EEvPf": "soft",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bLi256ELb1EEEvPT0_": "add_rmsnorm_quant_kernel",
    "_ZN2ck6device12_GLOBAL__N_115kernel_conv_fwdINS_8GridwiseILi1EEEEEvT_": "kernel_conv_fwd",
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_8PipelineEEEJS2_EEEvDpT1_": "Rmsnorm2dFwd",
    "_ZN7ck_tile6kentryIvLi2EN4mine4SoftEEEvv": "Soft",
}


@pytest.mark.parametrize(("name", "short"), NAMES.items())
def test_a_short_name_says_what_a_kernel_is(name: str, short: str) -> None:
    assert short_kernel_name(name) == short


def test_a_generic_name_stays_where_its_arguments_say_no_more_and_any_other_whole() -> None:
    for name in (
        "void kernel<128, float, c10::BFloat16, int8_t, T1>(float*)",
        "void mine::kernel(float*)",
        "void cutlass::device_kernel<GemmKernel>(T1)",
        "Kernel<>",
        "_Z6kernelILi3EEvv",
        "_ZN4mine6kernelIfEEvPT_",
    ):
        assert short_kernel_name(name) in GENERIC
    for name in (
        "",
        "Kernel2<",
        "a<b>>",
        ">",
        "f(int",
        "operator<",
        "_Z",
        "_ZN",
        "_Z0",
        "_Z99ab",
    ):  # cannot be taken apart
        assert short_kernel_name(name) in name


@every_report
def test_kernels_are_shortened_as_nsys_does(name: str) -> None:
    kernels = loaded(name).ops.filter(kind="kernel").select("name", "short_name").unique()
    for full, short in kernels.cast(pl.String).iter_rows():
        assert short_kernel_name(full) == short


def test_nsys_reports_and_kineto_traces_name_a_kernel_alike(tmp_path: Path) -> None:
    full = "void cutlass::Kernel2<cutlass_80_sgemm_nn>(cutlass_80_sgemm_nn::Params)"
    names = [(full, "Kernel2"), ("f", "f"), (None, "Kernel2")]
    rows = [{"demangledName": name, "shortName": short} for name, short in names]
    report = load(write_export(tmp_path / "r.sqlite", kernels=rows))
    trace = load(write(tmp_path, {**kernel(), "name": full}, {**kernel(), "name": "f"}))
    assert trace.ops["short_name"].to_list() == ["cutlass_80_sgemm_nn", "f"]
    # a generic kernel without a full name keeps its short one
    assert report.ops["short_name"].to_list() == ["cutlass_80_sgemm_nn", "f", "Kernel2"]


# --- notes ----------------------------------------------------------------------------------------

WHOLE: dict[str, Any] = {"kernels": [{}], "calls": [{}], "nvtx": [{}]}
BACKTRACE = stack("backtrace", 0, (1, 2, 3))
NOT_EXPORTED = {"nvtx": [{}, DOMAINS["backtrace"], BACKTRACE | {"jsonText": None}]}
SCHEMA_4 = {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "4.0.1"}]}
LATER = {
    "kernels": [{"clusterX": 2, "graphId": 1, "qmdLastCtaDone": None}],
    "cuda_devices": [{"uuid": "u", "numMultiprocessors": 132}],
    "gpus": [{"numaNodeId": 0}],
}
"""Columns that the published schema has, though not those nsys versions that made our reports."""


HOST_FUNCTION: dict[str, Any] = {
    "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE_AND_HOST_LAUNCH": [
        {"start": 1, "end": 2, "deviceId": 0, "streamId": 7, "correlationId": 1}
    ]
}


@pytest.mark.parametrize(
    ("tables", "kind", "said"),
    [
        ({"kernels": None, "calls": None}, NoteKind.NO_GPU_WORK, "--trace cuda"),
        ({"calls": None}, NoteKind.NO_CALLS, "--trace cuda"),
        ({"nvtx": None}, NoteKind.NO_RANGES, "--trace nvtx"),
        ({"nvtx": [BACKTRACE]}, NoteKind.NO_RANGES, "--trace nvtx"),
        ({"kernels": None, "memsets": [{}]}, NoteKind.NO_KERNELS, "newer nsys"),
        (
            {"graphs": [{}, {"correlationId": 2}]},
            NoteKind.GRAPHS_TRACED_WHOLE,
            "the kernels of 2 graph launches are hidden",
        ),
        (
            NOT_EXPORTED,
            NoteKind.BACKTRACES_NOT_EXPORTED,
            "nsys export --type sqlite --force-overwrite=true --include-json=true REPORT.nsys-rep",
        ),
        (
            {"nvtx": [{}, DOMAINS["sample"], {**stack("sample", 0), "jsonText": None}]},
            NoteKind.BACKTRACES_NOT_EXPORTED,
            "Python samples were recorded, but not exported",
        ),
        ({"tables": HOST_FUNCTION}, NoteKind.NOT_CARRIED, "cudaLaunchHostFunc"),
        (
            {"tables": counters({9: "GR Active"}, (5, 9, 99))},
            NoteKind.OTHER_COUNTERS,
            "--gpu-metrics-set",
        ),
        (
            {"kernels": [{"correlationId": 0}, {"correlationId": None}, {}]},
            NoteKind.NO_CORRELATION,
            "2 of 3 GPU operations",
        ),
        (
            {"kernels": [{"start": None}, {"start": 1 - (1 << 62)}, {"end": 1 << 62}]},
            NoteKind.UNUSABLE_ROWS,
            "2 rows were left out",
        ),
        (
            {"calls": [{"nameId": 999}, {"nameId": "cudaFree"}, {"nameId": 998}]},
            NoteKind.NAMELESS_CALLS,
            "2 of 3 API calls",
        ),
        ({"kernels": [{"flux": 3}]}, NoteKind.UNKNOWN_COLUMNS, "CUPTI_ACTIVITY_KIND_KERNEL.flux"),
        ({"tables": SCHEMA_4}, NoteKind.NEWER_SCHEMA, "schema 4.0.1"),
    ],
)
def test_an_export_that_lacks_or_hides_something_has_a_note(
    tmp_path: Path, tables: dict[str, Any], kind: NoteKind, said: str
) -> None:
    notes = load(write_export(tmp_path / "r.sqlite", **WHOLE | tables)).notes
    assert [said in note.text for note in notes if note.kind == kind] == [True]


@pytest.mark.parametrize(
    "more",
    [
        {},
        LATER,
        {"memcpys": [{"copyKind": 11, "correlationId": 0}]},  # a page of managed memory
        {"nvtx": [{}, DOMAINS["backtrace"]]},
        {"nvtx": [{}, DOMAINS["backtrace"], BACKTRACE]},
        {"tables": counters({9: "SM Active"}, (5, 9, 99))},
        {"tables": {"META_DATA_EXPORT": [{"value": "9" * 5_000}]}},  # int() refuses it
        {"tables": {"ENUM_NSYS_EVENT_TYPE": [{"id": None, "name": "a", "label": "NvtxMark"}]}},
    ],
)
def test_an_export_that_lacks_nothing_has_no_notes(tmp_path: Path, more: dict[str, Any]) -> None:
    assert load(write_export(tmp_path / "r.sqlite", **WHOLE | more)).notes == ()


def test_unknown_columns_and_a_newer_schema_change_no_rows(tmp_path: Path) -> None:
    plain = write_export(tmp_path / "plain.sqlite", **WHOLE)
    more = {"kernels": [{"flux": 3}], "tables": SCHEMA_4}
    newer = write_export(tmp_path / "newer.sqlite", **WHOLE | more)
    assert_frame_equal(load(plain).ops, load(newer).ops)


@every_report
def test_the_columns_of_real_reports_are_known(name: str) -> None:
    assert {NoteKind.UNKNOWN_COLUMNS, NoteKind.NEWER_SCHEMA}.isdisjoint(note_kinds(loaded(name)))


def test_backtraces_that_were_not_exported_are_noted(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", **WHOLE | NOT_EXPORTED)
    (tmp_path / "r.nsys-rep").touch()
    original, packed = loaded_and_packed(report)
    assert note_kinds(packed) == note_kinds(original) == [NoteKind.BACKTRACES_NOT_EXPORTED]
    command = f" --output={report} {tmp_path / 'r.nsys-rep'}"
    assert original.notes[0].text.endswith(command)
