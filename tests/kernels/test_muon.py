"""muon matches its definition: in float32 with the roundings to bf16, and in float64 without."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from nsysflow.kernels.muon import (
    muon,
    muon_ref,
    muon_table,
)
from tests.kernels.hopper import Kernel, compile_for_hopper, pointers

MODEL = [(128, 96), (384, 128), (5, 128)]
ODD = [(7, 3), (3, 7), (1, 1), (1, 9), (130, 9), (9, 260), (17, 17)]
FEW = ODD[:2]
LR = 0.0025


def randn(shapes: Sequence[tuple[int, ...]], device: torch.device) -> list[Tensor]:
    return [torch.randn(shape, device=device) for shape in shapes]


def zeros(like: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(tensor) for tensor in like]


def clones(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


@pytest.fixture
def lr(device: torch.device) -> Tensor:
    """The learning rate on the device."""
    return torch.tensor([LR], device=device)


def relative_error(given: Tensor, wanted: Tensor) -> float:
    """Root mean square of the difference, divided by that of `wanted`."""
    difference = given.double() - wanted.double()
    return (difference.square().mean() / wanted.double().square().mean()).sqrt().item()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [(MODEL, torch.float32), (MODEL, torch.bfloat16), (MODEL, torch.float16), (ODD, torch.float32)],
    ids=["model", "model, bf16", "model, fp16", "odd"],
)
def test_two_steps_match_the_definition(
    shapes: list[tuple[int, int]], dtype: torch.dtype, lr: Tensor, device: torch.device
) -> None:
    weights = randn(shapes, device)
    gradients = [tensor.to(dtype) for tensor in randn(shapes, device)]
    table = muon_table(weights, gradients)
    momenta, momenta64 = zeros(weights), [tensor.double() for tensor in zeros(weights)]
    for _ in range(2):
        before = clones(weights)
        wanted, momenta = muon_ref(before, gradients, momenta, LR)
        exact, momenta64 = muon_ref([t.double() for t in before], gradients, momenta64, LR)
        muon(table, lr)
        for number, old in enumerate(before):
            moved = weights[number] - old
            # sums in another order round to other bf16 numbers: up to 0.4 % of the step was seen
            assert relative_error(moved, wanted[number] - old) < 0.01
            # bf16 itself is 1.3 % away from float64
            assert relative_error(moved, exact[number] - old) < 0.03
            torch.testing.assert_close(table.momenta[number], momenta[number])
        for gradient in gradients:
            gradient.normal_()


def test_all_singular_values_of_a_step_are_close_to_the_factor_of_its_shape(
    lr: Tensor, device: torch.device
) -> None:
    weights = randn(MODEL, device)
    before = clones(weights)
    muon(muon_table(weights, randn(MODEL, device)), lr)
    for old, new in zip(before, weights, strict=True):
        rows, cols = old.shape
        u = (old - new).double() / LR / max(1, rows / cols) ** 0.5
        values = torch.linalg.svdvals(u)
        assert values.min() > 0.95
        assert values.max() < 1.05


def norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(tensor.double().square().sum().item() for tensor in tensors))


@pytest.mark.parametrize(("given", "kept"), [(0.1, 0.1), (5.0, 0.5)])
def test_all_gradients_together_are_clipped(
    given: float, kept: float, lr: Tensor, device: torch.device
) -> None:
    gradients = randn(ODD, device)
    factor = given / norm(gradients)
    for gradient in gradients:
        gradient.mul_(factor)
    table = muon_table(randn(ODD, device), gradients)
    muon(table, lr)
    assert norm(table.momenta) == pytest.approx(
        kept, rel=1e-5
    )  # in the first step m is the scaled gradient
    assert norm(gradients) == pytest.approx(given, rel=1e-5)


def test_all_rates_have_their_effect(device: torch.device) -> None:
    weights, gradients = randn(ODD, device), randn(ODD, device)
    before, momenta = clones(weights), randn(ODD, device)
    table = muon_table(weights, gradients)
    for held, momentum in zip(table.momenta, momenta, strict=True):
        held.copy_(momentum)
    wanted, moved = muon_ref(
        before, gradients, momenta, 0.5, momentum=0.7, weight_decay=0.4, max_norm=3.0
    )
    rate = torch.tensor(0.5, device=device)
    muon(table, rate, momentum=0.7, weight_decay=0.4, max_norm=3.0)
    for number in range(len(ODD)):
        assert relative_error(weights[number], wanted[number]) < 0.01
        torch.testing.assert_close(table.momenta[number], moved[number])


def test_the_learning_rate_is_read_from_the_device_in_each_step(device: torch.device) -> None:
    weights = randn(FEW, device)
    table = muon_table(weights, randn(FEW, device))
    lr = torch.zeros(1, device=device)
    before = clones(weights)
    muon(table, lr)
    assert all(torch.equal(old, new) for old, new in zip(before, weights, strict=True))
    lr.fill_(LR)
    muon(table, lr)
    assert not any(torch.equal(old, new) for old, new in zip(before, weights, strict=True))


@pytest.mark.parametrize("shapes", [MODEL, ODD], ids=["model", "odd"])
def test_working_copies_are_the_rounded_weights(
    shapes: list[tuple[int, int]], lr: Tensor, device: torch.device
) -> None:
    weights = randn(shapes, device)
    working = [torch.full_like(weight, torch.nan, dtype=torch.bfloat16) for weight in weights]
    muon(muon_table(weights, randn(shapes, device), working=working), lr)
    for weight, copy in zip(weights, working, strict=True):
        assert torch.equal(copy, weight.bfloat16())


def test_without_gradient_and_momentum_nothing_changes(lr: Tensor, device: torch.device) -> None:
    weights = randn(FEW, device)
    before = clones(weights)
    muon(muon_table(weights, zeros(weights)), lr)
    assert all(torch.equal(old, new) for old, new in zip(before, weights, strict=True))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy, in the interpreter
@pytest.mark.parametrize(("bad", "whole"), [(torch.nan, [True, True]), (torch.inf, [False, True])])
def test_a_nan_makes_all_weights_nan_and_an_infinity_only_its_own(
    bad: float, whole: list[bool], lr: Tensor, device: torch.device
) -> None:
    weights, gradients = randn(FEW, device), randn(FEW, device)
    gradients[1][0, 0] = bad
    muon(muon_table(weights, gradients), lr)
    assert [bool(weight.isnan().all()) for weight in weights] == whole
    assert bool(weights[0].isfinite().all()) != whole[0]


def test_a_step_repeats_bit_for_bit_with_another_table(lr: Tensor, device: torch.device) -> None:
    start, gradients = randn(MODEL, device), randn(MODEL, device)
    steps = []
    for _ in range(2):
        weights = clones(start)
        muon(muon_table(weights, gradients), lr)
        steps.append(weights)
    assert all(torch.equal(one, other) for one, other in zip(*steps, strict=True))


def test_backward_is_refused_after_the_weights_have_been_stepped(
    lr: Tensor, device: torch.device
) -> None:
    weight = torch.randn(4, 6, device=device, requires_grad=True)
    table = muon_table([weight], randn([(4, 6)], device))
    loss = (weight * weight).sum()
    muon(table, lr)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, weight)


def test_a_table_keeps_the_old_memory_when_data_is_replaced(
    lr: Tensor, device: torch.device
) -> None:
    weights, gradients = randn(ODD, device), randn(ODD, device)
    wanted, _ = muon_ref(weights, gradients, zeros(weights), LR)
    table = muon_table(weights, gradients)
    for tensor in (*weights, *gradients):
        tensor.data = torch.full((2, 2), torch.nan, device=device)
    muon(table, lr)
    for weight, exact in zip(table.weights, wanted, strict=True):
        assert relative_error(weight, exact) < 0.01


@pytest.mark.parametrize("shapes", [[], [(0, 5)], [(5, 0), (0, 0)]], ids=str)
def test_empty_matrices_are_not_stepped(
    shapes: list[tuple[int, int]], lr: Tensor, device: torch.device
) -> None:
    table = muon_table(randn(shapes, device), randn(shapes, device))
    if shapes or device.type == "cpu":  # no matrices, no device
        muon(table, lr)
    assert len(table.entries) == 0


def test_an_empty_matrix_does_not_shift_the_others(lr: Tensor, device: torch.device) -> None:
    shapes = [(3, 7), (0, 4), (5, 2)]
    weights, gradients = randn(shapes, device), randn(shapes, device)
    wanted, _ = muon_ref(weights, gradients, zeros(weights), LR)
    muon(muon_table(weights, gradients), lr)
    for number in (0, 2):
        assert relative_error(weights[number], wanted[number]) < 0.01


@pytest.mark.slow
def test_an_h200_multiplies_on_its_tensor_cores_and_hardly_spills() -> None:
    types = pointers(i64="entries", fp32="squares lr", bf16="tiles")
    types |= dict.fromkeys(("mu", "decay", "max_norm"), "fp32")
    constants: dict[str, int | str] = {"WORKING": True, "ALIGNED": True, "ROWS": 128}
    compiled = compile_for_hopper(
        Kernel(
            module="muon",
            name="muon_step",
            types=types,
            constants=constants | {"TYPE": "float32", "OPERAND": "bfloat16"},
            warps=8,
        )
    )
    # 0 with Triton 3.6, 120 with 3.9; 2576 if X were in registers
    assert compiled.local_bytes < 256
    assert "wgmma.mma_async" in compiled.ptx


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_graph_uses_gradients_and_rate_at_the_time_of_the_replay() -> None:
    device = torch.device("cuda")
    weights, gradients = randn(MODEL, device), randn(MODEL, device)
    lr = torch.tensor([LR], device=device)
    same = clones(weights)
    captured, eager = muon_table(weights, gradients), muon_table(same, gradients)
    muon(captured, lr)  # compile before capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        muon(captured, lr)
    muon(eager, lr)
    for _ in range(3):
        for gradient in gradients:
            gradient.normal_()
        lr.mul_(0.5)
        graph.replay()
        muon(eager, lr)
    assert all(torch.equal(one, other) for one, other in zip(weights, same, strict=True))
