"""Rules about kernels, on a GPU that is always busy."""

import json
import re
from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.analyze import Tables
from nsysflow.analysis.findings.explanation import explanation_of
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.frameworks import Frameworks, advised
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import GPU_RULES, LAST_RESORT, Rule
from nsysflow.analysis.findings.rules.attention import replaced_by_fused, unfused_attention
from nsysflow.analysis.findings.rules.extra_kernels import (
    cast_storm,
    concatenation,
    full_sort,
)
from nsysflow.analysis.findings.rules.fusion import (
    optimizer_not_fused,
    tiny_kernels,
    unfused_elementwise,
)
from nsysflow.analysis.findings.rules.index_backward import index_backward
from nsysflow.analysis.findings.rules.last_resort import largest_kernels
from nsysflow.analysis.findings.rules.layout import layout_transpose
from nsysflow.analysis.findings.rules.occupancy import LOW_PCT, idle_chip, small_grid
from nsysflow.analysis.findings.rules.products import summed_product
from nsysflow.analysis.findings.rules.tensor_cores import (
    PAD,
    fp32_matmul,
    fp64_kernels,
    slow_convolution,
    unaligned_matmul,
)
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import judged_view
from tests import tiny
from tests.analyses import EXAMPLES, any_trace, few_reports
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    Kernels,
    asked,
    changes_of,
    found,
    launched,
    left_of,
    loop,
    named,
    real,
    subject_of,
)
from tests.oracle.attention import Kernel as Plain
from tests.oracle.attention import replaced
from tests.oracle.model import OperatorShape, PlainTrace, Range, to_trace

OLDEST: Final = (
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1)"
)
OLDER: Final = (
    "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_tensor16x8x16_kernel"
)
ODD_80: Final = OLDEST.replace("75", "80")
FP32_CONV: Final = names.FP32[7]
FLOAT_TO_NCHW: Final = "void cudnn::engines_precompiled::nhwcToNchwKernel<float, float, float>(T1)"
FP32, TF32, ADD, PRODUCT = names.FP32[0], names.TF32[0], (names.ADD, 10), (names.PRODUCT, 20)
CAT: Final = (
    "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned"
    " int)2>, unsigned int, (int)4, (int)64, (int)64>(T1 *)"
)
INDEXED: Final = "void at::native::<unnamed>::indexing_backward_kernel<float, (int)4>(const long *)"
BROADCAST: Final = (
    "void at::native::elementwise_kernel<(int)4, BinaryFunctor<float, MulFunctor<float>>>(int)"
)
SUMMED: Final = "void at::native::reduce_kernel<(int)128, (int)4, sum_functor<float>>(T3)"
SCALED: Final = BROADCAST.replace("Binary", "BUnary")
LARGEST: Final = SUMMED.replace("sum_functor", "MaxNanFunctor")
SORTED: Final = (
    "void cub::detail::segmented_sort::DeviceSegmentedRadixSortKernel<Policy, (bool)0>()"
)
NCHW_CONV: Final = "void at::native::<unnamed>::conv_depthwise2d_forward_kernel<(int)7>(T1)"
NHWC_CONV: Final = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128"
SORTED_SMALL: Final = "void at::native::bitonicSortKVInPlace<(int)2, (int)-1, float, long>(T3)"
GROUP_NORM: Final[Kernels] = [
    ("void at::native::<unnamed>::RowwiseMomentsCUDAKernel<float>(long, T1)", 10),
    ("void at::native::<unnamed>::ComputeFusedParamsCUDAKernel<float>(long)", 2),
]
SOFTMAX: Final = (names.SOFTMAX, 40)
MOST: Final = (names.PRODUCT, 80)
OF_SPECTRA: Final = names.ADD.replace("c10::BFloat16", "c10::complex<float>")
LAYER: Final[Kernels] = [(names.NORM, 103), (names.MUL, 63), (names.ADD, 94)]
UPDATES: Final[Kernels] = [(names.MUL, 2), (names.ADD, 2), (names.ADDCDIV, 2)] * 20
FOREACHES: Final[Kernels] = [(names.FOREACH, 2)] * 200
OPTIMIZER: Final = {"ranges": (tiny.opened(0, 500_000, "optimizer"),)}


