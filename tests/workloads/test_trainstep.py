"""The results of every variant are as accurate as PyTorch's, a wrong one is noticed, and the loss
follows the same curve over several training steps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest
import torch
from torch import Tensor

from nsysflow.catalog.catalog import find
from nsysflow.kernels.muon import muon_ref
from nsysflow.workloads.common.measurement import parts_of
from nsysflow.workloads.common.run import options_of
from nsysflow.workloads.common.training import On, Precision
from nsysflow.workloads.policy.steps import PLAIN, PlainStep
from nsysflow.workloads.policy.variants import (
    PolicyStep,
    Start,
    compare,
    start_of,
    training_phases,
    variant_of,
)
from tests.kernels.comparing import same
from tests.workloads.toys import ROUNDED, toy, work_of

TRAINSTEP: Final = find("trainstep")

SMALL: Final = {"horizon": 5, "minibatch": 4, "hidden": 8}
"""The interpreter's time depends on the number of programs and on the steps of a segment."""


def small_start(precision: Precision = "float", **options: int) -> Start:
    """A start of small size, on a GPU if there is one."""
    torch.manual_seed(0)
    on: On = "cuda" if torch.cuda.is_available() else "cpu"
    return start_of(toy(TRAINSTEP, on=on, precision=precision, options=SMALL | options))


def usual_start(precision: Precision) -> Start:
    """A start of the usual size, on a GPU."""
    torch.manual_seed(0)
    config = toy(TRAINSTEP, on="cuda", precision=precision)
    return start_of(replace(config, options=options_of(TRAINSTEP, "cuda", {})))


STEPS: Final = 20
FUSED_STEPS: Final = 3
"""Fewer for the fused step, which takes the interpreter long."""
BF16_BAND: Final = 5e-3
"""How far bf16's curve may be from that of float32 masters without bf16 copies. With 20 rows in the
interpreter it was 1.6e-3 for PyTorch; with 32 768 rows on an H200 4e-4 (2026-11-20)."""
TRUNCATED_BAND: Final = 1e-2
"""The same for the fused step with 20 rows: the interpreter truncates bf16 where a GPU rounds, and
does so with x and its product with the first layer since these are one kernel. It was 5.2e-3
(2026-11-28)."""

each_variant = pytest.mark.parametrize(
    ("variant", "steps"), [("torch", STEPS), ("fused", FUSED_STEPS)]
)

Tensors = Sequence[Tensor]


def rounding(
    weights: Tensors, gradients: Tensors, momenta: Tensors, lr: float, *, max_norm: float | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Muon with its roundings to bf16, whatever the step's type: in float64 it has none."""
    w, g, m = ([each.float() for each in given] for given in (weights, gradients, momenta))
    stepped = muon_ref(w, g, m, lr, max_norm=max_norm)
    new_weights, new_momenta = ([new.to(weights[0].dtype) for new in made] for made in stepped)
    return new_weights, new_momenta


def exact_except_muon(start: Start) -> PlainStep:
    """A step in float64, except for the bf16 roundings of Muon's definition."""
    step = start.exact()
    operations = replace(PLAIN, optimize=rounding)
    return PlainStep(step.masters, start.batch.to(torch.float64), torch.float64, operations)


def curve(step: PolicyStep, steps: int = STEPS) -> Tensor:
    """The loss of each step, float64."""
    losses = []
    for _ in range(steps):
        for part in parts_of(training_phases(step)):
            part.work()
        losses.append(step.loss_value.detach().double().cpu())
    return torch.stack(losses)


def difference(curve: Tensor, other: Tensor) -> float:
    """The largest relative difference of two curves."""
    return ((curve - other) / other).abs().max().item()


@pytest.mark.slow
@each_variant
def test_the_float32_loss_follows_that_of_float64(variant: str, steps: int) -> None:
    start = small_start()
    losses = curve(variant_of(variant, start), steps)
    assert difference(losses, curve(exact_except_muon(start), steps)) < 1e-5
    assert losses[-1] < (1 - 0.03 * steps / STEPS) * losses[0]


@pytest.mark.slow
@each_variant
def test_the_bf16_loss_stays_close_to_that_of_float32_masters(variant: str, steps: int) -> None:
    start = small_start("bf16")
    master = Start(weights=start.weights, batch=start.batch.to(torch.float32))
    found = curve(variant_of(variant, start), steps)
    band = BF16_BAND if variant == "torch" else TRUNCATED_BAND
    assert difference(found, curve(master.plain(), steps)) < band


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["torch", "fused"])
def test_at_the_usual_size_the_float32_loss_follows_that_of_float64(variant: str) -> None:
    start = usual_start("float")
    rounded = difference(curve(variant_of(variant, start)), curve(exact_except_muon(start)))
    assert rounded < ROUNDED[TRAINSTEP.name]


