"""Advice for kernels depends on what the program is written in, and on its GPU."""

from dataclasses import replace

import pytest

from nsysflow.analysis.findings.frameworks import Frameworks, advised
from nsysflow.analysis.findings.rules.attention import unfused_attention
from nsysflow.analysis.findings.rules.extra_kernels import cast_storm
from nsysflow.analysis.findings.rules.fusion import optimizer_not_fused
from nsysflow.analysis.findings.rules.occupancy import small_grid
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import asked, found, left_of, loop, seen, subject_of
from tests.oracle.model import Frame, Sample


@pytest.mark.parametrize(
    ("short_name", "advice"),
    [
        ("fill", "blockIdx.x"),
        ("main_46_gpu", "acc parallel loop"),
        ("nvkernel_main_F1L46_2", "target teams distribute parallel for"),
    ],
)
def test_a_kernel_of_one_block_is_made_parallel_where_it_is_written(
    short_name: str, advice: str
) -> None:
    (one,) = found(small_grid, subject_of([(short_name, 16_000)], blocks=(1,)))
    assert advice in one.change[0]
    assert one.title.startswith(f"{short_name} runs as 1 block")


def test_all_kernels_that_run_as_one_block_are_counted() -> None:
    kernels = [("main_46_gpu", 16_000), ("main_41_gpu", 4_000)]
    (one,) = found(small_grid, subject_of(kernels, blocks=(1,)))
    assert one.title == "main_46_gpu and 1 more run as 1 block of 32 threads: 100 % of kernel time"


def test_parameters_are_not_kept_in_bfloat16_on_a_gpu_without_it() -> None:
    kernels = [(names.PRODUCT, 70), (names.DOWN, 30), ("sm90_layer_norm_backward", 9)]
    for gpu, told in (("Tesla T4", False), ("Tesla V100-SXM2-32GB", False), ("NVIDIA A30", True)):
        (one,) = found(cast_storm, subject_of(kernels, gpu=gpu))
        advice = advised(one, Frameworks(names=("pytorch",), compiled=True)).change
        for change in (one.change, advice):
            assert any("bfloat16" in text for text in change) == told


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("Optimizer.step#SGD.step", "SGD"),
        ("Optimizer.step#Lamb.step", "AdamW"),
        ("optimizer", "AdamW"),
    ],
)
def test_the_optimizer_that_a_range_names_is_the_one_to_fuse(phase: str, told: str) -> None:
    ranges = (tiny.opened(0, 500_000, phase),)
    one = asked(optimizer_not_fused, subject_of([(names.MUL, 2)] * 60, ranges=ranges))
    assert f"torch.optim.{told}(..., fused=True)" in one.change[0]


@pytest.mark.parametrize(
    ("file", "of_pytorch"),
    [
        ("/lib/python3.12/site-packages/torch/optim/adamw.py", True),
        ("/lib/python3.12/site-packages/timm/optim/lamb.py", False),
        ("/train/lamb.py", False),
    ],
)
def test_an_optimizer_that_is_none_of_pytorchs_is_not_told_of_its_options(
    file: str, *, of_pytorch: bool
) -> None:
    update = [(names.MUL, 2, "step"), (names.ADD, 2, "step"), (names.ADDCDIV, 2, "step")] * 20
    rows = [
        replace(row, frames=(replace(row.frames[0], file=file), Frame("/train.py", 9, "main")))
        if isinstance(row, Sample)
        else row
        for row in seen(*update)
    ]
    one = asked(optimizer_not_fused, loop(rows, every=2_000))
    assert ("fused=True" in one.change[0]) is of_pytorch
    assert one.change[0].startswith("torch.compile(optimizer.step)") is not of_pytorch


GEMV = (
    "void gemvNSP_kernel<float, float, float, float, (int)1, (int)32, cublasGemvParamsEx<int>>(T9)"
)


@pytest.mark.parametrize(
    ("before", "product_us", "sums"),
    [(GEMV, 4, True), (names.PRODUCT, 4, False), (GEMV, 60, False)],
    ids=["graph attention", "attention", "one query"],
)
def test_attention_over_sums_of_two_vectors_is_told_to_go_over_the_edges(
    before: str, product_us: int, *, sums: bool
) -> None:
    layer = [(before, product_us), (names.ADD, 60), (names.SOFTMAX, 40), (names.PRODUCT, 8)]
    (one,) = found(unfused_attention, subject_of(layer * 3))
    assert any("those of the edges" in text for text in one.change) is sums


def test_pytorchs_own_attention_is_told_by_its_softmax_to_switch_the_fused_ones_on() -> None:
    safe = [(names.SOFTMAX, 40), (names.INFINITE, 10), (names.EVERY_ROW, 10), (names.DOWN, 10)]
    own = [(names.UP, 20), (names.PRODUCT, 30), *safe, (names.PRODUCT, 30)]
    other = [(names.UP, 20), (names.FLASH, 90)]
    rows = seen(
        *((name, us, "attend") for name, us in own), *((name, us, "project") for name, us in other)
    )
    one = asked(unfused_attention, loop(rows, every=1_000))
    assert one.title.startswith("scaled_dot_product_attention is not fused: 58 % of kernel time")
    assert "enable_flash_sdp" in one.change[0]
    assert one.source == "train.py:1 in attend"
    assert one.effort == "argument"
    # its line casts, too; another line's cast stays
    assert left_of(one) == {**{name: 0.0 for name, _ in own}, names.UP: 0.5}
    assert "the code between them take the host" in one.evidence[-1]


def test_attention_by_hand_is_told_to_call_pytorchs() -> None:
    layer = [(names.PRODUCT, 30), (names.SOFTMAX, 40), (names.PRODUCT, 30)]
    one = asked(unfused_attention, subject_of(layer))
    assert one.title.startswith("attention is not fused: ")
    assert one.effort == "lines"
