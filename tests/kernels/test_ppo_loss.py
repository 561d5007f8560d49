"""Loss and gradient match the definition, also beyond both clips."""

from functools import partial

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import ppo_loss as module
from nsysflow.kernels.ppo_loss import (
    ppo_loss,
    ppo_loss_and_gradient,
    ppo_loss_ref,
)
from tests.kernels.hopper import Kernel, compile_for_hopper, pointers

BF16, FP32 = torch.bfloat16, torch.float32
# a bf16 has 8 bits, and Triton's interpreter truncates where a GPU rounds
RTOL = {BF16: 1.01 * (2**-8 if torch.cuda.is_available() else 2**-7), FP32: 5e-6}


pytestmark = pytest.mark.usefixtures("poisoned")


def inputs(
    device: torch.device, rows: int, actions: int, steps: int = 1, dtype: torch.dtype = FP32
) -> list[Tensor]:
    """Arguments of `ppo_loss` with ratios and values on both sides of their clips."""
    predictions = torch.randn(rows, actions + 1, device=device).to(dtype)
    action = torch.randint(actions, (rows,), device=device)
    now = torch.log_softmax(predictions[:, :-1].float(), 1).gather(1, action[:, None])[:, 0]
    value = predictions[:, -1].float()
    return [
        predictions,
        action,
        (now + 0.2 * torch.randn(rows, device=device)).to(dtype),
        3 + 5 * torch.randn(rows, device=device),
        0.5 + torch.rand(rows // steps, device=device),
        (value + 0.2 * torch.randn(rows, device=device)).to(dtype),
        value + 0.3 * torch.randn(rows, device=device),
    ]


def loss_and_gradient(arguments: list[Tensor], scale: float = 1.0) -> tuple[Tensor, Tensor]:
    predictions = arguments[0].clone().requires_grad_()
    loss = ppo_loss(predictions, *arguments[1:])
    (gradient,) = torch.autograd.grad(loss * scale, predictions)
    return loss.detach(), gradient


def exact(arguments: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Loss and gradient of the definition in float64."""
    predictions = arguments[0].double().requires_grad_()
    loss = ppo_loss_ref(predictions, *arguments[1:])
    (gradient,) = torch.autograd.grad(loss, predictions)
    return loss.detach(), gradient


def assert_losses_close(loss: Tensor, exact: Tensor) -> None:
    """Check equality with few digits: rows of both signs cancel in the loss."""
    torch.testing.assert_close(loss.double(), exact, rtol=2e-5, atol=2e-6)


def regions(arguments: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Which rows have a ratio beyond its clip, and which a value beyond its clip."""
    predictions, action, logprobs, _, _, values, _ = arguments
    logp = torch.log_softmax(predictions[:, :-1].double(), 1).gather(1, action[:, None])[:, 0]
    ratio = (logp - logprobs.double()).exp()
    return (ratio - 1).abs() > 0.1, (predictions[:, -1].double() - values.double()).abs() > 0.1


SIZES = [(2, 1, 1), (7, 4, 7), (256, 2, 64), (777, 4, 37), (4100, 5, 41), (12_295, 3, 5)]
CASES = [(*size, dtype) for size in SIZES[:5] for dtype in (BF16, FP32)]
CASES.append((*SIZES[5], FP32))  # four chunks of advantages, the last one partial


@pytest.mark.parametrize(("rows", "actions", "steps", "dtype"), CASES)
def test_loss_and_gradient_match_the_definition_in_float64(
    device: torch.device, rows: int, actions: int, steps: int, dtype: torch.dtype
) -> None:
    arguments = inputs(device, rows, actions, steps, dtype)
    loss, gradient = loss_and_gradient(arguments)
    exact_loss, exact_gradient = exact(arguments)
    assert (loss.dtype, loss.shape, gradient.dtype) == (FP32, (), dtype)
    assert_losses_close(loss, exact_loss)
    torch.testing.assert_close(
        rows * gradient.double(), rows * exact_gradient, rtol=RTOL[dtype], atol=1e-5
    )


def test_rows_beyond_a_clip_lose_their_gradient(device: torch.device) -> None:
    arguments = inputs(device, 1000, 4)
    _, gradient = loss_and_gradient(arguments)
    far, far_value = regions(arguments)
    assert 100 < far.sum() < 900
    assert 100 < far_value.sum() < 900
    no_gradient = gradient[:, -1] == 0
    assert no_gradient.sum() > 50
    assert not (no_gradient & ~far_value).any()


def test_the_policy_has_no_gradient_where_the_clipped_term_is_larger(device: torch.device) -> None:
    predictions = torch.zeros(4, 3, device=device)
    old = torch.tensor([0.5, 0.5, 2.0, 2.0], device=device).log() - 0.6931472  # ratios 2, 2, ½, ½
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0], device=device)
    ones = torch.ones(4, device=device)
    action = torch.zeros(4, dtype=torch.int64, device=device)
    predictions.requires_grad_()
    loss = ppo_loss(
        predictions, action, old, advantages, ones, 0 * ones, 0 * ones, entropy_weight=0.0
    )
    (gradient,) = torch.autograd.grad(loss, predictions)
    assert (gradient[:, 0] != 0).tolist() == [False, True, True, False]


