"""linear_pair and its gradients match their definition."""

import pytest
import torch
from torch import Tensor

from nsysflow.kernels.linear_pair import (
    WIDTH_MAX,
    linear_pair,
    linear_pair_backward,
    linear_pair_ref,
)
from tests.kernels.comparing import exact, same
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


def slopes(given: list[Tensor]) -> Tensor:
    """The gradient of y."""
    x, _, second = given
    return torch.randn(len(x), len(second), device=x.device).to(x.dtype)


def gradients(dy: Tensor, given: list[Tensor]) -> list[Tensor]:
    """The gradients of both weights, of their dtype."""
    found = [torch.full_like(weight, torch.nan) for weight in given[1:]]
    linear_pair_backward(dy, *given, dfirst=found[0], dsecond=found[1])
    return found


def assert_rounded(found: Tensor, wanted: Tensor, rounding: float) -> None:
    """Check that it is exact but for its rounding, and one of what it was computed from."""
    scale = wanted.square().mean().sqrt().item()
    torch.testing.assert_close(
        found.double(), wanted, rtol=1.01 * rounding, atol=max(4 * rounding, 1e-5) * scale
    )


SIZES = pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1, 1), (66, 5, 12, 36), (70, 12, 20, 65), (129, 96, 128, 64), (3, 128, 17, 130)],
    ids=str,
)
DTYPES = pytest.mark.parametrize("dtype", list(ROUNDING), ids=str)


@DTYPES
@SIZES
def test_y_matches_the_definition(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    given = layers(device, sizes, dtype)
    wanted = linear_pair_ref(*(each.double() for each in given))
    for y in (linear_pair(*given), linear_pair_ref(*given)):
        assert_rounded(y, wanted, ROUNDING[dtype])


def test_y_is_that_of_two_layers_which_round(device: torch.device) -> None:
    x, first, second = layers(device, (129, 96, 128, 64))
    between = torch.eye(128, device=device).bfloat16()
    rounded = linear_pair(x, first, between)
    assert same([linear_pair(x, first, second)], [linear_pair(rounded, between, second)])


@DTYPES
@SIZES
def test_gradients_match_those_of_the_definition(
    sizes: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    given = layers(device, sizes, dtype)
    dy = slopes(given)
    wanted = exact(linear_pair_ref, given, dy)[2:]
    for found, right in zip(gradients(dy, given), wanted, strict=True):
        assert_rounded(found, right, ROUNDING[dtype])


def test_results_go_where_they_are_wanted(device: torch.device) -> None:
    given = layers(device, (70, 12, 20, 65))
    y = given[0].new_empty(70, 65)
    assert linear_pair(*given, y=y) is y
    assert same([y], [linear_pair(*given)])


def test_gradients_in_float32_are_not_rounded_to_bf16(device: torch.device) -> None:
    given = layers(device, (70, 12, 20, 65))
    dy = slopes(given)
    wide = [torch.empty(weight.shape, device=device) for weight in given[1:]]
    linear_pair_backward(dy, *given, dfirst=wide[0], dsecond=wide[1])
    for found, right in zip(wide, exact(linear_pair_ref, given, dy)[2:], strict=True):
        assert_rounded(found, right, 2**-11)


def test_a_nan_stays_in_its_row(device: torch.device) -> None:
    given = layers(device, (140, 12, 20, 65))
    given[0][130, 5] = torch.nan
    assert linear_pair(*given).isnan().any(1).nonzero().flatten().tolist() == [130]


def test_a_nan_of_one_output_stays_in_its_row_of_the_second_weight(device: torch.device) -> None:
    given = layers(device, (140, 12, 20, 65))
    dy = slopes(given)
    dy[130, 7] = torch.nan
    dfirst, dsecond = gradients(dy, given)
    assert dfirst.isnan().all()
    assert dsecond.isnan().any(1).nonzero().flatten().tolist() == [7]


def test_no_rows_launch_nothing(device: torch.device) -> None:
    given = layers(device, (0, 12, 20, 65))
    assert linear_pair(*given).shape == (0, 65)
    assert not any(gradient.any() for gradient in gradients(slopes(given), given))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
def test_on_hopper_the_largest_widths_fit_into_an_sm_and_hardly_spill(dtype: torch.dtype) -> None:
    sides = ((32_768, WIDTH_MAX), (WIDTH_MAX, WIDTH_MAX), (384, WIDTH_MAX), (32_768, 384))
    x, first, second, dy = (shaped(*side, dtype=dtype) for side in sides)

    def both() -> None:
        linear_pair(x, first, second)
        linear_pair_backward(dy, x, first, second, dfirst=first, dsecond=second)

    compiled = compiled_for_hopper(both)
    assert all(each.shared_bytes <= SHARED_BYTES_MAX for each in compiled.values())
    # in float32, 64 outputs with spills were faster than 32 without, 77 us against 83
    spilt = {name: each.local_bytes for name, each in compiled.items()}
    assert spilt.pop("_linear_pair") <= (128 if dtype == FP32 else 0)
    assert not any(spilt.values())
    for name in ("_linear_pair", "_linear_pair_moment"):
        assert "wgmma.mma_async" in compiled[name].ptx
