"""mingru_scan matches its definition, in values and gradients, at any size."""

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import mingru_scan_kernels
from nsysflow.kernels.mingru_scan import (
    BLOCK,
    mingru_scan,
    mingru_scan_ref,
)
from tests.kernels.hopper import Kernel, compile_for_hopper, pointers

BF16, FP32 = torch.bfloat16, torch.float32
# a bf16 has 8 bits, and Triton's interpreter truncates where a GPU rounds
BF16_STEP = 2**-8 if torch.cuda.is_available() else 2**-7
RTOL = {BF16: 1.01 * BF16_STEP, torch.float16: 2**-10, FP32: 5e-6}

pytestmark = pytest.mark.usefixtures("poisoned")


def assert_close(
    found: Tensor, expected: Tensor, dtype: torch.dtype = FP32, *, equal_nan: bool = False
) -> None:
    """Check equality up to float32 arithmetic that is rounded once to `dtype`."""
    torch.testing.assert_close(found, expected, rtol=RTOL[dtype], atol=5e-6, equal_nan=equal_nan)


def inputs(
    device: torch.device, batch: int, steps: int, channels: int, dtype: torch.dtype = FP32
) -> tuple[Tensor, Tensor]:
    combined = 3 * torch.randn(batch, steps, 3 * channels, device=device)
    return combined.to(dtype), torch.randn(batch, 1, channels, device=device)


def gradients(
    combined: Tensor, state: Tensor, douts: tuple[Tensor, Tensor], *, exact: bool
) -> list[Tensor]:
    """Gradients of combined and state; `exact` uses the definition in float64."""
    if exact:
        combined, state = combined.double(), state.double()
        douts = (douts[0].double(), douts[1].double())
    leaves = [combined.clone().requires_grad_(), state.clone().requires_grad_()]
    outs = (mingru_scan_ref if exact else mingru_scan)(*leaves)
    return list(torch.autograd.grad(outs, leaves, douts))


SIZES = [(1, 1, 1), (2, 8, 64), (3, 13, 33), (2, 9, 70), (1, 5, 12)]
"""Part of a chunk, one and several; part of a block of channels, one and two."""
if torch.cuda.is_available():  # these take the interpreter long
    SIZES += [(2, 19, 70), (1, 16, 130)]


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize(("batch", "steps", "channels"), SIZES)
def test_out_and_final_state_match_the_definition(
    device: torch.device, batch: int, steps: int, channels: int, dtype: torch.dtype
) -> None:
    combined, state = inputs(device, batch, steps, channels, dtype)
    out, final = mingru_scan(combined, state)
    exact_out, exact_final = mingru_scan_ref(combined.double(), state.double())
    assert (out.dtype, final.dtype) == (dtype, FP32)
    assert (out.shape, final.shape) == ((batch, steps, channels), (batch, 1, channels))
    assert_close(out.double(), exact_out, dtype)
    assert_close(final.double(), exact_final)


@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize(("batch", "steps", "channels"), SIZES)
def test_gradients_match_the_definition_in_float64(
    device: torch.device, batch: int, steps: int, channels: int, dtype: torch.dtype
) -> None:
    combined, state = inputs(device, batch, steps, channels, dtype)
    douts = (torch.randn(batch, steps, channels, device=device).to(dtype), torch.randn_like(state))
    found = gradients(combined, state, douts, exact=False)
    exact = gradients(combined, state, douts, exact=True)
    assert [each.dtype for each in found] == [dtype, FP32]
    assert_close(found[0].double(), exact[0], dtype)
    assert_close(found[1].double(), exact[1])


def test_fp16_matches_the_definition(device: torch.device) -> None:
    combined, state = inputs(device, 2, 9, 40, torch.float16)
    out, final = mingru_scan(combined, state.half())
    exact_out, _ = mingru_scan_ref(combined.double(), state.half().double())
    assert (out.dtype, final.dtype) == (torch.float16, torch.float16)
    assert_close(out.double(), exact_out, torch.float16)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("value", [0.0, 1e4, -1e4, 3e38, -3e38])
def test_gradients_are_finite_from_a_state_of_zero_and_saturated_gates(
    device: torch.device, value: float
) -> None:
    combined = torch.full((1, 11, 3 * 20), value, device=device)
    combined[..., :20].clamp_(-1e4, 1e4)  # a hidden of 3e38 makes h 3e38, whose gradients overflow
    state = torch.zeros(1, 1, 20, device=device)
    douts = (torch.ones(1, 11, 20, device=device), torch.ones_like(state))
    found = gradients(combined, state, douts, exact=False)
    exact = gradients(combined, state, douts, exact=True)
    for each, expected in zip(found, exact, strict=True):
        assert_close(each.double(), expected)