def test_the_incoming_scale_scales_the_gradient(device: torch.device) -> None:
    arguments = inputs(device, 300, 4, 3)
    once, eight = loss_and_gradient(arguments)[1], loss_and_gradient(arguments, scale=-8.0)[1]
    assert torch.equal(eight, -8 * once)


@pytest.mark.parametrize(
    "factors",
    [{"clip": 0.3}, {"value_clip": 0.05}, {"value_weight": 2.0}, {"entropy_weight": 0.5}],
    ids=str,
)
def test_loss_and_gradient_are_the_same_without_autograd(
    device: torch.device, factors: dict[str, float]
) -> None:
    arguments = inputs(device, 300, 4, 3)
    leaf = arguments[0].clone().requires_grad_()
    loss: Tensor = partial(ppo_loss, leaf, *arguments[1:])(**factors)
    wanted = loss.detach(), *torch.autograd.grad(loss, leaf)
    found = ppo_loss_and_gradient(tuple(arguments), **factors)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float64])
def test_actions_can_have_each_of_these_dtypes(device: torch.device, dtype: torch.dtype) -> None:
    arguments = inputs(device, 70, 6)
    expected = loss_and_gradient(arguments)
    arguments[1] = arguments[1].to(dtype)
    torch.testing.assert_close(loss_and_gradient(arguments), expected)


def test_all_factors_match_the_definition(device: torch.device) -> None:
    arguments = inputs(device, 100, 4, 10)
    wide = [each.double() if each.is_floating_point() else each for each in arguments]

    def losses(**factors: float) -> tuple[Tensor, Tensor]:
        found: Tensor = partial(ppo_loss, *arguments)(**factors)
        exact: Tensor = partial(ppo_loss_ref, *wide)(**factors)
        return found, exact

    usual, _ = losses()
    for factors in (
        {"clip": 0.3},
        {"value_clip": 0.05},
        {"value_weight": 2.0},
        {"entropy_weight": 0.5},
    ):
        found, expected = losses(**factors)
        assert found != usual
        assert_losses_close(found, expected)


def test_the_variance_is_accurate_with_a_much_larger_mean(device: torch.device) -> None:
    arguments = inputs(device, 4200, 2)
    arguments[3] = 100 + torch.randn(4200, device=device)
    loss, gradient = loss_and_gradient(arguments)
    exact_loss, exact_gradient = exact(arguments)
    # float32 has a resolution of 4e-6 near 100
    torch.testing.assert_close(loss.double(), exact_loss, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        4200 * gradient.double(), 4200 * exact_gradient, rtol=1e-4, atol=2e-4
    )


