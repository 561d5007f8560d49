"""Kernels of a program's own that have few of the threads that the GPU holds."""

from dataclasses import replace
from typing import Any, Final

import pytest

import nsysflow
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.last_resort import largest_of_own
from nsysflow.analysis.findings.rules.occupancy import small_grid
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Row, asked, found, launched, left_of, one_gpu
from tests.oracle.model import Op, Shape, to_trace

PLAIN: Final = "norm_grad_w(float *, const float *, int)"
H200: Final = "NVIDIA H200"
FILL: Final = names.ADD
"""A kernel of PyTorch's."""

OF_LIBRARIES: Final = (
    "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNN",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x128",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn",
    "cutlass_80_tensorop_s1688gemm_64x128_32x6_nt_align4",
    "kernel_cutlass_norm_sm90_0",
    "fmha_v2_flash_attention_bf16_64_128_S_128_sm90_kernel",
    "triton_red_fused_native_layer_norm_backward_3",
    "triton_",
    "cupy_sum__float32_float32",
    "__myl_CastMulMean_0x1",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
    # products' tiles need no more threads
    "matmul_kernel",
    "_attn_fwd",
)
"""Bare names that are no kernels of one's own, or that are not asked for threads."""


def shaped(rows: tuple[Row, Op], blocks: int, threads: int | None) -> tuple[Row, Op]:
    call, op = rows
    return call, replace(op, shape=Shape(grid_x=blocks, block_x=threads))  # type: ignore[arg-type]


def program(
    name: str,
    *,
    us: int = 1_000,
    blocks: int = 128,
    threads: int | None = 128,
    gpu: str = H200,
    sms: int = 132,
    beside: tuple[str, int] = (FILL, 2_000),
    more: tuple[Row, ...] = (),
) -> JudgedReport:
    """That kernel, and another one behind it whose blocks fill the GPU."""
    first = shaped(launched(1, us, name=name), blocks, threads)
    other = shaped(launched(7, beside[1], queued=us + 10, name=beside[0]), 10_000, 128)
    plain = tiny.plain_of(*first, *other, *more)
    changed: Any = {"devices": one_gpu(gpu, sms), "threads": ()}
    return JudgedReport(nsysflow.analyze(to_trace(replace(plain, **changed))))


def test_a_triton_kernel_with_few_threads_is_named_even_if_each_sm_has_a_block() -> None:
    one = asked(small_grid, program("norm_grad_w"))
    assert one.title == "norm_grad_w runs as 128 blocks of 128 threads: 33 % of kernel time"
    assert left_of(one) == {"norm_grad_w": 0.06}  # 16,384 of 270,336 threads
    said = "the one with most time has 0.97 blocks per SM, 6.1 % of the threads that the GPU holds"
    assert said in one.evidence
    assert "tl.atomic_add" in one.change[0]
    assert (one.effort, one.fits, one.method) == ("lines", True, "bound")


def test_a_function_of_cuda_c_is_told_of_blocks_and_not_of_triton() -> None:
    one = asked(small_grid, program(PLAIN, beside=("k", 2_000)))
    assert one.title.startswith("norm_grad_w runs as 128 blocks of 128 threads")
    assert "blockIdx.x" in one.change[0]


@pytest.mark.parametrize("name", OF_LIBRARIES)
def test_kernels_of_libraries_are_not_asked_for_threads(name: str) -> None:
    of_library = program(name)
    assert not found(small_grid, of_library)
    assert not [*largest_of_own(of_library, ())]
    assert not found(small_grid, program(name, blocks=264, threads=32))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"us": 99}, id="short"),
        pytest.param({"threads": 256}, id="an eighth of the threads"),
        pytest.param({"threads": None}, id="threads that were not recorded"),
        pytest.param({"blocks": 1_000}, id="many blocks"),
        pytest.param({"gpu": "AMD Instinct MI300X"}, id="libraries of AMD have bare names"),
        pytest.param({"beside": ("loop_add_fusion", 2_000)}, id="XLA's kernels have bare names"),
        # an SM of these holds 1,536 and 1,024 threads
        pytest.param({"gpu": "NVIDIA L40S", "threads": 160}, id="160 of 1,536 threads"),
        pytest.param({"gpu": "Tesla T4", "threads": 128}, id="128 of 1,024 threads"),
    ],
)
def test_other_kernels_are_large_enough(options: dict[str, Any]) -> None:
    assert not found(small_grid, program("norm_grad_w", **options))


def test_few_blocks_of_unknown_size_are_told_without_threads() -> None:
    one = asked(small_grid, program("norm_grad_w", blocks=12, threads=None))
    assert "the one with most time has 0.09 blocks per SM" in one.evidence


def test_kernels_of_other_streams_fill_the_chip() -> None:
    def also(start: int, us: int, name: str) -> tuple[Row, ...]:
        call, op = shaped(launched(20, us, queued=start - 25, name=name), 10_000, 128)
        return call, replace(op, stream=8)

    for name in ("k", FILL):
        assert not found(small_grid, program("norm_grad_w", more=also(100, 800, name)))
        assert found(small_grid, program("norm_grad_w", more=also(900, 300, name)))
    # communication takes few SMs
    reduces = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)"
    assert found(small_grid, program("norm_grad_w", more=also(100, 800, reduces)))


def test_small_kernels_of_a_library_stay_a_finding_of_their_own() -> None:
    call, op = shaped(launched(20, 2_000, queued=4_000, name=names.PRODUCT), 20, 128)
    own, others = found(small_grid, program("norm_grad_w", more=(call, op)))
    assert own.culprit == "norm_grad_w"
    assert others.title.startswith("kernels too small for the chip: 40 %")
    assert left_of(others) == {names.PRODUCT: 0.5}
    assert (others.effort, others.fits) == ("restructure", False)


def test_a_large_kernel_of_one_s_own_is_named_last_where_findings_are_about_others() -> None:
    fp32 = names.FP32[0]
    of_product = program("norm_grad_w", blocks=9_000, beside=(fp32, 3_000))
    *_, last = find(of_product).valued
    assert (last.finding.rule, last.low_ns, last.high_ns) == ("largest-kernels", 0, 0)
    assert last.finding.title == "a kernel of your own, norm_grad_w, takes 25 % of kernel time"
    assert last.finding.change[1].endswith("ncu --set full -k regex:norm_grad_w")
    for quiet in (
        program("norm_grad_w", beside=(fp32, 3_000)),  # a finding is about it
        program("norm_grad_w", us=600, blocks=9_000, beside=(fp32, 3_000)),  # 17 %
    ):
        assert "fp32-matmul" in {one.finding.rule for one in find(quiet).valued}
        assert "largest-kernels" not in {one.finding.rule for one in find(quiet).valued}


def test_most_kernel_time_may_be_a_triton_kernel() -> None:
    *_, last = find(program("norm_grad_w", us=9_000, blocks=9_000)).valued
    assert last.finding.title == "most kernel time is a Triton kernel, norm_grad_w: 82 %"
    assert "torch.compile" in last.finding.change[0]
