"""Classes of calls and of kernels, among them kernels that communicate (spec §6.3)."""

from pathlib import Path

import polars as pl
import pytest

from nsysflow.analysis.events.classes import class_by_name, communication_class, communication_rules
from nsysflow.analysis.events.kernel_classes import class_of, kernel_classes, read_kernel_classes
from nsysflow.analysis.load.kernel_names import short_kernel_name
from nsysflow.base.errors import SettingsError
from tests.agreement import Picture, assert_pictures_agree
from tests.tiny import WORKER, Row, copy, kernel, launch

MS = 1_000_000


CLASSES = {
    "cudaDeviceSynchronize": "sync",
    "cuStreamSynchronize": "sync",
    "cudaMemcpy": "blocking_copy",
    "cuMemcpyDtoH": "blocking_copy",
    "cudaMemcpyAsync": "launch",
    "cudaMemsetAsync": "launch",
    "cuLaunchKernelEx": "launch",
    "cudaGraphLaunch": "launch",
    "cudaLaunchHostFunc": "api",
    "cudaGraphAddMemcpyNode": "api",
    "cudaMallocHost": "alloc",
    "cuMemAddressReserve": "alloc",
    "cuLibraryLoadData": "module_load",
    "cuKernelGetFunction": "api",
    "cudaStreamSynchronize2": "api",
    "hipDeviceSynchronize": "sync",
    "hipEventSynchronize": "sync",
    "hipMemcpyWithStream": "blocking_copy",
    "hipMemcpyAsync": "launch",
    "hipMemcpyDtoHAsync": "launch",
    "hipLaunchKernel": "launch",
    "hipExtLaunchKernel": "launch",
    "hipModuleLaunchKernel": "launch",
    "hipExtModuleLaunchKernel": "launch",
    "hipGraphLaunch": "launch",
    "hipLaunchHostFunc": "api",
    "hipMalloc": "alloc",
    "hipHostMalloc": "alloc",
    "hipFree": "alloc",
    "hipMemCreate": "alloc",
    "hipModuleLoadData": "module_load",
    "hipModuleGetFunction": "api",
    "hipMemGetInfo": "api",
    "hipStreamWaitEvent": "api",
    "hipGraphAddKernelNode": "api",
}


def test_a_name_has_one_class() -> None:
    frame = pl.DataFrame({"name": [*CLASSES]})
    found = frame.select(class_by_name(pl.col("name"))).to_series().to_list()
    assert dict(zip(CLASSES, found, strict=True)) == CLASSES


def first_launch(ns: int, *before: Row) -> Picture:
    """A first launch that takes so long."""
    return [*before, launch(100, 100 + ns, 2), kernel(3 * MS, 3 * MS + 9, 2)]


GRAPH_BEFORE = launch(0, 10, 1, name="cudaGraphLaunch"), kernel(20, 30, 1)
SLOW_TOGETHER = (
    *(launch(0, 1, 1), kernel(1, 4, 1, name="other"), launch(5, 10, 2)),
    *(launch(5, MS + 6, 3, thread=WORKER), kernel(11, 16, 2), kernel(MS + 7, MS + 12, 3)),
)


def test_pictures_of_first_launches_agree_with_the_oracle() -> None:
    assert_pictures_agree(
        {
            "a first launch of 1 ms": first_launch(MS),
            "a first launch of over 1 ms": first_launch(MS + 1),
            "a first launch after a graph's": first_launch(2 * MS, *GRAPH_BEFORE),
            "a second launch": first_launch(2 * MS, launch(0, 10, 1), kernel(20, 30, 1)),
            "two slow first launches that begin together": SLOW_TOGETHER,
            "an asynchronous copy of pageable memory": copied("pageable"),
            "an asynchronous copy of pinned memory": copied("pinned"),
        }
    )


def copied(memory: str) -> Picture:
    """A gap before a copy of this memory whose call takes long."""
    call = launch(50, 400, 2, name="cudaMemcpyAsync")
    return [launch(0, 5, 1), kernel(6, 9, 1), call, copy(420, 430, 2, "HtoD", memory, "device")]


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
    found = {
        name: pl.select(communication_class(pl.lit(name), pl.lit(short_kernel_name(name)))).item()
        for name in names
    }
    assert {name: each or "none" for name, each in found.items()} == dict.fromkeys(names, kind)


def test_each_rule_has_a_known_class() -> None:
    assert {kind for kind, _ in communication_rules()} == {"comm", "gemm+comm", "none"}