@pytest.mark.parametrize(
    ("rule", "kernels", "options", "left"),
    [
        (fp32_matmul, [(FP32, 100)], {}, {FP32: round(66.9 / 494.7, 2)}),
        (fp32_matmul, [(FP32, 100)], {"gpu": "NVIDIA A30"}, {FP32: 0.5}),
        (
            fp64_kernels,
            [(names.DOUBLE, 40), (names.DOUBLE_PRODUCT, 40), PRODUCT],
            {},
            {names.DOUBLE: 0.5, names.DOUBLE_PRODUCT: round(1 / 8, 2)},
        ),
        # on few SMs half the bytes save nothing, faster arithmetic does
        (
            fp64_kernels,
            [(names.DOUBLE, 45), (names.DOUBLE, 40), (names.DOUBLE_PRODUCT, 40), PRODUCT],
            {"blocks": (49, 300)},
            {names.DOUBLE: round(1 - 0.5 * 45 / 85, 2), names.DOUBLE_PRODUCT: round(1 / 8, 2)},
        ),
        (unaligned_matmul, [(OLDEST, 90)], {}, {OLDEST: 0.2}),
        (unaligned_matmul, [(ODD_80, 90)], {}, {ODD_80: 0.35}),
        (unaligned_matmul, [(OLDER, 90)], {}, {OLDER: 0.6}),
        (unaligned_matmul, [(OLDEST, 90)], {"gpu": "NVIDIA A100-SXM4-80GB"}, {OLDEST: 0.5}),
        (unaligned_matmul, [(OLDEST, 90)], {"gpu": "NVIDIA GeForce RTX 4090"}, {OLDEST: 0.5}),
        # the name of this GPU says nothing, but its other kernels do
        (unaligned_matmul, [(OLDER, 90), (names.PRODUCT, 90)], {"gpu": "a GPU"}, {OLDER: 0.6}),
        # fused attention replaces all from the one matmul to the other
        (
            unfused_attention,
            [PRODUCT, (names.MUL, 10), (names.UP, 10), SOFTMAX, (names.DOWN, 10), PRODUCT],
            {},
            dict.fromkeys((names.PRODUCT, names.MUL, names.UP, names.SOFTMAX, names.DOWN), 0.0),
        ),
        # the same kernels elsewhere keep their time
        (
            unfused_attention,
            [PRODUCT, (names.MUL, 10), SOFTMAX, PRODUCT, (names.MUL, 30), PRODUCT],
            {},
            {names.PRODUCT: round(1 / 3, 2), names.MUL: 0.75, names.SOFTMAX: 0.0},
        ),
        # a fused chain takes as long as its longest kernel
        (unfused_elementwise, LAYER, {}, {name: round(103 / 260, 2) for name, _ in LAYER}),
        (layout_transpose, [MOST, (names.TO_NHWC, 20)], {}, {names.TO_NHWC: 0.0}),
        # float32 convolutions off the tensor cores take NCHW, even of channels_last
        (
            fp32_matmul,
            [(FP32_CONV, 60), (FLOAT_TO_NCHW, 30), (names.TO_NHWC, 9)],
            {},
            {FP32_CONV: round(66.9 / 494.7, 2), FLOAT_TO_NCHW: 0.0},
        ),
        (slow_convolution, [(NHWC_CONV, 60), (FP32_CONV, 60)], {}, {FP32_CONV: 0.0}),
        # more than a few are layers, which tensor cores would do
        (
            slow_convolution,
            [(NHWC_CONV, 60)] + [(FP32_CONV, 20)] * 4,
            {},
            {FP32_CONV: round(66.9 / 494.7, 2)},
        ),
        (layout_transpose, [MOST, (names.STRIDED, 20)], {}, {names.STRIDED: 0.0}),
        (cast_storm, [MOST, (names.DOWN, 10), (names.UP, 10)], {}, {names.DOWN: 0, names.UP: 0}),
        (index_backward, [MOST, (INDEXED, 20)], {}, {INDEXED: 0.0}),
        (
            summed_product,
            [MOST, (BROADCAST, 60), (SUMMED, 20), (BROADCAST, 20), (names.ADD, 1), (SUMMED, 20)],
            {},
            {BROADCAST: 0.25, SUMMED: 0.5},
        ),
        (full_sort, [MOST, (SORTED, 20), (SORTED_SMALL, 5)], {}, {SORTED: 0.2, SORTED_SMALL: 0.5}),
        # twice the blocks take half the time, and each launch counts by its own grid
        (small_grid, [PRODUCT], {"blocks": (49,)}, {names.PRODUCT: 0.5}),
        (small_grid, [(names.ADD, 90), ADD] * 2, {"blocks": (1, 1_000)}, {names.ADD: 0.95}),
        (tiny_kernels, [(names.ADD, 2)] * 20, {}, {names.ADD: 0.2}),
    ],
)
def test_the_replay_of_a_rule_leaves_the_time_of_the_better_kernels(
    rule: Rule, kernels: Kernels, options: dict[str, Any], left: dict[str, float]
) -> None:
    assert left_of(asked(rule, subject_of(kernels, **options))) == left


