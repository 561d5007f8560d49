"""Matrix products without tensor cores, or of sizes that do not fit them."""

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.rules.fp32_matmul import fp32_matmul
from nsysflow.analysis.findings.rules.unaligned_matmul import unaligned_matmul
from tests.analysis.findings.programs import asked, left_of, real, subject_of
from tests.analysis.findings.test_kernels import ADD, BF16, FP32, ODD, PRODUCT, TF32


@pytest.mark.parametrize("name", FP32)
def test_it_comes_first_where_most_kernel_time_is_float32_products(name: str) -> None:
    first = find(subject_of([(name, 93), (ADD, 7)])).valued[0]
    assert first.finding.rule == "fp32-matmul"
    assert "93 % of kernel time" in first.finding.title
    assert first.finding.method == "bound"
    assert first.low_ns == 0


@pytest.mark.parametrize("name", [*TF32, *BF16])
def test_it_is_quiet_where_the_tensor_cores_compute(name: str) -> None:
    assert asked(fp32_matmul, subject_of([(name, 100)])) is None


def test_a_gpu_with_known_peaks_saves_up_to_their_ratio() -> None:
    finding = asked(fp32_matmul, subject_of([(FP32[0], 100)]))
    assert left_of(finding) == {FP32[0]: round(66.9 / 494.7, 2)}


def test_a_gpu_without_known_peaks_saves_up_to_half() -> None:
    finding = asked(fp32_matmul, subject_of([(FP32[0], 100)], gpu="NVIDIA GeForce RTX 4090"))
    assert left_of(finding) == {FP32[0]: 0.5}


def test_rank_0_of_the_ddp_pair_spends_93_percent_on_float32_products() -> None:
    first = find(real("h200-ddp-rank0")).valued[0].finding
    assert first.rule == "fp32-matmul"
    assert "93 % of kernel time" in first.title


def test_a_program_in_bf16_has_none() -> None:
    assert asked(fp32_matmul, real("nan_check-sync")) is None


OLDEST = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1)"
OLDER = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_tensor16x8x16_kernel"


@pytest.mark.parametrize("name", ODD)
def test_it_comes_first_where_most_kernel_time_is_unaligned(name: str) -> None:
    first = find(subject_of([(name, 77), (ADD, 23)])).valued[0].finding
    assert first.rule == "unaligned-matmul"
    assert first.title == "matmul with unaligned sizes: 77 % of kernel time"
    assert "multiple of 8" in first.change[0]


@pytest.mark.parametrize(
    ("name", "gpu", "left"),
    [
        (OLDEST, "NVIDIA H200", 0.2),
        (OLDEST.replace("75", "80"), "NVIDIA H200", 0.35),
        (OLDER, "NVIDIA H200", 0.6),
        (OLDEST, "NVIDIA A100-SXM4-80GB", 0.5),
        (OLDEST, "NVIDIA GeForce RTX 4090", 0.5),
    ],
)
def test_what_is_left_depends_on_the_kernel_and_the_gpu(name: str, gpu: str, left: float) -> None:
    assert left_of(asked(unaligned_matmul, subject_of([(name, 90)], gpu=gpu))) == {name: left}


def test_where_the_name_of_the_gpu_says_nothing_its_other_kernels_do() -> None:
    finding = asked(unaligned_matmul, subject_of([(OLDER, 90), (PRODUCT, 90)], gpu="a GPU"))
    assert left_of(finding) == {OLDER: 0.6}
    assert asked(unaligned_matmul, subject_of([(OLDER, 90)], gpu="a GPU")) is None


@pytest.mark.parametrize("gpu", ["NVIDIA A100-SXM4-80GB", "NVIDIA L40S", "NVIDIA RTX PRO 6000"])
def test_kernels_of_sm_80_are_native_where_there_are_no_newer_ones(gpu: str) -> None:
    assert asked(unaligned_matmul, subject_of([(OLDER, 90)], gpu=gpu)) is None


def test_what_most_can_be_saved_on_gives_the_title() -> None:
    odd, older = (OLDEST, 20), (OLDER, 20)
    finding = asked(unaligned_matmul, subject_of([odd, older]))
    assert finding is not None
    assert finding.title.startswith("matmul with unaligned sizes: 100 %")
    finding = asked(unaligned_matmul, subject_of([odd, *[older] * 4]))
    assert finding is not None
    assert finding.title.startswith("matmul by kernels of an older GPU generation: 100 %")


@pytest.mark.parametrize("name", [PRODUCT, *FP32])
def test_it_is_quiet_for_native_and_for_float32_kernels(name: str) -> None:
    assert asked(unaligned_matmul, subject_of([(name, 100)])) is None


def test_the_odd_vocabulary_of_gpt2_is_named_though_the_host_is_the_limit() -> None:
    found = find(real("h200-gpt2-eager")).valued
    (odd,) = [one for one in found if one.finding.rule == "unaligned-matmul"]
    assert "25 % of kernel time" in odd.finding.title
    assert odd.alone_ns == 0 < odd.high_ns
