"""What is known by the names of its kernels: masks, matrices, bags of rows."""

from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from nsysflow.analysis.findings.rules import Rule
from nsysflow.analysis.findings.rules.attention import (
    causal_mask,
    fp32_attention,
    unfused_attention,
)
from nsysflow.analysis.findings.rules.matrices import small_matrices
from nsysflow.analysis.findings.rules.products import summed_product
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    US,
    Kernels,
    asked,
    found,
    left_of,
    loop,
    seen,
    subject_of,
)
from tests.oracle.model import Frame, Sample

NATIVE: Final = f"void {names.NATIVE}"
ADD, MUL = names.ADD, names.MUL
PRODUCT: Final = (names.PRODUCT, 100)

TRIU: Final = f"{NATIVE}triu_tril_kernel<c10::BFloat16, int, (bool)1, (int)4, (bool)0>(T1)"
FILL: Final = f"{NATIVE}vectorized_elementwise_kernel<(int)8, at::native::FillFunctor<float>>(int)"
FLASH: Final = names.FLASH
FLASH_BACKWARD: Final = FLASH.replace("fprop", "bprop")
MEMORY_EFFICIENT: Final = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80"
IN_FP32: Final = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)"
BACK_IN_FP32: Final = "fmha_cutlassB_f32_aligned_64x64_k64_sm80"
SIMT: Final = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_execute_kernel__5x_cublas"
MASK: Final[Kernels] = [(FILL, 5), (TRIU, 10), (ADD, 80)]
LAYER: Final[Kernels] = [PRODUCT, *MASK, (FLASH, 200)]
OTHER_LAYER: Final[Kernels] = [PRODUCT, (ADD, 80), (FLASH, 400)]
NO_MASK: Final = dict.fromkeys((FILL, TRIU, ADD), 0.0)

GATHER: Final = f"{NATIVE}vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int)"
WEIGHTED: Final = f"{NATIVE}elementwise_kernel<BinaryFunctor<float, MulFunctor<float>>>(T1)"
SUMS: Final = f"{NATIVE}reduce_kernel<(int)128, (int)4, sum_functor<float>>(T3)"

LU: Final = "void getrf_semiwarp<float, float, (int)2, (int)3, (bool)1>(int, T1 *const *, int)"
SOLVE: Final = "void trsm_batch_left_lower_kernel<float>(cublasTrsmBatchParams<T1>, const T1 *)"


class Case(NamedTuple):
    """What a rule leaves of the time of each kernel, and what it says."""

    rule: Rule
    kernels: Kernels
    left: dict[str, float]
    title: str = ""
    advice: tuple[str, ...] = ()
    culprit: str = ""


