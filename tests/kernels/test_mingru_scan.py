"""mingru_scan matches its definition, in values and gradients, at any size."""

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import mingru_scan_kernels
from nsysflow.kernels.mingru_scan import (
    OUT_MAX,
    mingru_scan,
    mingru_scan_forward,
    mingru_scan_linear_backward,
    mingru_scan_ref,
)
from tests.kernels.comparing import exact, with_gradients
from tests.kernels.hopper import compiled_for_hopper, shaped

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
# a bf16 has 8 bits, and Triton's interpreter truncates where a GPU rounds
BF16_STEP = 2**-8 if torch.cuda.is_available() else 2**-7
RTOL = {BF16: 1.01 * BF16_STEP, FP16: 2**-10, FP32: 5e-6}

pytestmark = pytest.mark.usefixtures("poisoned")


def assert_close(found: Tensor, expected: Tensor, dtype: torch.dtype = FP32) -> None:
    """Check equality up to float32 arithmetic that is rounded once to `dtype`."""
    torch.testing.assert_close(found, expected, rtol=RTOL[dtype], atol=5e-6, equal_nan=True)


def inputs(
    device: torch.device, batch: int, steps: int, channels: int, dtype: torch.dtype = FP32
) -> tuple[Tensor, Tensor]:
    combined = 3 * torch.randn(batch, steps, 3 * channels, device=device)
    return combined.to(dtype), torch.randn(batch, 1, channels, device=device)


def check(given: tuple[Tensor, Tensor], douts: tuple[Tensor, Tensor]) -> None:
    """Compare both results and both gradients with those of the definition in float64."""
    found = with_gradients(mingru_scan, given, douts)
    dtypes = [tensor.dtype for tensor in (*given, *given)]
    assert [each.dtype for each in found] == dtypes
    for mine, wanted, dtype in zip(
        found, exact(mingru_scan_ref, given, douts), dtypes, strict=True
    ):
        assert_close(mine.double(), wanted, dtype)


SIZES = [(1, 1, 1, FP32), (2, 8, 64, FP32), (2, 9, 70, FP32), (1, 3, 129, FP32)]
SIZES += [(1, 16, 5, BF16), (2, 13, 33, BF16)]
"""Part of a chunk and several, whole or not; part of a block of channels and up to three."""
if torch.cuda.is_available():  # these take the interpreter long
    SIZES += [(2, 19, 70, dtype) for dtype in (BF16, FP32)]


@pytest.mark.parametrize(("batch", "steps", "channels", "dtype"), SIZES)
def test_results_and_gradients_match_the_definition_in_float64(
    device: torch.device, batch: int, steps: int, channels: int, dtype: torch.dtype
) -> None:
    combined, state = inputs(device, batch, steps, channels, dtype)
    dout = torch.randn(batch, steps, channels, device=device).to(dtype)
    check((combined, state), (dout, torch.randn_like(state)))


@pytest.mark.parametrize("outputs", [1, 5, OUT_MAX])
@pytest.mark.parametrize(("batch", "steps", "channels", "dtype"), SIZES)
def test_gradients_of_a_linear_layer_after_it_match_the_definition_in_float64(
    device: torch.device, batch: int, steps: int, channels: int, dtype: torch.dtype, outputs: int
) -> None:
    combined, state = inputs(device, batch, steps, channels, dtype)
    weight = torch.randn(outputs, channels, device=device).to(dtype)
    gradient = torch.randn(batch * steps, outputs, device=device)

    def layers(combined: Tensor, state: Tensor, weight: Tensor) -> Tensor:
        return mingru_scan_ref(combined, state)[0].flatten(0, 1) @ weight.T

    wanted = exact(layers, (combined, state, weight), gradient)
    saved = mingru_scan_forward(combined, state)[2]
    dweight = torch.empty_like(weight, dtype=FP32)
    found = mingru_scan_linear_backward(combined, saved, gradient, weight, dweight=dweight)
    assert_close(found.double(), wanted[1], dtype)
    assert_close(dweight.double(), wanted[3])


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("value", [0.0, 1e4, -1e4, 3e38, -3e38])
def test_gradients_are_finite_at_zero_and_saturation(device: torch.device, value: float) -> None:
    combined = torch.full((1, 11, 3 * 20), value, device=device)
    combined[..., :20].clamp_(-1e4, 1e4)  # a hidden of 3e38 makes h 3e38, whose gradients overflow
    state = torch.zeros(1, 1, 20, device=device)
    check((combined, state), (torch.ones(1, 11, 20, device=device), torch.ones_like(state)))


