"""`fp32-matmul` names float32 products off the tensor cores, and nothing else."""

import pytest

from nsysflow.analysis.findings.find import find
from nsysflow.analysis.findings.rules.gpu.fp32_matmul import fp32_matmul
from tests.analysis.findings.kernels.names import ADD, BF16, FP32, TF32
from tests.analysis.findings.rules.gpu.programs import asked, left_of, real, subject_of


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
