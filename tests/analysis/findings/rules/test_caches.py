"""Caches that beam search gathers, and gathers that are none."""

from typing import Final

import pytest

from nsysflow.analysis.findings.rules.attention import cache_reordered
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, asked, found, left_of, subject_of

NATIVE: Final = "void at::native::"
TOP_K: Final = NATIVE + "mbtopk::gatherTopK<float, unsigned int, (int)2>(TensorInfo<const T1>)"
GATHER: Final = NATIVE + "vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int)"
SLICED: Final = NATIVE + "_scatter_gather_elementwise_kernel<(int)128, (int)8>(int, T3)"
INDEXED: Final = NATIVE + "<unnamed>::indexSelectLargeIndex<c10::BFloat16, long, unsigned int>(T)"
BACKWARD: Final = NATIVE + "<unnamed>::cunn_SoftMaxBackward<(int)4, float, float, float>(T3 *)"
PRODUCT: Final = (names.PRODUCT, 100)
STEP: Final[Kernels] = [
    *((names.PRODUCT, 100), (GATHER, 20), (TOP_K, 10)),
    *[(SLICED, 5), (names.ADD, 5), (SLICED, 5), (names.ADD, 5), (GATHER, 20), (GATHER, 20)] * 2,
    *((names.PRODUCT, 100), (GATHER, 20)),
]
"""Two layers, with keys and values of two attentions. The first and the last gather are others."""


def test_gathers_behind_a_top_k_and_before_the_next_product_count() -> None:
    one = asked(cache_reordered, subject_of(STEP))
    assert one.title == "beam search gathers its caches at each token: 27 % of kernel time"
    assert left_of(one) == {GATHER: 0.33, SLICED: 0.0}
    assert "8 tensors are gathered behind each top-k" in one.evidence
    assert (one.method, one.effort, one.culprit) == ("bound", "lines", "vectorized_gather_kernel")


def test_all_kernels_that_gather_count() -> None:
    one = asked(cache_reordered, subject_of([(TOP_K, 10), *[(INDEXED, 10)] * 8, PRODUCT]))
    assert left_of(one) == {INDEXED: 0.0}


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param([PRODUCT, *[(GATHER, 20)] * 8, PRODUCT], id="tables of an embedding"),
        pytest.param([(TOP_K, 10), *[(GATHER, 20)] * 7, PRODUCT], id="a few tensors"),
        pytest.param([(TOP_K, 10), *[(GATHER, 20), PRODUCT] * 8], id="experts, or neighbours"),
        pytest.param([*[(GATHER, 20)] * 8, (TOP_K, 10), PRODUCT], id="before the top-k"),
        pytest.param([*STEP, (names.PRODUCT, 900)], id="little time"),
        pytest.param([*STEP, (BACKWARD, 10)], id="training"),
    ],
)
def test_other_gathers_are_no_caches(kernels: Kernels) -> None:
    assert not found(cache_reordered, subject_of(kernels))
