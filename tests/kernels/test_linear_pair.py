"""linear_pair matches its definition, each result rounded once."""

import pytest
import torch
from torch import Tensor

from nsysflow.kernels.linear_pair import WIDTH_MAX, linear_pair, linear_pair_ref
from tests.kernels.comparing import same
from tests.kernels.hopper import SHARED_BYTES_MAX, compiled_for_hopper, shaped

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
# the interpreter truncates where a GPU rounds
STEP = 1 if torch.cuda.is_available() else 2
ROUNDING = {BF16: STEP * 2**-8, FP16: STEP * 2**-11, FP32: 1e-6}

pytestmark = pytest.mark.usefixtures("poisoned")


def layers(
    device: torch.device, sizes: tuple[int, int, int, int], dtype: torch.dtype = BF16
) -> list[Tensor]:
    """x and both weights; `sizes` are rows, inputs, middle and outputs."""
    rows, width, middle, outputs = sizes
    shapes = ((rows, width), (middle, width), (outputs, middle))
    return [torch.randn(shape, device=device).to(dtype) for shape in shapes]


def assert_product(found: Tensor, x: Tensor, weight: Tensor) -> None:
    """Check that it is x weightᵀ, rounded once."""
    exact = x.double() @ weight.double().T
    scale = exact.square().mean().sqrt().item()
    rtol = 1.01 * ROUNDING[x.dtype]
    torch.testing.assert_close(found.double(), exact, rtol=rtol, atol=1e-5 * scale)


@pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1, 1), (66, 5, 12, 36), (70, 12, 20, 65), (129, 96, 128, 64), (3, 128, 17, 130)],
    ids=str,
)
def test_both_results_match_the_definition_rounded_once(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    x, first, second = layers(device, sizes, dtype)
    for between, y in (linear_pair(x, first, second), linear_pair_ref(x, first, second)):
        assert_product(between, x, first)
        assert_product(y, between, second)


def test_results_go_where_they_are_wanted(device: torch.device) -> None:
    given = layers(device, (70, 12, 20, 65))
    between, y = given[0].new_empty(70, 20), given[0].new_empty(70, 65)
    found = linear_pair(*given, between=between, y=y)
    assert found[0] is between
    assert found[1] is y
    assert same(found, linear_pair(*given))


def test_a_nan_stays_in_its_row(device: torch.device) -> None:
    given = layers(device, (140, 12, 20, 65))
    given[0][130, 5] = torch.nan
    for result in linear_pair(*given):
        assert result.isnan().any(1).nonzero().flatten().tolist() == [130]


def test_no_rows_launch_nothing(device: torch.device) -> None:
    between, y = linear_pair(*layers(device, (0, 12, 20, 65)))
    assert (between.shape, y.shape) == ((0, 20), (0, 65))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
def test_on_hopper_the_largest_widths_fit_into_an_sm_and_hardly_spill(dtype: torch.dtype) -> None:
    sides = ((32_768, WIDTH_MAX), (WIDTH_MAX, WIDTH_MAX), (384, WIDTH_MAX))
    x, first, second = (shaped(*side, dtype=dtype) for side in sides)
    compiled = compiled_for_hopper(lambda: linear_pair(x, first, second))["_linear_pair"]
    assert compiled.shared_bytes <= SHARED_BYTES_MAX
    # in float32, 64 outputs with spills were faster than 32 without, 77 us against 83
    assert compiled.local_bytes <= (128 if dtype == FP32 else 0)
    assert "wgmma.mma_async" in compiled.ptx
