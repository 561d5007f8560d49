"""Classes of calls, and kernels that communicate."""

import polars as pl
import pytest

from nsysflow.analysis.events.classes import class_by_name, communication_class, communication_rules
from nsysflow.analysis.load.kernel_names import short_kernel_name
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
