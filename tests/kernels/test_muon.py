"""muon matches its definition: in float32 with the roundings to bf16, and in float64 without."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import triton.language as tl
from torch import Tensor

from nsysflow.kernels import muon as module
from nsysflow.kernels import muon_kernels
from nsysflow.kernels.arguments import Backend
from nsysflow.kernels.muon import muon, muon_ref, muon_table
from tests.kernels.comparing import same
from tests.kernels.hopper import compiled_for_hopper, shaped
from tests.kernels.host_cuda import launch_on_host

MODEL = [(128, 96), (384, 128), (5, 128)]
ALIGNED = MODEL if torch.cuda.is_available() else [(16, 24), (264, 40), (5, 32)]
"""Rows of 16 bytes, smaller for the interpreter; the second matrix has three tiles."""
ODD = [(7, 3), (3, 7), (1, 1), (130, 9), (9, 260), (17, 17)]
FEW = ODD[:2]
CLUSTERED = [*MODEL, (64, 1536), (1536, 128), (96, 248), (8, 40)]
HAS_CLUSTERS = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
LR = 0.0025

DRIVER = """
extern "C" void run(int blocks, int threads, const Entry* entries, const float* squares,
                    const float* lr, int count, int momentum, int weight_decay, int max_norm) {
    on_clusters(BLOCKS, blocks, threads, SHARED_BYTES, [=] {
        muon(entries, squares, lr, count, momentum, weight_decay, max_norm);
    });
}
"""


def randn(shapes: Sequence[tuple[int, ...]], device: torch.device) -> list[Tensor]:
    return [torch.randn(shape, device=device) for shape in shapes]


def zeros(like: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(tensor) for tensor in like]


def clones(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


@pytest.fixture(autouse=True)
def few_parts(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Square a gradient in few programs: the interpreter's time depends on their number."""
    if device.type == "cpu":
        monkeypatch.setattr(module, "PARTS", 2)
        monkeypatch.setattr(muon_kernels, "_PARTS", tl.constexpr(2))


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
    [
        *((ALIGNED, torch.float32), (ALIGNED, torch.bfloat16), (ODD, torch.float32)),
        *((FEW, torch.half), ([(1, 1)], torch.float32), ([(1, 130)], torch.float32)),
    ],
    ids=["aligned", "aligned, bf16", "odd", "few, fp16", "one number", "one row"],
)
def test_two_steps_match_the_definition(
    shapes: list[tuple[int, int]], dtype: torch.dtype, lr: Tensor, device: torch.device
) -> None:
    check_two_steps("triton", shapes, dtype, lr, device)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_CLUSTERS, reason="needs a GPU with clusters")
@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.half])
@pytest.mark.parametrize("shapes", [MODEL, CLUSTERED, 40 * MODEL], ids=["model", "all", "many"])
def test_two_steps_by_clusters_match_the_definition(
    shapes: list[tuple[int, int]], dtype: torch.dtype, lr: Tensor, device: torch.device
) -> None:
    check_two_steps("cuda", shapes, dtype, lr, device)