def test_the_final_state_alone_gives_each_third_of_combined_its_gradient(
    device: torch.device,
) -> None:
    combined, state = inputs(device, 2, 10, 8)
    leaves = [combined.clone().requires_grad_(), state.clone().requires_grad_()]
    dcombined, dstate = torch.autograd.grad(mingru_scan(*leaves)[1].sum(), leaves)
    assert (dcombined[..., 16:] == 0).all()
    none = torch.zeros(2, 10, 8, device=device)
    exact = gradients(combined, state, (none, torch.ones_like(state)), exact=True)
    assert_close(dcombined.double(), exact[0])
    assert_close(dstate.double(), exact[1])


def test_an_expanded_gradient_without_one_for_the_final_state_is_accepted(
    device: torch.device,
) -> None:
    combined, state = inputs(device, 2, 10, 8)
    leaf = combined.clone().requires_grad_()
    (found,) = torch.autograd.grad(mingru_scan(leaf, state)[0].sum(), leaf)
    douts = (torch.ones(2, 10, 8, device=device), torch.zeros_like(state))
    exact = gradients(combined, state, douts, exact=True)
    assert_close(found.double(), exact[0])


def test_two_halves_in_a_row_equal_the_whole(device: torch.device) -> None:
    combined, state = inputs(device, 2, 21, 10)
    whole, final = mingru_scan(combined, state)
    first, between = mingru_scan(combined[:, :13].contiguous(), state)
    second, last = mingru_scan(combined[:, 13:].contiguous(), between)
    assert_close(torch.cat([first, second], 1), whole)
    assert_close(last, final)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_spread_as_in_the_definition(
    device: torch.device, which: int, value: float
) -> None:
    combined, state = inputs(device, 2, 12, 5)
    combined[1, 6, 5 * which + 2] = value
    for found, expected in zip(
        mingru_scan(combined, state), mingru_scan_ref(combined, state), strict=True
    ):
        assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 4, 6), (2, 0, 6), (2, 4, 0)])
def test_nothing_is_launched_for_empty_input(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(mingru_scan_kernels, "mingru_scan_forward", None)
    monkeypatch.setattr(mingru_scan_kernels, "mingru_scan_backward", None)
    combined = torch.zeros(shape, device=device, requires_grad=True)
    state = torch.randn(shape[0], 1, shape[2] // 3, device=device, requires_grad=True)
    out, final = mingru_scan(combined, state)
    assert out.shape == (shape[0], shape[1], shape[2] // 3)
    assert torch.equal(final, state)
    dcombined, dstate = torch.autograd.grad((out.sum(), final.sum()), (combined, state))
    assert dcombined.shape == combined.shape
    assert torch.equal(dstate, torch.ones_like(state))


def test_results_repeat_bit_for_bit_and_match_those_without_gradients(device: torch.device) -> None:
    combined, state = inputs(device, 1, 11, 24)
    douts = (torch.randn(1, 11, 24, device=device), torch.randn_like(state))
    once, again = (gradients(combined, state, douts, exact=False) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    learning = mingru_scan(combined.clone().requires_grad_(), state)
    torch.testing.assert_close(learning, mingru_scan(combined, state))


@pytest.mark.slow
@pytest.mark.parametrize("floats", ["bf16", "fp32"])
@pytest.mark.parametrize("kernel", ["mingru_scan_forward", "mingru_scan_backward"])
def test_an_h200_keeps_a_chunk_in_registers_in_both_directions(kernel: str, floats: str) -> None:
    own = "combined state out final dout dfinal dcombined dstate"
    types = pointers(**{floats: own}) | pointers(fp32="saved") | {"T": "i32"}
    steps = 8 if floats == "bf16" else 4
    constants = {"H": 128, "STEPS": steps, "WHOLE": True, "SAVE": True, "BLOCK": BLOCK}
    names = getattr(mingru_scan_kernels, kernel).arg_names
    compiled = compile_for_hopper(
        Kernel(
            module="mingru_scan_kernels",
            name=kernel,
            types={name: kind for name, kind in types.items() if name in names},
            constants={name: value for name, value in constants.items() if name in names},
            warps=1,
        )
    )
    assert compiled.local_bytes == 0
    assert compiled.registers <= 255 - 64  # with 8 warps per SM, 255 would be possible
    # two channels per thread: 3 or 4 inputs, loaded for the first chunk and for the next one
    inputs = 3 if kernel == "mingru_scan_forward" else 4
    width = "b32" if floats == "bf16" else "v2.b32"
    assert compiled.loads[width] >= 2 * inputs * steps
