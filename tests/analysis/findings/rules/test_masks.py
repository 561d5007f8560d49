"""Triangular masks that are made for attention, layer by layer."""

from typing import Final

import pytest

from nsysflow.analysis.findings.rules.masks import causal_mask
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, asked, left_of, subject_of

TRIU: Final = "void at::native::triu_tril_kernel<c10::BFloat16, int, (bool)1, (int)4, (bool)0>(T1)"
FILL: Final = (
    "void at::native::vectorized_elementwise_kernel<(int)8, at::native::FillFunctor<float>>(int)"
)
FORWARD: Final = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_kernel0_0"
BACKWARD: Final = FORWARD.replace("fprop", "bprop")
MEMORY_EFFICIENT: Final = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80"
PRODUCT: Final = (names.PRODUCT, 100)
MASK: Final[Kernels] = [(FILL, 5), (TRIU, 10), (names.ADD, 80)]
LAYER: Final[Kernels] = [PRODUCT, *MASK, (FORWARD, 200)]


def test_masks_of_layers_are_not_needed_and_attention_takes_half() -> None:
    found = asked(causal_mask, subject_of([*LAYER, *LAYER, PRODUCT, (BACKWARD, 400)]))
    assert found is not None
    assert found.title == "a triangular mask is made for attention 2 times"
    assert "is_causal=True" in found.change[0]
    assert found.method == "bound"
    masks = dict.fromkeys((FILL, TRIU, names.ADD), 0.0)
    assert left_of(found) == masks | {FORWARD: 0.5, BACKWARD: 0.5}


def test_attention_that_takes_no_such_mask_keeps_its_time() -> None:
    other: Kernels = [PRODUCT, (names.ADD, 80), (FORWARD, 400)]
    found = asked(causal_mask, subject_of([*LAYER, *LAYER, *other, PRODUCT, (BACKWARD, 400)]))
    # half of the forward time has masks: a quarter of both passes goes; one add in three stays
    left = {FILL: 0.0, TRIU: 0.0, names.ADD: 0.33, FORWARD: 0.75, BACKWARD: 0.75}
    assert left_of(found) == left


def test_how_much_faster_flash_attention_is_is_not_known() -> None:
    layer: Kernels = [PRODUCT, *MASK, (MEMORY_EFFICIENT, 200)]
    assert left_of(asked(causal_mask, subject_of(layer * 2)))[MEMORY_EFFICIENT] == 0.0


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param([*LAYER, PRODUCT, (FORWARD, 200)], id="made once"),
        pytest.param([*LAYER, *[PRODUCT, (FORWARD, 200)] * 2] * 2, id="once for three layers"),
        pytest.param([*MASK, PRODUCT, (FORWARD, 200)] * 2, id="a matmul between"),
        pytest.param([*MASK, PRODUCT] * 2, id="no attention"),
        pytest.param([PRODUCT, (names.ADD, 80), (FORWARD, 200)] * 2, id="another mask"),
        pytest.param([*MASK, *[(names.ADD, 9)] * 16, (FORWARD, 200)] * 2, id="far apart"),
        pytest.param([*MASK, (BACKWARD, 200)] * 2, id="the backward pass"),
    ],
)
def test_nothing_is_said_of_masks(kernels: Kernels) -> None:
    assert asked(causal_mask, subject_of(kernels)) is None