@pytest.fixture
def clusters_on_host(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let backend "cuda" step by clusters on the CPU, with its source compiled for the host."""
    if device.type == "cuda":
        pytest.skip("the GPU runs it")
    launch_on_host(monkeypatch, DRIVER)
    monkeypatch.setattr(module, "_clusters_at_once", lambda *_: 1)
    monkeypatch.setattr(module, "backend_for", lambda backend, _: backend)


@pytest.mark.usefixtures("poisoned", "clusters_on_host")
@pytest.mark.parametrize(
    ("shapes", "dtype"),
    # 64 columns of X in a block are two parts, 48 are one
    [([(512, 40), (128, 136), (8, 24)], torch.float32), ([(264, 128), (24, 384)], torch.bfloat16)],
    ids=["64 columns", "48 columns, bf16"],
)
def test_two_steps_by_clusters_match_the_definition_on_the_host(
    shapes: list[tuple[int, int]], dtype: torch.dtype, lr: Tensor, device: torch.device
) -> None:
    check_two_steps("cuda", shapes, dtype, lr, device)


def check_two_steps(
    backend: Backend,
    shapes: list[tuple[int, int]],
    dtype: torch.dtype,
    lr: Tensor,
    device: torch.device,
) -> None:
    weights = randn(shapes, device)
    gradients = [tensor.to(dtype) for tensor in randn(shapes, device)]
    working = [torch.full_like(weight, torch.nan, dtype=torch.bfloat16) for weight in weights]
    table = muon_table(weights, gradients, working=working if dtype == torch.float32 else ())
    momenta, momenta64 = zeros(weights), [tensor.double() for tensor in zeros(weights)]
    for rate in (LR, LR / 2):
        lr.fill_(rate)
        before, given = clones(weights), clones(gradients)
        wanted, momenta = muon_ref(before, gradients, momenta, rate)
        exact, momenta64 = muon_ref([t.double() for t in before], gradients, momenta64, rate)
        muon(table, lr, backend=backend)
        assert same(gradients, given)
        for number, old in enumerate(before):
            moved = weights[number] - old
            # sums in another order round to other bf16 numbers: up to 0.4 % of the step was seen
            assert relative_error(moved, wanted[number] - old) < 0.01
            # bf16 itself is 1.3 % away from float64
            assert relative_error(moved, exact[number] - old) < 0.03
            torch.testing.assert_close(table.momenta[number], momenta[number])
        assert same(table.working, [weight.bfloat16() for weight in weights][: len(table.working)])
        for gradient in gradients:
            gradient.normal_()


def test_all_singular_values_of_a_step_are_close_to_the_factor_of_its_shape() -> None:
    before = randn(MODEL, torch.device("cpu"))
    after, _ = muon_ref(before, randn(MODEL, torch.device("cpu")), zeros(before), LR)
    for old, new in zip(before, after, strict=True):
        rows, cols = old.shape
        u = (old - new).double() / LR / max(1, rows / cols) ** 0.5
        values = torch.linalg.svdvals(u)
        assert values.min() > 0.95
        assert values.max() < 1.05


@pytest.mark.parametrize("max_norm", [3.0, 1e6], ids=["clipped", "not clipped"])
def test_all_rates_have_their_effect(max_norm: float, device: torch.device) -> None:
    check_rates("auto", ODD, max_norm, device)


@pytest.mark.usefixtures("clusters_on_host")
def test_all_rates_have_their_effect_on_clusters(device: torch.device) -> None:
    check_rates("cuda", [(72, 40)], 1e6, device)


def check_rates(
    backend: Backend, shapes: list[tuple[int, int]], max_norm: float, device: torch.device
) -> None:
    weights, gradients = randn(shapes, device), randn(shapes, device)
    before, momenta = clones(weights), randn(shapes, device)
    table = muon_table(weights, gradients)
    for held, momentum in zip(table.momenta, momenta, strict=True):
        held.copy_(momentum)
    rates: dict[str, Any] = {"momentum": 0.7, "weight_decay": 0.4, "max_norm": max_norm}
    wanted, moved = muon_ref(before, gradients, momenta, 0.5, **rates)
    muon(table, torch.tensor(0.5, device=device), backend=backend, **rates)
    for number in range(len(shapes)):
        assert relative_error(weights[number], wanted[number]) < 0.01
        torch.testing.assert_close(table.momenta[number], moved[number])


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


def test_backward_is_refused_after_the_weights_stepped(lr: Tensor, device: torch.device) -> None:
    weight = torch.randn(4, 6, device=device, requires_grad=True)
    table = muon_table([weight], randn([(4, 6)], device))
    loss = (weight * weight).sum()
    muon(table, lr)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, weight)


def test_an_empty_matrix_does_not_shift_the_others(lr: Tensor, device: torch.device) -> None:
    shapes = [(3, 7), (0, 4), (5, 2)]
    weights, gradients = randn(shapes, device), randn(shapes, device)
    wanted, _ = muon_ref(weights, gradients, zeros(weights), LR)
    muon(muon_table(weights, gradients), lr)
    for number in (0, 2):
        assert relative_error(weights[number], wanted[number]) < 0.01


@pytest.mark.slow
def test_an_h200_multiplies_on_its_tensor_cores_and_hardly_spills() -> None:
    floats = [shaped(*shape, dtype=torch.float32) for shape in MODEL]
    table = muon_table(floats, floats, working=[tensor.bfloat16() for tensor in floats])
    lr = shaped(1, dtype=torch.float32)
    compiled = compiled_for_hopper(lambda: muon(table, lr), OPERAND="bf16")["muon_step"]
    # 0 with Triton 3.6, 120 with 3.9; 2576 if X were in registers
    assert compiled.local_bytes < 256
    assert "wgmma.mma_async" in compiled.ptx


@pytest.mark.gpu
def test_a_captured_graph_uses_gradients_and_rate_at_the_time_of_the_replay() -> None:
    device = torch.device("cuda")
    weights, gradients = randn(MODEL, device), randn(MODEL, device)
    lr = torch.tensor([LR], device=device)
    copies = clones(weights)
    captured, eager = muon_table(weights, gradients), muon_table(copies, gradients)
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
    assert same(weights, copies)
