"""What names of kernels say."""

from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.findings.kernels import with_traits

FP32: Final = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4"
    "_alignc4_execute_kernel__5x_cublas",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1::Params)",
    "cutlass_80_simt_sgemm_64x128_8x5_nn_align1",
    "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_tnn_align1_bias_f32_relu",
    "ampere_sgemm_128x64_tn",
    "volta_sgemm_32x32_sliced1x4_nn",
    "void sgemm_largek_lds64<(bool)1, (bool)0, (int)5, (int)5, (int)4>(float *)",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3"
    "_warpsize2x2x1_g1_ffma_aligna4_alignc4_execute_kernel__5x_cudnn",
    "_5x_cudnn_ampere_scudnn_128x32_relu_interior_nn_v1",
    "void implicit_convolve_sgemm<float, float, (int)1024, (int)5, (int)5>(int, int, int)",
    "void cudnn::detail::dgrad_engine<float, (int)512, (int)6, (int)5>(int, int, int)",
    "void wgrad_alg0_engine_NHWC<float, (int)128, (int)5, (int)5, (int)3>(int, int, int)",
    "void convolve_common_engine_float_NHWC<float, float, (int)1024>(int, int, int)",
    "void fft2d_r2c_32x32<float, (bool)0, (unsigned int)0, (bool)0>(float2 *, const T1 *)",
    "void cudnn::winograd_nonfused::winogradWgradData4x4<float, float>(T1)",
)
"""Float32 products that do not use the tensor cores."""

TF32: Final = (
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k"
    "_off_kernel__5x_cublas",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4"
    "_warpsize2x2x1_g1_tensor16x8x8_alignc4_execute_kernel__5x_cudnn",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4>(T1::Params)",
)
"""Float32 products in TF32."""

BF16: Final = (
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_64x3_nn_align8>",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel",
)
"""Products of bfloat16 numbers, aligned."""

FP16: Final = (
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNN",
    "turing_fp16_s1688gemm_fp16_128x256_ldg8_f2f_stages_32x1_nt",
    "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn",
    "void cutlass::Kernel2<cutlass_75_wmma_tensorop_f16_s161616gemm_f16_16x16_64x2_tn_align8>",
    "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nchw_tilesize128x128x32_kernel",
)
"""Products of float16 numbers, aligned."""

ODD: Final = {
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1)": 1,
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_32x3_nt_align1>(T1::Params)": 1,
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_64x3_nn_align2>": 2,
    "sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x128x32_stage5_warpsize2x2x1_tensor16x8x16"
    "_aligna2_alignc2_execute_kernel_trt": 2,
}
"""Products of unaligned data, and to how many elements it is aligned."""

NATIVE: Final = "at::native::"
ADD: Final = (
    f"void {NATIVE}vectorized_elementwise_kernel<(int)8, {NATIVE}CUDAFunctor_add<c10::BFloat16>,"
    " std::array<char *, (unsigned long)3>>(int, T2, T3)"
)
MUL: Final = (
    f"void {NATIVE}vectorized_elementwise_kernel<(int)4, {NATIVE}AUnaryFunctor<float, float, float,"
    f" {NATIVE}binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)2>>(int)"
)
ADDCDIV: Final = (
    f"void {NATIVE}vectorized_elementwise_kernel<(int)4, {NATIVE}addcdiv_cuda_kernel("
    "at::TensorIteratorBase &, const c10::Scalar &)::[lambda() (instance 2)]::operator ()() const>"
)
NORM: Final = (
    f"void {NATIVE}<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2)"
)
FOREACH: Final = (
    f"void {NATIVE}<unnamed>::multi_tensor_apply_kernel<{NATIVE}<unnamed>::"
    "TensorListScalarListMetadata<float, (int)3>>(T1, T2, T3...)"
)
DOWN: Final = (
    f"void {NATIVE}vectorized_elementwise_kernel<(int)8, {NATIVE}bfloat16_copy_kernel_cuda("
    "at::TensorIteratorBase &)::[lambda(float) (instance 1)]>(int, T2, T3)"
)
UP: Final = (
    f"void {NATIVE}unrolled_elementwise_kernel<{NATIVE}direct_copy_kernel_cuda("
    "at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const>(int, T1, T2)"
)
FROM_INT8: Final = UP.replace(
    "const>", "const::[lambda(c10::BFloat16) (instance 1)], std::array<char *, (unsigned long)2>>"
)
STRIDED: Final = (
    f"void {NATIVE}elementwise_kernel<(int)128, (int)4, void {NATIVE}gpu_kernel_impl_nocast<"
    f"{NATIVE}direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]>(int)"
)
TO_NHWC: Final = (
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, (bool)0, (bool)1,"
    " (cudnnKernelDataType_t)0>(cudnn::engines_precompiled::nchw2nhwc_params_t<T3>, const T1 *)"
)
SOFTMAX: Final = (
    "void <unnamed>::softmax_warp_forward<float, float, float, (int)10, (bool)0, (bool)0>(T2 *)"
)
INFINITE: Final = (
    f"void {NATIVE}vectorized_elementwise_kernel<(int)4, {NATIVE}isneginf_kernel_impl("
    "at::TensorIteratorBase &)::[lambda() (instance 1)]>(int, T2, T3)"
)
EVERY_ROW: Final = (
    f"void {NATIVE}reduce_kernel<(int)512, (int)1, {NATIVE}ReduceOp<bool, {NATIVE}func_wrapper_t<"
    f"bool, {NATIVE}and_kernel_cuda(at::TensorIterator &)::[lambda() (instance 1)]>>>(T3)"
)
"""PyTorch's own attention looks with these for rows that are masked whole."""
LOG_SOFTMAX: Final = (
    "void <unnamed>::softmax_warp_forward<float, float, float, (int)10, (bool)1, (bool)0>(T2 *)"
)
FLASH: Final = (
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_kernel0_0"
)
PRODUCT: Final = BF16[0]
DOUBLE: Final = (
    f"void {NATIVE}<unnamed>::cunn_SoftMaxForward<(int)2, double, double, double,"
    f" {NATIVE}<unnamed>::LogSoftMaxForwardEpilogue>(T4 *, const T2 *, int)"
)
DOUBLE_PRODUCT: Final = (
    "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(T1::Params)"
)
DOUBLE_SCALARS: Final = (
    f"void {NATIVE}<unnamed>::multi_tensor_apply_kernel<{NATIVE}<unnamed>::FusedAdamMathFunctor"
    "<float, (int)4>, const float *, double, double, bool, const float *>(T1, T2, T3...)"
)


