"""Loss and gradient match the definition, also beyond both clips."""

from functools import partial

import pytest
import torch
from torch import Tensor

from nsysflow.kernels import arguments
from nsysflow.kernels import ppo_loss as module
from nsysflow.kernels.ppo_loss import ppo_loss, ppo_loss_and_gradient, ppo_loss_ref
from tests.kernels.comparing import same
from tests.kernels.hopper import compiled_for_hopper, shaped

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


def loss_and_gradient(
    arguments: list[Tensor], scale: float = 1.0, **factors: float
) -> tuple[Tensor, Tensor]:
    """What `ppo_loss` and autograd give."""
    predictions = arguments[0].clone().requires_grad_()
    loss: Tensor = partial(ppo_loss, predictions, *arguments[1:])(**factors)
    (gradient,) = torch.autograd.grad(loss * scale, predictions)
    return loss.detach(), gradient


def check(
    arguments: list[Tensor], rtol: float = 5e-6, atol: float = 1e-5, **factors: float
) -> tuple[Tensor, Tensor]:
    """Loss and gradient, after comparison with the definition in float64.

    The loss has few digits, since rows of both signs cancel in it.
    """
    found = loss_and_gradient(arguments, **factors)
    predictions = arguments[0].double().requires_grad_()
    loss: Tensor = partial(ppo_loss_ref, predictions, *arguments[1:])(**factors)
    (gradient,) = torch.autograd.grad(loss, predictions)
    torch.testing.assert_close(found[0].double(), loss.detach(), rtol=2e-5, atol=atol / 5)
    rows = len(predictions)
    torch.testing.assert_close(rows * found[1].double(), rows * gradient, rtol=rtol, atol=atol)
    return found


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take moments of few rows, so that there are several: 777 rows are four, the last partial."""
    monkeypatch.setattr(module, "CHUNK", 256)


SIZES = [(2, 1, 1, BF16), (7, 4, 7, FP32), (3, 64, 1, FP32), (256, 2, 64, FP32), (777, 4, 37, BF16)]


@pytest.mark.parametrize(("rows", "actions", "steps", "dtype"), SIZES)
def test_loss_and_gradient_match_the_definition_in_float64(
    device: torch.device, rows: int, actions: int, steps: int, dtype: torch.dtype
) -> None:
    arguments = inputs(device, rows, actions, steps, dtype)
    loss, gradient = check(arguments, RTOL[dtype])
    assert (loss.dtype, loss.shape, gradient.dtype) == (FP32, (), dtype)
    torch.testing.assert_close(ppo_loss(*arguments), loss)  # no gradient is kept


@pytest.mark.parametrize(
    "factors",
    [{"clip": 0.3}, {"value_clip": 0.05}, {"value_weight": 2.0}, {"entropy_weight": 0.5}],
    ids=str,
)
def test_each_factor_has_its_effect(device: torch.device, factors: dict[str, float]) -> None:
    arguments = inputs(device, 300, 4, 3)
    wanted = check(arguments, **factors)
    assert wanted[0] != ppo_loss(*arguments)
    found = ppo_loss_and_gradient(tuple(arguments), **factors)
    assert same(found, wanted)


def test_the_policy_has_no_gradient_where_the_clipped_term_is_larger(device: torch.device) -> None:
    predictions = torch.zeros(4, 3, device=device)
    old = torch.tensor([0.5, 0.5, 2.0, 2.0], device=device).log() - 0.6931472  # ratios 2, 2, ½, ½
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0], device=device)
    ones = torch.ones(4, device=device)
    action = torch.zeros(4, dtype=torch.int64, device=device)
    arguments = [predictions, action, old, advantages, ones, 0 * ones, 0 * ones]
    _, gradient = loss_and_gradient(arguments, entropy_weight=0.0)
    assert (gradient[:, 0] != 0).tolist() == [False, True, True, False]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.filterwarnings("ignore:std()", "ignore:invalid value")  # 0 / 0
def test_one_row_has_no_deviation_and_only_its_value_a_gradient(device: torch.device) -> None:
    arguments = inputs(device, 1, 4)
    loss, gradient = loss_and_gradient(arguments)
    predictions = arguments[0].double().requires_grad_()
    wanted = ppo_loss_ref(predictions, *arguments[1:])
    (slope,) = torch.autograd.grad(wanted, predictions)
    assert loss.isnan()
    assert wanted.isnan()
    torch.testing.assert_close(gradient.double(), slope, rtol=5e-6, atol=1e-5, equal_nan=True)
    assert gradient[0, -1].isfinite()


def test_several_chunks_of_advantages_match_too(device: torch.device) -> None:
    check(inputs(device, 777, 3, 37))


@pytest.mark.usefixtures("small_chunks")
def test_the_variance_is_accurate_with_a_much_larger_mean(device: torch.device) -> None:
    arguments = inputs(device, 777, 2)
    arguments[3] = 100 + torch.randn(777, device=device)
    check(arguments, rtol=1e-4, atol=2e-4)  # float32 has a resolution of 4e-6 near 100


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("which", [0, 2, 3, 4, 5, 6])
def test_a_nan_in_any_input_makes_the_loss_nan(device: torch.device, which: int) -> None:
    arguments = inputs(device, 300, 3)
    arguments[which].view(-1)[17] = torch.nan
    assert ppo_loss(*arguments).isnan()


def test_no_rows_launch_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ppo_loss_moments", "ppo_loss_forward", "ppo_loss_backward"):
        monkeypatch.setattr(module, name, None)
    loss, gradient = loss_and_gradient(inputs(device, 0, 4))
    assert loss.isnan()
    assert gradient.shape == (0, 5)


@pytest.mark.slow
def test_an_h200_keeps_a_row_and_waits_before_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "_can_overlap", lambda _device: True)
    rows, actions = 32_768, module.ACTIONS_MAX
    floats, weights = shaped(rows, dtype=FP32), shaped(rows // 64, dtype=FP32)
    given = [shaped(rows, actions + 1), floats.long(), floats, floats, weights, floats, floats]
    kernels = compiled_for_hopper(lambda: loss_and_gradient(given))
    assert [kernel.local_bytes for kernel in kernels.values()] == [0, 0, 0]
    assert all("griddepcontrol" in kernel.ptx for kernel in kernels.values())
    before, after = kernels["ppo_loss_forward"].ptx.split("griddepcontrol.wait")
    assert "st.global" not in before
    assert "atom.global" not in before
    assert after.count("st.global") == actions + 3
