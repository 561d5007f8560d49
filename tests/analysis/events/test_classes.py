"""Classes of calls and of kernels, among them kernels that communicate (spec §6.3)."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from nsysflow.analysis.events.classes import (
    class_by_name,
    communication_classes,
    communication_rules,
)
from nsysflow.analysis.events.kernel_classes import (
    class_of,
    functor_of,
    kernel_classes,
    read_kernel_classes,
)
from nsysflow.analysis.load.kernel_names import short_kernel_name
from nsysflow.base.errors import SettingsError
from tests.agreement import Picture, assert_pictures_agree
from tests.oracle.kernels import functor
from tests.tiny import WORKER, Row, copy, kernel, launch

MS = 1_000_000


CLASSES = {
    "sync": "cudaDeviceSynchronize cuStreamSynchronize hipDeviceSynchronize hipEventSynchronize",
    "blocking_copy": "cudaMemcpy cuMemcpyDtoH hipMemcpy hipMemcpyWithStream",
    "launch": "cudaMemcpyAsync cudaMemsetAsync cuLaunchKernelEx cudaGraphLaunch hipMemcpyAsync"
    " hipMemcpyDtoHAsync hipLaunchKernel hipExtLaunchKernel hipModuleLaunchKernel"
    " hipExtModuleLaunchKernel hipGraphLaunch",
    "alloc": "cudaMallocHost cuMemAddressReserve hipMalloc hipHostMalloc hipFree hipMemCreate",
    "module_load": "cuLibraryLoadData hipModuleLoadData",
    "api": "cudaLaunchHostFunc cudaGraphAddMemcpyNode cuKernelGetFunction cudaStreamSynchronize2"
    " hipLaunchHostFunc hipModuleGetFunction hipMemGetInfo hipStreamWaitEvent"
    " hipGraphAddKernelNode",
}


def filed(names: Mapping[str, str], kind: pl.Expr) -> dict[str, str]:
    """All these names by the class that the expression finds for each `name`."""
    frame = pl.DataFrame({"name": [name for of in names.values() for name in of.split()]})
    found = frame.group_by(kind.cast(pl.String).alias("class"), maintain_order=True).agg("name")
    return {of_class: " ".join(of) for of_class, of in found.rows()}


def test_a_name_has_one_class() -> None:
    assert filed(CLASSES, class_by_name(pl.col("name"))) == CLASSES


def first_launch(ns: int, *before: Row) -> Picture:
    """A first launch that takes so long."""
    return [*before, launch(100, 100 + ns, 2), kernel(3 * MS, 3 * MS + 9, 2)]


def copied(memory: str) -> Picture:
    """A gap before a copy of this memory whose call takes long."""
    call = launch(50, 400, 2, name="cudaMemcpyAsync")
    return [launch(0, 5, 1), kernel(6, 9, 1), call, copy(420, 430, 2, "HtoD", memory, "device")]


GRAPH_BEFORE = launch(0, 10, 1, name="cudaGraphLaunch"), kernel(20, 30, 1)
PICTURES: dict[str, Picture] = {
    "a first launch of 1 ms": first_launch(MS),
    "a first launch of over 1 ms": first_launch(MS + 1),
    "a first launch after a graph's": first_launch(2 * MS, *GRAPH_BEFORE),
    "a second launch": first_launch(2 * MS, launch(0, 10, 1), kernel(20, 30, 1)),
    "two slow first launches that begin together": [
        *(launch(0, 1, 1), kernel(1, 4, 1, name="other"), launch(5, 10, 2)),
        *(launch(5, MS + 6, 3, thread=WORKER), kernel(11, 16, 2), kernel(MS + 7, MS + 12, 3)),
    ],
    "an asynchronous copy of pageable memory": copied("pageable"),
    "an asynchronous copy of pinned memory": copied("pinned"),
}


def test_pictures_of_first_launches_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


COMM = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
    "nvshmemi_init_array_kernel(nvshmemi_device_host_state_v1*)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*, sglang::RankSignals)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
    "void <unnamed>::two_shot_all_reduce_kernel_inplace<c10::BFloat16, (int)16>(c10::BFloat16*)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
    "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16>(int)",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>(AllReduceParams)",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8>(int const*)",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
    "void deep_ep::internode_ll::combine<false, 7168, 9>(void*, void*)",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)",
    "void deep_ep::intranode::barrier<8>(int**, int)",
    "void hybrid_ep::device_sync_kernel<8>(unsigned int*)",
    "void hybrid_ep::dispatch_kernel<7168>(int)",
    "void a2a_kernels::a2a_dispatch_send_kernel<true, 16ul>(unsigned long)",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int)",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)",
    "c10d::symmetric_memory::wait_signal_kernel(unsigned int**, int, int)",
)

GEMM_AND_COMM = (
    "kernel_gemm_rs_producer_persistent",
    "kernel_consumer_gemm_persistent_skip_local",
    "void tensorrt_llm::cutlass_extensions::gemm_allreduce_kernel<int>(int)",
    "void hgemm_ar_kernel<8>(int)",
    "void kittens::ag_gemm<2>(int)",
)

NEITHER = (
    "record_param_comms",
    "triton_poi_fused_all_reduce_0",
    "void at::native::vectorized_elementwise_kernel<4, allgather_functor<float>>(int)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp)",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(int)",
    "void deep_ep::layout::get_dispatch_layout<256, 4, 2>(long const*)",
    "void hybrid_ep::permute_kernel<8>(int)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "void moe::dispatch<float>(float*)",
    "void combine(float*)",
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN",
    "void gemm_arrange<1>(int)",
    "",
)


@pytest.mark.parametrize(
    ("names", "kind"), [(COMM, "comm"), (GEMM_AND_COMM, "gemm+comm"), (NEITHER, "none")]
)
def test_kernels_that_communicate_are_known_by_name(names: tuple[str, ...], kind: str) -> None:
    kernels = pl.DataFrame({"name": names, "short_name": [*map(short_kernel_name, names)]})
    assert [each or "none" for each in communication_classes(kernels)] == [kind] * len(names)


def test_each_rule_has_a_known_class() -> None:
    assert {kind for kind, _ in communication_rules()} == {"comm", "gemm+comm", "none"}


NAMES = {
    "comm": "ncclDevKernel_AllReduce_Sum_f32_RING_LL cross_device_reduce_1stage rccl_main_kernel",
    "attention": "flash_fwd_kernel compute_attn_ws fmha_cutlassF_bf16_aligned_64x64_rf_sm80"
    " cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7 FlashAttnFwdSm90"
    " Sm100FmhaFwdKernelTmaWarpspecialized kernel_batched_gemm_softmax_gemm_xdl_cshuffle_v1"
    " FmhaBatchPrefillWithPagedKVCacheKernel fmha_fwd_hd128_bf16_rtz"
    " BatchDecodeWithPagedKVCacheKernel PersistentVariableLengthMergeStatesKernel"
    " kernel_unified_attention_2d _fwd_grouped_kernel_stage1 flash_fwd_splitkv_mla_kernel"
    " kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100",
    "matmul": "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"
    " sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3"
    " ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn dot_kernel"
    " cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8 GemmUniversal"
    " cutlass_3x_gemm_fp8_blockwise DeviceGemmFp4GemmSm100"
    " Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT320x224x64_MI16x16x1_SN_LDSB0"
    " kernel_gemm_xdl_cshuffle_v3 fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256 wvSplitK_hf_sml_"
    " sm90_fp8_gemm_1d2d_impl fp8_gemm_kernel _w8a8_block_fp8_matmul Marlin fused_moe_kernel"
    " dpsk::cuda::m_grouped_fp8_ptp128c::GemmKernel",
    "conv": "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64_32x5_nhwc_align8"
    " ImplicitGemmConvolution sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw"
    " kernel_batched_gemm_xdlops_bwd_weight kernel_grouped_conv_fwd_xdl_cshuffle_v3"
    " igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32_wt32x32x8"
    " miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride1"
    " cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
    "elementwise": "ParallelForAgent vectorized_elementwise_kernel wrapped_transform_config"
    " act_and_mul_kernel",
    "norm": "vectorized_layer_norm_kernel GammaBetaBackwardCUDAKernelTemplate Rmsnorm2dFwd"
    " MIOpenBatchNormFwdTrainSpatial add_rmsnorm_quant_kernel fused_add_rms_norm_kernel"
    " ln_fwd_kernel ln_bwd_finalize_tuned_kernel",
    "softmax": "cunn_SoftMaxForward OnlineSoftmaxFusedKernel",
    "reduction": "reduce_kernel mloPoolingG wrapped_scan_config max_pool_forward_nchw"
    " sm50_xmma_pooling_coalescedC_NHWC_kMAX_3_False_execute_kernel_trt",
    "optimizer": "multi_tensor_apply_kernel",
    "embedding": "embedding_backward_feature_kernel"
    " split_embedding_codegen_forward_unweighted_kernel",
    "copy/cast": "CatArrayBatchedCopy batched_transpose_32x32_half SubTensorOpWithScalar1d"
    " gptq_marlin_repack_kernel __amd_rocclr_copyBuffer",
    "fft": "vector_fft_symm_r2c regular_fft_factor prime_fft multi_bluestein_fft"
    " packR2C_kernel_Odd_impl unpackC2R_kernel_Odd_impl postprocess_kernel preprocess_kernel"
    " fft_rtc_fwd_len128_factors_16_8_wgs_256_tpt_16_sp_ip_CI_sbcc_dirReg bluestein_pad_mul_sp"
    " r2c_even_post_Ndiv4_dim1_sp_CI_CI VkFFT_main",
    "solver": "getrf_pivot getrf_semiwarp getrf_wo_pivot_params_ kernel_trsm_l_mul32 trsv_ln_exec"
    " trsm_batch_left_lower_kernel potf2_kernel zgetf2_kernel batched_svd_parallel_jacobi_32x16",
    "triton": "triton_poi_fused_add_0 triton_poi_fused_all_reduce_0"
    " triton_red_fused__to_copy_rms_norm_rope_quantize_3",
    "gemm+comm": "kernel_gemm_rs_producer_persistent",
    "moe": "MoeSortingKernel moe_align_block_size_kernel topkGatingSoftmax"
    " routingIndicesHistogramKernel",
    "rope": "rotary_embedding_kernel BatchQKApplyRotaryPosIdsCosSinCacheKernel fused_rope_forward",
    "kv-cache": "reshape_and_cache_flash_kernel concat_and_cache_mla_kernel",
    "sampling": "TopKTopPSamplingFromProbKernel",
    "quantize": "scaled_fp8_quant_kernel_strided per_token_group_quant_8bit_kernel"
    " per_token_cast_to_fp8_with_channels per_channel_cast_and_transpose",
    "memory": "__amd_rocclr_fillBufferAligned",
    "sleep": "spin_kernel",
    "other": "record_param_comms property_kernel quantile_kernel moessner my_kernel Kernel2 kernel"
    " postprocess_kernel_boxes fft_shift"
    " device_kernel",
}
"""Among them what a substring test on `mm` or `dot` misfiles: `GammaBeta…`, `record_param_comms`,
flash attention. A generic name, which stays where its arguments say no more, is in no class."""


def test_a_kernel_is_filed_under_its_class() -> None:
    assert filed(NAMES, class_of(pl.col("name"), pl.col("name"))) == NAMES


ARRAY = "std::array<char *, (unsigned long)3>>(int, T2, T3)"
PARAMETERS = "(at::TensorIteratorBase &)"
LAMBDAS = "::[lambda() (instance 2)]::operator ()() const::[lambda(float) (instance 1)]"
FUNCTORS = {
    "": (
        "ampere_sgemm_128x64_nn",
        f"void elementwise_kernel<at::native::gpu_kernel_impl{PARAMETERS}::[lambda(int)]>(int)",
        f"void f<g<a<b<c<d>>>>{PARAMETERS}::[lambda(int)]>(int)",
        "void f<g(void (*)(int))::[lambda(int)]>(int)",
        "void f<Ops, lambda>(int)",
    ),
    "MulFunctor": (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float,"
        f" float, float, at::native::binary_internal::MulFunctor<float>>, {ARRAY}",
        "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native"
        "::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > >"
        "(at::TensorIteratorBase&, T1 const&)::{lambda(int)#1}>(int, T3)",
    ),
    "MeanOps": (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<"
        "float, float, float, float>, unsigned int, float, 4, 4> >(T3)",
    ),
    "sum_functor": (
        "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::"
        "func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator ()"
        "(at::TensorIterator &)::[lambda(float, float) (instance 1)]>, unsigned int>>(T3)",
    ),
    "Squares": (f"void f<Squares<float>::operator(){PARAMETERS} const::{{lambda(int)#1}}>(int)",),
    "silu_kernel": (
        "void at::native::vectorized_elementwise_kernel<(int)8, at::native::<unnamed>::silu_kernel"
        f"{PARAMETERS}{LAMBDAS}, {ARRAY}",
        "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::"
        "silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#6}::"
        "operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, T2, T3)",
    ),
    "direct_copy_kernel_cuda": (
        "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::"
        f"gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda{PARAMETERS}{LAMBDAS}>"
        "(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
    ),
    "pow_tensor_scalar_kernel_impl": (
        "void at::native::vectorized_elementwise_kernel<(int)4, void at::native::<unnamed>::"
        "pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase &, T2)::[lambda(float)"
        f" (instance 4)], {ARRAY}",
    ),
    "advec_cell_kernel": (
        "void clover::par_ranged2d_kernel<advec_cell_kernel(global_variables &, int, int)::"
        "[lambda(int, int) (instance 2)]>(clover::Range2d, T1)",
    ),
}


@pytest.mark.parametrize("found", FUNCTORS)
def test_a_kernel_for_any_function_names_the_one_that_it_applies(found: str) -> None:
    names = FUNCTORS[found]
    frame = pl.DataFrame({"name": names}).select(functor_of(pl.col("name")))
    assert frame.to_series().to_list() == [found] * len(names)
    assert [functor(name) for name in names] == [found] * len(names)


def test_no_pattern_matches_an_empty_name() -> None:
    names = pl.Series(["", "x"])
    for name, pattern in kernel_classes():
        assert not names.str.contains(pattern).any(), name


def test_rules_of_a_user_come_before_ours_and_after_communication(tmp_path: Path) -> None:
    file = tmp_path / "classes.toml"
    file.write_text("[[class]]\nname = 'mine'\npattern = '^(nccl|my_|dot)'\n")
    rules = read_kernel_classes(file)
    names = {"mine": "my_kernel dot_kernel", "comm": "ncclDevKernel", "norm": "layer_norm"}
    assert filed(names, class_of(pl.col("name"), pl.col("name"), rules)) == names


@pytest.mark.parametrize(
    "text",
    [
        *("class = 3\n", "[[class\n", "[[class]]\nname = 'x'\n"),
        *("[[class]]\nname='x'\npattern='('\n", "[[class]]\nname = ['x']\npattern = 'y'\n"),
    ],
)
def test_a_file_without_usable_rules_is_named_with_their_form(tmp_path: Path, text: str) -> None:
    file = tmp_path / "classes.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"\[\[class\]\]") as raised:
        read_kernel_classes(file)
    assert str(file) in str(raised.value)
