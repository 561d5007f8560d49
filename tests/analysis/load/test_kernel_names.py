"""Kernels have short names that say what they are."""

from pathlib import Path

import polars as pl
import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.kernel_names import GENERIC, short_kernel_name
from tests.analyses import every_report, loaded
from tests.analysis.load.kineto.traces import kernel, write
from tests.exports import write_export

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
    "void cutlass::device_kernel<gqa_decode::Kernel>(gqa_decode::Kernel::Params)": "gqa_decode",
    "void cutlass::device_kernel<at::native::<unnamed>::Gemm<(int)128>>(T1)": "Gemm",
    "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent"
    "<thrust::F<float>, unsigned long>, thrust::F<float>>(T1)": "ParallelForAgent",
    "void kernel<(int)128, true, __nv_bfloat16, mine::Softmax<float>>(float*)": "Softmax",
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
    ):
        assert short_kernel_name(name) in GENERIC
    for name in ("", "Kernel2<", "a<b>>", ">", "f(int", "operator<"):  # cannot be taken apart
        assert name.startswith(short_kernel_name(name))


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