def traits_of(name: str) -> dict[str, Any]:
    short = name.removeprefix("void ").partition("<")[0].rpartition("::")[2].partition("(")[0]
    frame = pl.DataFrame({"name": [name], "short_name": [short]})
    return with_traits(frame, ()).row(0, named=True)


FP8: Final = "nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT"
UNITS: Final = {
    **dict.fromkeys(FP32, "float32"),
    **dict.fromkeys(TF32, "tf32"),
    **dict.fromkeys(BF16, "bf16"),
    **dict.fromkeys(FP16, "fp16"),
    FP8: "fp8",
}


DOUBLES: Final = (
    *(DOUBLE, DOUBLE_PRODUCT, "volta_dgemm_64x64_nn"),
    "sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage4_tensor8x8x4_kernel",
)
GENERATIONS: Final = {
    "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1": 75,
    "sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x128x32_execute_kernel": 80,
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": 90,
    "cutlass3x_sm100_tensorop_s128x256": 100,
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_nn": 75,
    "triton_poi_fused_add_0": None,
}
WORK: Final = {
    **dict.fromkeys((DOWN, UP, FROM_INT8), "cast"),
    **dict.fromkeys((STRIDED, TO_NHWC), "layout"),
    SOFTMAX: "softmax",
    ADDCDIV: "update",
}
OTHERS: Final = (
    DOUBLE_SCALARS,  # a float32 optimizer takes its numbers as doubles
    *(ADD, MUL, FLASH, LOG_SOFTMAX, FOREACH),
    "void dgrad2d_grouped_direct_kernel<float, float, float, (int)3>(cudnnTensorStruct)",
    "void implicit_convolve_sgemm<__nv_bfloat16, __nv_bfloat16, (int)128>(int, int, int)",
)
EVERY: Final = dict.fromkeys((*UNITS, *ODD, *DOUBLES, *GENERATIONS, *WORK, *OTHERS))


@pytest.mark.parametrize("name", EVERY)
def test_a_name_tells_its_unit_alignment_generation_and_work(name: str) -> None:
    found = traits_of(name)
    assert found["double"] == (name in DOUBLES)
    work = [trait for trait in ("cast", "layout", "softmax", "update") if found[trait]]
    assert work == ([WORK[name]] if name in WORK else [])
    assert found["simt"] == (name in FP32)  # off the tensor cores
    assert name not in UNITS or found["unit"] == UNITS[name]
    assert name not in GENERATIONS or found["generation"] == GENERATIONS[name]
    assert name not in ODD or found["aligned_to"] == ODD[name]
    # align1 of a float32 kernel is no misalignment
    assert name not in FP32 or not found["aligned_to"]