CASES: Final = {
    "attention of its own causal mask takes half": Case(
        causal_mask,
        [*LAYER, *LAYER, PRODUCT, (FLASH_BACKWARD, 400)],
        left=NO_MASK | {FLASH: 0.5, FLASH_BACKWARD: 0.5},
        title="a triangular mask is made for attention 2 times",
        advice=("is_causal=True",),
    ),
    # half of the forward time has masks: a quarter of both passes goes; one add in three stays
    "attention without such a mask keeps its time": Case(
        causal_mask,
        [*LAYER, *LAYER, *OTHER_LAYER, PRODUCT, (FLASH_BACKWARD, 400)],
        left=NO_MASK | {ADD: 0.33, FLASH: 0.75, FLASH_BACKWARD: 0.75},
    ),
    "how much faster flash attention is is not known": Case(
        causal_mask,
        [PRODUCT, *MASK, (MEMORY_EFFICIENT, 200)] * 2,
        left=NO_MASK | {MEMORY_EFFICIENT: 0.0},
    ),
    "attention in float32 beside products in 16 bits": Case(
        fp32_attention,
        [PRODUCT, (IN_FP32, 30), (BACK_IN_FP32, 70), (MEMORY_EFFICIENT, 50)],
        left={IN_FP32: 0.0, BACK_IN_FP32: 0.0},
        title="attention computes in float32: 40 % of kernel time",
        advice=("q.to(v.dtype)",),
        culprit=BACK_IN_FP32,
    ),
    "a model in float32": Case(
        fp32_attention,
        [(SIMT, 100), (IN_FP32, 100)],
        left={IN_FP32: 0.0},
        advice=("torch.autocast('cuda', torch.bfloat16)",),
    ),
    "rows of a table that are weighted and summed up": Case(
        summed_product,
        [PRODUCT, (GATHER, 80), (WEIGHTED, 40), (SUMS, 10), (GATHER, 20)],
        left={GATHER: 0.2, WEIGHTED: 0.0, SUMS: 0.0},
        title="products are written, then summed up: 52 % of kernel time",
        advice=("embedding_bag",),
    ),
    "LU and its triangles": Case(
        small_matrices,
        [(LU, 20), (SOLVE, 20), (ADD, 60)],
        left={LU: 0.0, SOLVE: 0.0},
        title="small matrices are factorized one by one: 40 % of kernel time",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_are_named_with_what_is_left_of_them(name: str) -> None:
    case = CASES[name]
    one = asked(case.rule, subject_of(case.kernels))
    assert left_of(one) == case.left
    assert one.method == "bound"
    assert case.title in (one.title, "")
    assert case.culprit in (one.culprit, "")
    assert all(word in one.change[0] for word in case.advice)


def quiet(why: str, rule: Rule, *kernels: tuple[str, int]) -> Any:
    return pytest.param(rule, [*kernels], id=f"{rule.__name__}: {why}")


@pytest.mark.parametrize(
    ("rule", "kernels"),
    [
        quiet("made once", causal_mask, *LAYER, PRODUCT, (FLASH, 200)),
        quiet("once for three", causal_mask, *[*LAYER, *[PRODUCT, (FLASH, 200)] * 2] * 2),
        quiet("a matmul between", causal_mask, *[*MASK, PRODUCT, (FLASH, 200)] * 2),
        quiet("no attention", causal_mask, *[*MASK, PRODUCT] * 2),
        quiet("another mask", causal_mask, *[PRODUCT, (ADD, 80), (FLASH, 200)] * 2),
        quiet("far apart", causal_mask, *[*MASK, *[(ADD, 9)] * 16, (FLASH, 200)] * 2),
        quiet("the backward pass", causal_mask, *[*MASK, (FLASH_BACKWARD, 200)] * 2),
        quiet("16 bits", fp32_attention, PRODUCT, (MEMORY_EFFICIENT, 100), (FLASH, 100)),
        quiet("hardly any", fp32_attention, PRODUCT, (IN_FP32, 4)),
        quiet("little time", small_matrices, (LU, 9), (ADD, 91)),
        quiet("none", small_matrices, (ADD, 50)),
    ],
)
def test_nothing_is_said(rule: Rule, kernels: Kernels) -> None:
    assert not found(rule, subject_of(kernels))


@pytest.mark.parametrize(("copy_us", "counts"), [(30, True), (50, False)])
def test_what_else_the_line_of_matrices_launches_counts_where_they_take_half_of_its_time(
    copy_us: int, counts: bool
) -> None:
    kernels = seen((LU, 40, "invert"), (ADD, copy_us, "invert"), (MUL, 40, "forward"))
    one = asked(small_matrices, loop(kernels, every=300))
    assert one.source == "train.py:1 in invert"
    assert left_of(one) == ({LU: 0.0, ADD: 0.0} if counts else {LU: 0.0})


TORCH: Final = Frame("/lib/torch/nn/functional.py", 1, "multi_head_attention_forward")


@pytest.mark.parametrize("of_module", [True, False])
def test_attention_that_returns_its_weights_has_its_own_advice(of_module: bool) -> None:
    """The kernel that averages the weights over the heads goes with it."""
    layer = [PRODUCT, (names.SOFTMAX, 60), PRODUCT, (SUMS, 40)]
    kernels = seen(*((name, us, "forward") for name, us in layer), (names.NORM, 50, "forward"))
    inside = (TORCH,) if of_module else ()
    rows = [
        replace(row, frames=(*inside, *row.frames)) if isinstance(row, Sample) else row
        for row in kernels
    ]
    finding = asked(unfused_attention, loop(rows, every=500))
    assert finding.title.startswith("nn.MultiheadAttention is not fused") == of_module
    assert ("need_weights=False" in finding.change[0]) == of_module
    assert (SUMS in left_of(finding)) == of_module
    assert finding.size_ns == (300 if of_module else 260) * US