def test_two_halves_in_a_row_equal_the_whole_with_gradients(device: torch.device) -> None:
    combined, state = inputs(device, 2, 21, 10)
    whole, final = mingru_scan(combined.clone().requires_grad_(), state)
    first, between = mingru_scan(combined[:, :13].contiguous(), state)
    second, last = mingru_scan(combined[:, 13:].contiguous(), between)
    assert_close(torch.cat([first, second], 1), whole)
    assert_close(last, final)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_spread_as_in_the_definition(device: torch.device, value: float) -> None:
    combined, state = inputs(device, 2, 12, 5)
    for third, channel in enumerate((1, 2, 4)):
        combined[1, 6, 5 * third + channel] = value
    results = zip(mingru_scan(combined, state), mingru_scan_ref(combined, state), strict=True)
    for found, expected in results:
        assert_close(found, expected)


@pytest.mark.parametrize("shape", [(0, 4, 6), (2, 0, 6), (2, 4, 0)])
def test_nothing_is_launched_for_empty_input(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(mingru_scan_kernels, "mingru_scan_forward", None)
    monkeypatch.setattr(mingru_scan_kernels, "mingru_scan_backward", None)
    batch, steps, width = shape
    combined = torch.zeros(shape, device=device)
    state = torch.randn(batch, 1, width // 3, device=device)
    dout = torch.ones(batch, steps, width // 3, device=device)
    out, final, dcombined, dstate = with_gradients(
        mingru_scan, (combined, state), (dout, torch.ones_like(state))
    )
    assert (out.shape, dcombined.shape) == (dout.shape, shape)
    assert torch.equal(final, state)
    assert torch.equal(dstate, torch.ones_like(state))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_an_h200_keeps_a_chunk_in_registers_in_both_directions(dtype: torch.dtype) -> None:
    given = shaped(512, 64, 384, dtype=dtype), shaped(512, 1, 128, dtype=dtype)
    douts = shaped(512, 64, 128, dtype=dtype), shaped(512, 1, 128, dtype=dtype)
    kernels = compiled_for_hopper(lambda: with_gradients(mingru_scan, given, douts))
    steps, width = (8, "b32") if dtype == BF16 else (4, "v2.b32")
    for name, each in (("forward", 3), ("backward", 4)):
        compiled = kernels[f"mingru_scan_{name}"]
        assert compiled.local_bytes == 0
        assert compiled.registers <= 255 - 64  # with 8 warps per SM, 255 would be possible
        # two channels per thread: 3 or 4 inputs, loaded for the first chunk and for the next one
        assert compiled.loads[width] >= 2 * each * steps


@pytest.mark.slow
def test_an_h200_keeps_the_gradients_of_eight_outputs_in_registers_too() -> None:
    combined, saved = shaped(512, 64, 384), shaped(512, 8, 128, dtype=FP32)
    gradient, weight = shaped(512 * 64, OUT_MAX, dtype=FP32), shaped(OUT_MAX, 128)
    given = (combined, saved, gradient, weight)
    kernels = compiled_for_hopper(lambda: mingru_scan_linear_backward(*given, dweight=weight))
    assert kernels["mingru_scan_backward"].local_bytes == 0