@pytest.mark.parametrize(
    ("more_us", "title"), [(2, "copies a growing tensor"), (0, "copies tensors")]
)
def test_a_cache_that_grows_is_copied_for_longer_in_each_step(more_us: int, title: str) -> None:
    subject = loop(lambda i: launched(10, 40 + more_us * i, name=CAT), steps=16, every=100)
    (one,) = found(concatenation, subject)
    assert one.title.startswith(f"torch.cat {title}: ")
    grew = [text for text in one.evidence if "longer than in the one before" in text]
    assert bool(grew) == (more_us > 0)


def test_conversions_for_convolutions_are_the_least_that_channels_last_saves() -> None:
    batch_norm = ("cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, (int)512>(T1)", 5)
    for kernels, method in (
        ([(names.TO_NHWC, 20), batch_norm], "least"),
        ([(names.TO_NHWC, 20)], "bound"),
        ([(names.STRIDED, 20), batch_norm], "bound"),
    ):
        (one,) = find(subject_of([MOST, *kernels])).valued
        assert one.finding.method == method
        assert one.low_ns == (one.high_ns if method == "least" else 0)


@pytest.mark.parametrize(
    ("more", "ranges", "first"),
    [
        ([], (), "cast or dequantize weights once"),
        ([("sm90_layer_norm_backward", 9)], (), "keep parameters in bfloat16"),
        ([], (tiny.opened(0, 9_000, "backward"),), "keep parameters in bfloat16"),
    ],
)
def test_casts_of_a_loop_without_gradients_are_made_once_before_it(
    more: Kernels, ranges: tuple[Range, ...], first: str
) -> None:
    (one,) = found(cast_storm, subject_of([MOST, (names.DOWN, 30), *more], ranges=ranges))
    assert one.change[0].startswith(first)


@pytest.mark.parametrize(
    ("kernels", "scales"),
    [
        ([(names.FROM_INT8, 20), (names.MUL, 20), MOST], True),
        ([(names.FROM_INT8, 20), (names.MUL, 20), (names.ADD, 9), MOST, (names.MUL, 20)], True),
        ([(names.FROM_INT8, 20), MOST], False),  # nothing is scaled
        ([(names.UP, 20), (names.MUL, 20), MOST], False),  # float32 of bfloat16: no weights
        ([(names.FROM_INT8, 20), (names.MUL, 20), (names.NORM, 9), MOST], False),
        ([(names.FROM_INT8, 20), (names.MUL, 20)], False),  # what reads it is not known
        ([(names.FROM_INT8, 20), (names.MUL, 20), MOST, (f"{MOST[0]}_wgrad", 2)], False),
        ([(names.UP, 90), (names.FROM_INT8, 2), (names.MUL, 2), MOST], False),  # of little time
    ],
)
def test_weights_are_dequantized_by_a_cast_and_what_scales_it(
    kernels: Kernels, scales: bool
) -> None:
    (one,) = found(cast_storm, subject_of(kernels))
    assert one.title.startswith("weights dequantized in each step" if scales else "casts between")
    assert (left_of(one).get(names.MUL, 1.0) < 1.0) == scales


ATTENTION: Final = {
    names.PRODUCT: Plain("matmul"),
    names.MUL: Plain("glue"),
    names.EVERY_ROW: Plain("glue"),
    names.SOFTMAX: Plain("glue", softmax=True),
    names.SOFTMAX.replace("forward", "backward"): Plain("glue", softmax=True, backward=True),
    "topk_kernel": Plain("other"),
}
RUNS: Final = st.tuples(st.sampled_from([*ATTENTION]), st.sampled_from([1, 1, 1, 2, 8, 9]))