def test_logits_far_apart_do_not_overflow(device: torch.device) -> None:
    arguments = inputs(device, 50, 3)
    arguments[0][:, :-1] *= 400  # exp(89) is more than a float32 holds
    arguments[2].fill_(-1.0)
    loss, gradient = loss_and_gradient(arguments)
    exact_loss, exact_gradient = exact(arguments)
    assert_losses_close(loss, exact_loss)
    torch.testing.assert_close(50 * gradient.double(), 50 * exact_gradient, rtol=5e-6, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("which", [0, 2, 3, 4, 5, 6])
def test_a_nan_in_any_input_makes_the_loss_nan(device: torch.device, which: int) -> None:
    arguments = inputs(device, 300, 3)
    arguments[which].view(-1)[17] = torch.nan
    assert ppo_loss(*arguments).isnan()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.filterwarnings("ignore:std\\(\\):UserWarning")
def test_the_loss_of_one_row_is_nan(device: torch.device) -> None:
    arguments = inputs(device, 1, 3)
    assert ppo_loss(*arguments).isnan()
    assert ppo_loss_ref(*arguments).isnan()


def test_nothing_is_launched_without_rows(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ppo_loss_moments", "ppo_loss_forward", "ppo_loss_backward"):
        monkeypatch.setattr(module, name, None)
    loss, gradient = loss_and_gradient(inputs(device, 0, 4))
    assert loss.isnan()
    assert gradient.shape == (0, 5)


def test_results_repeat_bit_for_bit_and_match_those_without_gradient(device: torch.device) -> None:
    arguments = inputs(device, 4200, 4, 10)
    once, again = loss_and_gradient(arguments), loss_and_gradient(arguments)
    assert torch.equal(once[0], again[0])
    assert torch.equal(once[1], again[1])
    torch.testing.assert_close(ppo_loss(*arguments), once[0])


@pytest.mark.slow
@pytest.mark.parametrize("actions", [4, module.ACTIONS_MAX])
def test_an_h200_keeps_a_row_in_registers_and_waits_before_it_writes(actions: int) -> None:
    floats = "predictions logprobs advantages weights values returns moments sums loss gradient"
    types = pointers(fp32=floats, i64="actions", i32="counter") | {"rows": "i32", "steps": "i32"}
    types |= dict.fromkeys(("clip", "value_clip", "value_weight", "entropy_weight"), "fp32")
    constants = {"ACTIONS": actions, "CHUNK": 4096, "PARTS": 8, "ROWS": 256, "OVERLAP": True}
    kernel = Kernel(
        module="ppo_loss",
        name="ppo_loss_forward",
        types=types,
        constants=constants,
        warps=8,
        options={"launch_pdl": True},
    )
    compiled = compile_for_hopper(kernel)
    assert compiled.local_bytes == 0
    before, after = compiled.ptx.split("griddepcontrol.wait")
    assert "st.global" not in before
    assert "atom.global" not in before
    assert after.count("st.global") == actions + 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "types", "constant", "warps"),
    [
        (
            "ppo_loss_moments",
            pointers(fp32="advantages moments", i32="counter") | {"rows": "i32"},
            "CHUNK",
            8,
        ),
        (
            "ppo_loss_backward",
            pointers(fp32="gradient dloss", bf16="out") | {"numel": "i32"},
            "SCALED",
            4,
        ),
    ],
)
def test_the_first_and_the_last_launch_compile_for_an_h200(
    kernel: str, types: dict[str, str], constant: str, warps: int
) -> None:
    constants = {constant: getattr(module, constant), "OVERLAP": True}
    compiled = compile_for_hopper(
        Kernel(module="ppo_loss", name=kernel, types=types, constants=constants, warps=warps)
    )
    assert compiled.local_bytes == 0
    assert "griddepcontrol" in compiled.ptx
