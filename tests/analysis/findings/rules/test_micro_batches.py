"""Steps that accumulate gradients over small micro-batches, and what only looks like them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.plan import FEWER_LAUNCHES
from nsysflow.analysis.findings.rules import micro_batches
from nsysflow.analysis.findings.rules.micro_batches import small_micro_batches
from tests import tiny
from tests.analysis.findings.subjects import (
    US,
    Kernels,
    Row,
    changes_of,
    found,
    judged,
    named,
    valued_of,
)
from tests.in_us import opened
from tests.oracle.model import Shape

Part = tuple[Kernels, str]
"""Kernels, and the phase that launches them."""

BATCH: Final[Kernels] = [("embedding_kernel", 2)]
FORWARD: Final[Kernels] = [("sm90_gemm", 3), ("layer_norm", 2), ("sm90_gemm", 3)]
LOSS: Final[Kernels] = [("reduce_kernel<MeanOps>", 2), ("elementwise_kernel<MulFunctor>", 2)]
OTHER_LOSS: Final[Kernels] = [("reduce_kernel<MeanOps>", 2), ("elementwise_kernel<AbsFunctor>", 2)]
ADD: Final = ("vectorized_elementwise_kernel<CUDAFunctor_add<float>>", 2)
SIGN: Final = ("vectorized_elementwise_kernel<SignFunctor>", 2)
NORM: Final = ("reduce_kernel<NormTwoOps>", 2)
OPTIMIZER: Final[Part] = ([("multi_tensor_apply_kernel", 10)], "optimizer")


def forward(*before: tuple[str, int], loss: Kernels = LOSS) -> Part:
    return [*before, *FORWARD, *loss], "forward"


def backward(*, adds: bool, product: str = "sm90_gemm_nt") -> Part:
    """The backward pass of two layers, which adds to gradients that are there."""
    more = [ADD] if adds else []
    layer = [(product, 3), ("sm90_gemm_tn", 3), *more]
    return [
        ("elementwise_kernel<MulFunctor>", 2),
        *layer,
        ("layer_norm_bwd", 2),
        *layer,
    ], "backward"


FIRST: Final = [forward(*BATCH), backward(adds=False)]
LATER: Final = [forward(ADD), backward(adds=True)]
ADDED: Final = [forward(ADD), backward(adds=False)]
"""Where zero_grad filled the gradients, or a round begins anew."""

FOUR: Final = [*FIRST, *LATER * 3, OPTIMIZER]


def steps(
    *parts: Part,
    code_us: int = 25,
    kernel_us: int = 1,
    blocks: tuple[int, ...] = (8,),
    ranges: bool = True,
    other: Sequence[Part] = (),
    every: int = 10,
) -> JudgedReport:
    """Ten steps of these parts, or of `other` ones in `every` so many. Before each kernel the host
    works `code_us` and launches for 5 us; each kernel takes `kernel_us` times as long. Rounds take
    turns in having so many `blocks`."""
    rows: list[Row] = []
    at, free, number = 10, 0, 0
    for step in range(10):
        begun = at
        for place, (kernels, phase) in enumerate(parts if step % every or not other else other):
            thread = tiny.AUTOGRAD if phase == "backward" else tiny.MAIN
            if ranges:
                rows.append(opened(at, at + len(kernels) * (code_us + 5), phase))
            for name, us in kernels:
                at, number = at + code_us + 5, number + 1
                rows.append(tiny.launch((at - 5) * US, at * US, number, thread=thread))
                start = max(at + 1, free)
                free = start + us * kernel_us
                op = named(tiny.kernel(start * US, free * US, number), name)
                rows.append(replace(op, shape=Shape(grid_x=blocks[place // 2 % len(blocks)])))
        rows.append(opened(begun - 1, at + 1, "step"))
        at += 10
    return judged(*rows)


def test_the_same_passes_one_after_the_other_are_an_accumulation() -> None:
    (one,) = found(small_micro_batches, steps(*FOUR))
    assert one.title == (
        "gradients are accumulated over 4 small micro-batches, and the GPU waits for the launches"
        " of each"
    )
    assert one.change[0].startswith("one micro-batch 4 times as large instead, if memory holds it")
    assert "4 times, with no optimizer between: 42 launches a step would go" in one.evidence[0]
    assert "record with nsysflow profile --memory" in one.evidence[-1]
    assert one.steps == 9  # the last one is cut
    assert one.rule in FEWER_LAUNCHES


def test_a_replay_without_the_later_passes_values_it_before_launch_bound() -> None:
    subject = steps(*FOUR, code_us=60)
    one = valued_of("small-micro-batches", subject)
    assert {phase for phase, _ in changes_of(one.finding).faster_host} == {
        "step/forward",
        "step/backward",
    }
    assert one.finding.method == "least"
    # 42 of the 57 launches of a step, and the code before each
    assert 0.5 * one.step_ns < one.low_ns == one.high_ns <= one.finding.at_most_ns
    rules = [each.finding.rule for each in find(subject).valued]
    assert rules.index("small-micro-batches") < rules.index("launch-bound")


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([*FIRST, *LATER * 3], id="no optimizer is known, but gradients are added"),
        pytest.param([*FIRST, *ADDED * 3, OPTIMIZER], id="no gradients are added to others"),
        pytest.param([*FIRST, *LATER, OPTIMIZER], id="two"),
        pytest.param([OPTIMIZER, *FIRST, *LATER], id="the step before ends in it"),
        pytest.param(
            [([("sm90_gemm", 3), *BATCH], "sampling"), *FOUR], id="more before the first of them"
        ),
    ],
)
def test_these_accumulate_too(parts: list[Part]) -> None:
    assert found(small_micro_batches, steps(*parts))
    assert found(small_micro_batches, steps(*parts, ranges=False))


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([*FIRST, OPTIMIZER], id="one round"),
        pytest.param([*FIRST, OPTIMIZER, *ADDED, OPTIMIZER] * 2, id="an optimizer in each round"),
        pytest.param(
            [*FIRST, forward(ADD, loss=OTHER_LOSS), backward(adds=True), OPTIMIZER],
            id="another loss",
        ),
        pytest.param(
            [*FIRST, forward(ADD), backward(adds=True, product="layer_norm_bwd"), OPTIMIZER],
            id="another backward pass",
        ),
        pytest.param(
            [*FIRST, *LATER, OPTIMIZER, forward(*FORWARD), backward(adds=False), OPTIMIZER],
            id="the generator of a GAN",
        ),
        pytest.param(
            [*FIRST, *[forward(SIGN), backward(adds=False)] * 3, OPTIMIZER], id="an attack"
        ),
        pytest.param(
            [*FIRST, forward(NORM, *[ADD] * 2), backward(adds=False), OPTIMIZER],
            id="sharpness-aware",
        ),
        pytest.param(
            [*FIRST, *[forward(*[ADD] * 6), backward(adds=False)] * 2, OPTIMIZER],
            id="updates by hand",
        ),
        pytest.param([*FIRST, *ADDED * 3], id="neither an optimizer nor additions"),
        pytest.param([forward(), OPTIMIZER, *[forward()] * 4], id="an evaluation"),
        pytest.param([backward(adds=False), *FOUR], id="a step that begins in a backward pass"),
        pytest.param(
            [*FIRST, *LATER, ([("ncclDevKernel_SendRecv", 3)], "forward"), OPTIMIZER],
            id="a pipeline",
        ),
        pytest.param(
            [*[(BATCH, "forward"), ([("layer_norm_bwd", 2)], "backward")] * 3, OPTIMIZER],
            id="no products",
        ),
    ],
)
def test_other_passes_are_no_accumulation(parts: list[Part]) -> None:
    assert not found(small_micro_batches, steps(*parts))
    assert not found(small_micro_batches, steps(*parts, ranges=False))


def test_a_gpu_that_computes_all_the_time_gains_nothing() -> None:
    assert not found(small_micro_batches, steps(*FOUR, kernel_us=30))


def test_micro_batches_may_differ_a_little_in_size() -> None:
    assert found(small_micro_batches, steps(*FOUR, blocks=(8, 12)))
    assert not found(small_micro_batches, steps(*FOUR, blocks=(8, 24)))


def test_without_steps_nothing_accumulates() -> None:
    rows = [row for us in range(1, 4) for row in (tiny.launch(us, us + 1, us),)]
    assert not found(small_micro_batches, judged(*rows))


@pytest.mark.parametrize(
    ("times", "change", "room"),
    [
        (9.0, "one micro-batch 4 times as large instead: ", "memory holds all 4 at once"),
        (3.9, "2 micro-batches 2 times as large instead: ", "memory holds 2 of these 4"),
        (1.9, None, None),
    ],
)
def test_only_what_memory_holds_is_offered(
    monkeypatch: pytest.MonkeyPatch, times: float, change: str | None, room: str | None
) -> None:
    row: dict[str, Any] = {"peak_bytes": 10**9, "usable_bytes": 80 * 10**9}
    monkeypatch.setattr(micro_batches, "_memory", lambda _: row)
    monkeypatch.setattr(micro_batches, "times_that_fit", lambda _: times)
    findings = found(small_micro_batches, steps(*FOUR))
    assert len(findings) == (change is not None)
    for one in findings:
        assert one.change[0].startswith(str(change))
        assert one.evidence[-1].startswith(str(room))
        assert one.evidence[-1].endswith("1.00 GB of 80.0 GB are used")


@pytest.mark.parametrize(("every", "fires"), [(10, True), (2, False)])
def test_nearly_all_steps_have_as_many_micro_batches(every: int, *, fires: bool) -> None:
    subject = steps(*FOUR, other=[*FIRST, *LATER, OPTIMIZER], every=every)
    assert bool(found(small_micro_batches, subject)) is fires