@settings(max_examples=EXAMPLES // 2)
@given(runs=st.lists(RUNS, min_size=1, max_size=20))
def test_fused_attention_replaces_what_the_oracle_says(runs: list[tuple[str, int]]) -> None:
    kernels = [name for name, count in runs for _ in range(count)]
    gone = replaced_by_fused(subject_of([(name, 10) for name in kernels]).kernels)
    assert gone.to_list() == replaced([ATTENTION[name] for name in kernels])


def quiet(why: str, rule: Rule, *kernels: tuple[str, int], **options: Any) -> Any:
    return pytest.param(rule, [*kernels], options, id=f"{rule.__name__}: {why}")


@pytest.mark.parametrize(
    ("rule", "kernels", "options"),
    [
        quiet("tf32", fp32_matmul, (TF32, 100)),
        quiet("bf16", fp32_matmul, PRODUCT),
        quiet("no faster", fp32_matmul, (FP32, 100), gpu="NVIDIA GeForce RTX 4090"),
        quiet("no tensor cores", fp32_matmul, (FP32, 100), gpu="NVIDIA GeForce GTX 1660 SUPER"),
        quiet("others on tensor cores", fp32_matmul, (NHWC_CONV, 60), (FP32_CONV, 60)),
        quiet("all convolutions", slow_convolution, PRODUCT, (FP32_CONV, 60)),
        quiet("a first layer", slow_convolution, (NHWC_CONV, 100), (FP32_CONV, 9)),
        quiet("few doubles", fp64_kernels, MOST, (names.DOUBLE, 3)),
        quiet("doubles on few SMs", fp64_kernels, (names.DOUBLE, 40), blocks=(49,)),
        quiet("as long on more", fp64_kernels, *[(names.DOUBLE, 40)] * 2, blocks=(49, 300)),
        quiet("double numbers", fp64_kernels, (names.DOUBLE_SCALARS, 100)),
        quiet("native", unaligned_matmul, PRODUCT),
        quiet("float32", unaligned_matmul, (FP32, 100)),
        quiet("an unknown GPU", unaligned_matmul, (OLDER, 90), gpu="a GPU"),
        quiet("native on A100", unaligned_matmul, (OLDER, 90), gpu="NVIDIA A100-SXM4-80GB"),
        quiet("native on L40S", unaligned_matmul, (OLDER, 90), gpu="NVIDIA L40S"),
        quiet("native on RTX", unaligned_matmul, (OLDER, 90), gpu="NVIDIA RTX PRO 6000"),
        quiet("loss", unfused_attention, PRODUCT, (names.UP, 10), (names.LOG_SOFTMAX, 40), PRODUCT),
        quiet("a last layer", unfused_attention, PRODUCT, SOFTMAX, ADD),
        quiet("a first one", unfused_attention, ADD, SOFTMAX, PRODUCT),
        quiet("a router", unfused_attention, PRODUCT, SOFTMAX, ("topk_kernel", 10), PRODUCT),
        quiet("far away", unfused_attention, PRODUCT, *[ADD] * 20, SOFTMAX, PRODUCT),
        quiet("fused", unfused_attention, (names.FLASH, 100), PRODUCT),
        quiet("no softmax", unfused_attention, PRODUCT),
        quiet("a matmul between", unfused_elementwise, (names.ADD, 50), PRODUCT, (names.MUL, 50)),
        quiet("glue", unfused_elementwise, (names.PRODUCT, 86), (names.ADD, 7), (names.MUL, 7)),
        quiet(
            "attention", unfused_elementwise, PRODUCT, (names.MUL, 90), (names.SOFTMAX, 90), PRODUCT
        ),
        quiet("complex numbers", unfused_elementwise, (OF_SPECTRA, 50), (OF_SPECTRA, 50)),
        quiet("an optimizer", unfused_elementwise, *[(names.MUL, 9), (names.ADDCDIV, 9)] * 10),
        quiet("an add", layout_transpose, MOST, (names.ADD, 20)),
        quiet("few rows", index_backward, MOST, (INDEXED, 3)),
        quiet("a product as large as its factors", summed_product, (BROADCAST, 60), (SUMMED, 50)),
        quiet("a scaled tensor", summed_product, (SCALED, 60), (SUMMED, 20)),
        quiet("the largest product", summed_product, (BROADCAST, 60), (LARGEST, 20)),
        quiet("small products", summed_product, *[(BROADCAST, 9), (SUMMED, 3)] * 9),
        quiet("few products", summed_product, (names.PRODUCT, 800), (BROADCAST, 60), (SUMMED, 9)),
        quiet("a short sort", full_sort, MOST, (SORTED, 8)),
        quiet("experts' tokens in order", full_sort, MOST, ("MoeSortingKernel<int>", 20)),
        quiet("a cast", layout_transpose, MOST, (names.UP, 20)),
        quiet("a product", layout_transpose, MOST, PRODUCT),
        quiet("few copies", layout_transpose, MOST, (names.STRIDED, 4)),
        quiet("few casts", cast_storm, MOST, (names.DOWN, 8)),
        quiet("few parts", concatenation, MOST, (CAT, 8)),
        quiet("half a wave", small_grid, PRODUCT, blocks=(50,)),
        quiet("below 5 us", small_grid, (names.PRODUCT, 4), blocks=(1,)),
        quiet("few", tiny_kernels, *[(names.ADD, 2)] * 19),
        quiet("long", tiny_kernels, *[(names.ADD, 5)] * 20),
        quiet("apart", tiny_kernels, *[(names.ADD, 2)] * 20, pause_us=6),
        quiet("of little time", tiny_kernels, (names.PRODUCT, 1_000), *[(names.ADD, 2)] * 20),
        quiet("few", optimizer_not_fused, *UPDATES[:45]),
        quiet("foreach", optimizer_not_fused, *[(names.FOREACH, 2)] * 60, **OPTIMIZER),
        quiet("large groups", optimizer_not_fused, *[(names.FOREACH, 5)] * 200, **OPTIMIZER),
        quiet("a waiting GPU", largest_kernels, *[(names.PRODUCT, 10)] * 9, pause_us=20),
    ],
)
def test_a_rule_is_quiet_for(rule: Rule, kernels: Kernels, options: dict[str, Any]) -> None:
    assert not found(rule, subject_of(kernels, **options))


def test_programs_without_pytorch_read_nothing_of_it_about_float64() -> None:
    (one,) = found(fp64_kernels, subject_of([("void solve<128>(double *)", 40)]))
    plain = advised(one, Frameworks(names=("cuda",), compiled=False))
    said = " ".join((*plain.change, *plain.evidence, explanation_of(one.rule).why))
    assert not re.search("(?i)torch|tensor|numpy|model|loss", said), said


def test_causal_attention_is_advised_for_causal_masks_alone() -> None:
    (one,) = found(unfused_attention, subject_of([PRODUCT, SOFTMAX, PRODUCT]))
    assert one.change[0].endswith("16 bits; where the mask is causal, with is_causal=True")


@pytest.mark.parametrize(
    ("rule", "kernels", "says"),
    [
        (layout_transpose, [MOST, (names.TO_NHWC, 20)], "torch.compile"),
        (layout_transpose, [MOST, (names.STRIDED, 20)], ".contiguous()"),
        (layout_transpose, [MOST, (NCHW_CONV, 20), (names.STRIDED, 20)], "channels_last"),
        (layout_transpose, [MOST, (NCHW_CONV, 9), (names.STRIDED, 20)], ".contiguous()"),
        (layout_transpose, [MOST, (NHWC_CONV, 20), (names.STRIDED, 20)], ".contiguous()"),
        (layout_transpose, [MOST, (FP32_CONV, 20), (names.STRIDED, 20)], ".contiguous()"),
        (layout_transpose, [MOST, *5 * [(names.STRIDED, 9)], *GROUP_NORM], ".contiguous()"),
        (layout_transpose, [MOST, *4 * [(names.STRIDED, 9)], *GROUP_NORM], "GroupNorm reads"),
        (
            layout_transpose,
            [MOST, (NCHW_CONV, 20), (names.STRIDED, 20), *GROUP_NORM],
            "GroupNorm reads",
        ),
        (layout_transpose, [MOST, (names.STRIDED, 9), *GROUP_NORM[:1]], ".contiguous()"),
        (full_sort, [MOST, (SORTED, 20)], "torch.topk"),
        (concatenation, [MOST, (CAT, 20)], "one tensor that is allocated once"),
        (largest_kernels, [(TF32, 100)], "bfloat16"),
        (unfused_elementwise, [(names.PRODUCT, 70), (names.ADD, 7), (names.MUL, 7)], ""),
        (unfused_elementwise, LAYER * 4, "4 chains"),
        # what most can be saved on gives the title
        (unaligned_matmul, [(OLDEST, 20), (OLDER, 20)], "matmul with unaligned sizes: 100 %"),
        (
            unaligned_matmul,
            [(OLDEST, 20), *[(OLDER, 20)] * 4],
            "matmul by kernels of an older GPU generation: 100 %",
        ),
    ],
)
def test_a_finding_says(rule: Rule, kernels: Kernels, says: str) -> None:
    finding = asked(rule, subject_of(kernels))
    assert says in " ".join((finding.title, *finding.evidence, *finding.change[:1]))


LAYER_NORM_IN_NCHW: Final = [MOST, (NCHW_CONV, 20), (names.STRIDED, 20)]


@pytest.mark.parametrize(
    ("kernels", "takes"),
    [
        (LAYER_NORM_IN_NCHW, ("least", "line")),
        (
            [
                MOST,
                (names.TO_NHWC, 20),
                ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, int>(T1)", 5),
            ],
            ("least", "line"),
        ),
        ([MOST, (names.TO_NHWC, 20)], ("bound", "lines")),
        ([MOST, (names.STRIDED, 20)], ("bound", "lines")),
        ([*LAYER_NORM_IN_NCHW, (NCHW_CONV, 20), GROUP_NORM[1]], ("bound", "lines")),
    ],
)
def test_channels_last_is_a_line_where_no_norm_reads_nchw_alone(
    kernels: Kernels, takes: tuple[str, str]
) -> None:
    finding = asked(layout_transpose, subject_of(kernels))
    assert (finding.method, finding.effort) == takes


@pytest.mark.parametrize("gpu", ["Tesla T4", "Tesla V100-SXM2-32GB", "NVIDIA A30", "unknown"])
def test_a_gpu_without_tf32_is_told_to_use_float16(gpu: str) -> None:
    (one,) = found(fp32_matmul, subject_of([(FP32, 100)], gpu=gpu))
    tf32 = [text for text in one.change if "TF32" in text and "neither" not in text]
    assert bool(tf32) == (gpu in ("NVIDIA A30", "unknown"))
    assert ("float16" in one.change[0]) == (not tf32)


@pytest.mark.parametrize("times", [1, 4])
def test_each_norm_begins_a_kernel_of_its_own(times: int) -> None:
    finding = asked(unfused_elementwise, subject_of(LAYER * times))
    assert finding.size_ns == pytest.approx(times * 157_000, abs=2 * times)


@pytest.mark.parametrize(
    ("kernels", "rule", "title"),
    [
        ([(FP32, 93), (names.ADD, 7)], "fp32-matmul", "float32 matmul off the tensor cores: 93 %"),
        ([(OLDEST, 77), (names.ADD, 23)], "unaligned-matmul", "matmul with unaligned sizes: 77 %"),
        # a busy GPU never ends without a word on its kernels
        ([(names.PRODUCT, 900), (names.ADD, 9)], "largest-kernels", "most kernel time is matmul"),
    ],
)
def test_what_most_kernel_time_is_comes_first(kernels: Kernels, rule: str, title: str) -> None:
    first = find(subject_of(kernels)).valued[0]
    assert (first.finding.rule, first.finding.method, first.low_ns) == (rule, "bound", 0)
    assert first.finding.title.startswith(title)
    assert (first.high_ns == 0) == (rule == "largest-kernels")
    assert "multiple of 8" in first.finding.change[0] or rule != "unaligned-matmul"


@pytest.mark.parametrize(
    ("kernels", "options", "title", "change"),
    [
        (UPDATES, {}, "60 kernels", (0, "")),
        ([(names.MUL, 2)] * 60, OPTIMIZER, "60 kernels", (0, "")),
        (FOREACHES, OPTIMIZER, "group by group: 200 kernels", (1, "one parameter group")),
        ([*[(names.MUL, 2)] * 60, *[PRODUCT] * 20], OPTIMIZER, "", (0, "stack the matrices")),
    ],
    ids=["by its arithmetic", "by its range", "many small groups", "products of matrices"],
)
def test_an_optimizer_is_known_and_launches_at_once_if_its_range_is(
    kernels: Kernels, options: dict[str, Any], title: str, change: tuple[int, str]
) -> None:
    finding = asked(optimizer_not_fused, subject_of(kernels, **options))
    assert title in finding.title
    place, text = change
    assert finding.change[place].startswith(text)
    assert changes_of(finding).graphs == (("optimizer",) if options else ())
    multiplies = "it also multiplies matrices there, 20 times a step"
    assert (finding.evidence[-1] == multiplies) == (PRODUCT in kernels)


class Sampled(Tables):
    """The tables of the judged part, with counters written by hand."""

    def __init__(self, timeline: Timeline, counters: pl.DataFrame) -> None:
        super().__init__(timeline, judged_view)
        self._counters = counters

    def table(self, name: str) -> pl.DataFrame:
        return self._counters if name == "gpu_metrics" else super().table(name)


@pytest.mark.parametrize(("pct", "left"), [(LOW_PCT / 2, [{names.ADD: 0.25}]), (LOW_PCT, [])])
def test_low_counters_of_a_busy_gpu_are_named(pct: float, left: list[dict[str, float]]) -> None:
    subject = subject_of([(names.ADD, 100)])
    row = {"device": 0, "group": "class", "name": "elementwise", "bound": "latency"}
    row |= {"sm_issue_pct": pct, "tensor_active_pct": 0.0}
    row |= {"dram_read_pct": pct / 2, "dram_write_pct": pct / 2}
    subject.tables = Sampled(subject.timeline, pl.DataFrame([row]))
    assert [left_of(one) for one in found(idle_chip, subject)] == left


NAMES: Final = (
    *(FP32, names.PRODUCT, names.SOFTMAX, names.PRODUCT, names.ADD, names.UP),
    *(names.STRIDED, names.ADDCDIV, names.NORM, *names.ODD),
)


def check(subject: JudgedReport) -> None:
    kernel_ns = int(subject.kernels["ns"].sum())
    for rule in (*GPU_RULES, small_grid, LAST_RESORT):
        for finding in rule(subject):
            assert all((finding.title, finding.change, finding.evidence))
            assert 1 <= finding.steps <= subject.steps
            for name, factor in finding.changes.scaled if finding.changes else ():
                assert name
                assert 0 <= factor <= 1
            if finding.rule != "optimizer-not-fused":  # which counts idle time too
                assert 0 <= finding.size_ns <= kernel_ns


@few_reports
def test_rules_take_off_no_more_than_there_is(name: str) -> None:
    """And lanes hold one kernel after the other."""
    check(real(name))
    kernels = real(name).kernels
    assert kernels["lane"].is_sorted()
    assert all(lane["start_ns"].is_sorted() for _, lane in kernels.group_by("lane"))


@any_trace
def test_rules_take_off_no_more_than_there_is_in_any_trace(model: PlainTrace) -> None:
    ops = [
        named(op, NAMES[number % len(NAMES)]) if op.kind == "kernel" else op
        for number, op in enumerate(model.ops)
    ]
    check(JudgedReport(nsysflow.analyze(to_trace(replace(model, ops=tuple(ops))))))


def product(left: list[int], right: list[int], strides: str | None = None) -> OperatorShape:
    types = json.dumps(["c10::BFloat16"] * 2)
    return OperatorShape("aten::mm", json.dumps([left, right]), types, strides)


@pytest.mark.parametrize(
    ("operator", "change"),
    [
        (product([64, 768], [768, 50_257]), "pad 50257 to 50304 in aten::mm 64x768, 768x50257"),
        # the gradient of its weight: rows are as long as the batch, which is stored transposed
        (
            product([768, 63], [63, 100], "[[1, 768], [100, 1]]"),
            "pad 100 to 104 in aten::mm 768x63, 63x100",
        ),
        (product([768, 63], [63, 100]), "pad 100 to 104 and 63 to 64 in aten::mm 768x63, 63x100"),
        (product([64, 64], [64, 64]), PAD[0]),
        (OperatorShape("aten::mul", "[[3]]", '["float"]'), PAD[0]),
    ],
)
def test_an_unaligned_product_is_named_with_what_to_pad_to(
    operator: OperatorShape, change: str
) -> None:
    finding = asked(unaligned_matmul, subject_of([(OLDEST, 90)], operators=(operator,)))
    assert finding.change[0] == change
    assert finding.evidence[-1].startswith(f"in: {operator.name} ")