@pytest.mark.gpu
def test_at_the_usual_size_the_bf16_loss_stays_close_to_that_of_float32_masters() -> None:
    start = usual_start("bf16")
    master = Start(weights=start.weights, batch=start.batch.to(torch.float32))
    found = curve(variant_of("fused", start))
    assert difference(found, curve(master.plain())) < BF16_BAND / 5


@pytest.mark.gpu
@pytest.mark.parametrize("name", [TRAINSTEP.name, "rolloutcopy"])
def test_steps_of_a_graph_equal_fused_steps_bit_for_bit(name: str) -> None:
    results = []
    for variant in ("fused", "graph"):
        torch.manual_seed(0)
        work = work_of(toy(find(name), variant, on="cuda"))
        found = []
        for index in range(STEPS):
            work.step(index)
            found.append(work.result().clone())
        results.append(torch.stack(found))
    assert torch.equal(*results)


def test_a_restart_repeats_the_curve() -> None:
    start = small_start("bf16")
    for variant in ("torch", "fused"):
        step = variant_of(variant, start)
        seen = []
        for _ in range(2):
            step.restart(start.weights)
            loss = curve(step, 1)
            seen.append([loss, *(each.clone() for each in (*step.masters, *step.momenta))])
        assert same(*seen)


@pytest.mark.parametrize(("precision", "layers"), [("float", 1), ("bf16", 2)])
def test_fused_results_are_as_accurate_as_pytorchs(precision: Precision, layers: int) -> None:
    start = small_start(precision, layers=layers)
    rows = compare(start.exact(), start.plain(), variant_of("fused", start))
    if precision == "bf16":
        # the interpreter truncates where a GPU rounds: up to 1.3e-2 was seen, and PyTorch's 3.5e-3
        rows = [replace(row, band=0.02) for row in rows]
    assert [row.what for row in rows if not row.passed] == []
    parts = ["encoder", *(f"layer {number}" for number in range(layers)), "decoder"]
    wanted = [*(f"gradient of {part}" for part in parts), *(f"step of {part}" for part in parts)]
    assert [row.what for row in rows] == ["predictions", "loss", *wanted]


class WithoutDecoderGradient(PlainStep):
    """Its backward leaves out the decoder."""

    def backward(self) -> None:
        super().backward()
        self.gradients[-1] = torch.zeros_like(self.gradients[-1])


def test_a_wrong_gradient_fails_the_comparison_and_nothing_else_does() -> None:
    start = small_start()
    wrong = WithoutDecoderGradient(start.weights, start.batch, torch.float32)
    rows = compare(start.exact(), start.plain(), wrong)
    assert [row.what for row in rows if not row.passed] == ["gradient of decoder"]


def test_a_fused_steps_memory_stays_at_its_addresses_as_a_graph_needs() -> None:
    step = variant_of("fused", small_start("bf16"))

    def addresses() -> list[int]:
        held = (*step.masters, *step.momenta, *step.working, *step.gradients)
        return [each.data_ptr() for each in held]

    before = addresses()
    for part in parts_of(training_phases(step)):
        part.work()
    assert addresses() == before