NAMES = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL": "comm",
    "cross_device_reduce_1stage": "comm",
    "flash_fwd_kernel": "attention",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7": "attention",
    "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN": "matmul",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3": "matmul",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": "matmul",
    "dot_kernel": "matmul",
    "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8": "matmul",
    "GemmUniversal": "matmul",
    "cutlass_3x_gemm_fp8_blockwise": "matmul",
    "DeviceGemmFp4GemmSm100": "matmul",
    "FlashAttnFwdSm90": "attention",
    "Sm100FmhaFwdKernelTmaWarpspecialized": "attention",
    "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_64x64_32x5_nhwc_align8": "conv",
    "ImplicitGemmConvolution": "conv",
    "ParallelForAgent": "elementwise",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw": "conv",
    "vectorized_layer_norm_kernel": "norm",
    "GammaBetaBackwardCUDAKernelTemplate": "norm",
    "cunn_SoftMaxForward": "softmax",
    "reduce_kernel": "reduction",
    "multi_tensor_apply_kernel": "optimizer",
    "embedding_backward_feature_kernel": "embedding",
    "CatArrayBatchedCopy": "copy/cast",
    "triton_poi_fused_add_0": "triton",
    "triton_poi_fused_all_reduce_0": "triton",
    "kernel_gemm_rs_producer_persistent": "gemm+comm",
    "vectorized_elementwise_kernel": "elementwise",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT320x224x64_MI16x16x1_SN_LDSB0": "matmul",
    "kernel_gemm_xdl_cshuffle_v3": "matmul",
    "kernel_batched_gemm_xdlops_bwd_weight": "conv",
    "kernel_grouped_conv_fwd_xdl_cshuffle_v3": "conv",
    "kernel_batched_gemm_softmax_gemm_xdl_cshuffle_v1": "attention",
    "FmhaBatchPrefillWithPagedKVCacheKernel": "attention",
    "Rmsnorm2dFwd": "norm",
    "MoeSortingKernel": "moe",
    "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32_wt32x32x8": "conv",
    "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride1": "conv",
    "MIOpenBatchNormFwdTrainSpatial": "norm",
    "batched_transpose_32x32_half": "copy/cast",
    "SubTensorOpWithScalar1d": "copy/cast",
    "mloPoolingG": "reduction",
    "wrapped_scan_config": "reduction",
    "wrapped_transform_config": "elementwise",
    "fmha_fwd_hd128_bf16_rtz": "attention",
    "fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256": "matmul",
    "wvSplitK_hf_sml_": "matmul",
    "add_rmsnorm_quant_kernel": "norm",
    "rccl_main_kernel": "comm",
    "BatchDecodeWithPagedKVCacheKernel": "attention",
    "PersistentVariableLengthMergeStatesKernel": "attention",
    "kernel_unified_attention_2d": "attention",
    "_fwd_grouped_kernel_stage1": "attention",
    "flash_fwd_splitkv_mla_kernel": "attention",
    "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100": "attention",
    "sm90_fp8_gemm_1d2d_impl": "matmul",
    "fp8_gemm_kernel": "matmul",
    "_w8a8_block_fp8_matmul": "matmul",
    "Marlin": "matmul",
    "gptq_marlin_repack_kernel": "copy/cast",
    "fused_moe_kernel": "matmul",
    "moe_align_block_size_kernel": "moe",
    "topkGatingSoftmax": "moe",
    "routingIndicesHistogramKernel": "moe",
    "rotary_embedding_kernel": "rope",
    "BatchQKApplyRotaryPosIdsCosSinCacheKernel": "rope",
    "fused_rope_forward": "rope",
    "reshape_and_cache_flash_kernel": "kv-cache",
    "concat_and_cache_mla_kernel": "kv-cache",
    "fused_add_rms_norm_kernel": "norm",
    "act_and_mul_kernel": "elementwise",
    "TopKTopPSamplingFromProbKernel": "sampling",
    "OnlineSoftmaxFusedKernel": "softmax",
    "scaled_fp8_quant_kernel_strided": "quantize",
    "per_token_group_quant_8bit_kernel": "quantize",
    "split_embedding_codegen_forward_unweighted_kernel": "embedding",
    "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1": "conv",
    "max_pool_forward_nchw": "reduction",
    "triton_red_fused__to_copy_rms_norm_rope_quantize_3": "triton",
    "__amd_rocclr_fillBufferAligned": "memory",
    "__amd_rocclr_copyBuffer": "copy/cast",
    "spin_kernel": "sleep",
    "record_param_comms": "other",
    "property_kernel": "other",
    "quantile_kernel": "other",
    "moessner": "other",
    "my_kernel": "other",
    "Kernel2": "other",
    "kernel": "other",
    "device_kernel": "other",
}
"""Among them what a substring test on `mm` or `dot` misfiles: `GammaBeta…`, `record_param_comms`,
flash attention. A generic name, which stays where its arguments say no more, is in no class."""


def test_a_kernel_is_filed_under_its_class() -> None:
    names = pl.DataFrame({"name": [*NAMES]})
    found = names.select(class_of(pl.col("name"), pl.col("name"))).to_series()
    assert dict(zip(NAMES, found, strict=True)) == NAMES


def test_no_pattern_matches_an_empty_name() -> None:
    names = pl.Series(["", "x"])
    for name, pattern in kernel_classes():
        assert not names.str.contains(pattern).any(), name


def test_rules_of_a_user_come_before_ours_and_after_communication(tmp_path: Path) -> None:
    file = tmp_path / "classes.toml"
    file.write_text("[[class]]\nname = 'mine'\npattern = '^(nccl|my_|dot)'\n")
    rules = read_kernel_classes(file)
    names = pl.DataFrame({"name": ["my_kernel", "dot_kernel", "ncclDevKernel", "layer_norm"]})
    filed = names.select(class_of(pl.col("name"), pl.col("name"), rules)).to_series().to_list()
    assert filed == ["mine", "mine", "comm", "norm"]


@pytest.mark.parametrize(
    "text",
    ["[[class]]\nname = 'x'\n", "class = 3\n", "[[class\n", "[[class]]\nname='x'\npattern='('\n"],
)
def test_a_file_without_usable_rules_is_named_with_their_form(tmp_path: Path, text: str) -> None:
    file = tmp_path / "classes.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"\[\[class\]\]") as raised:
        read_kernel_classes(file)
    assert str(file) in str(raised.value)
