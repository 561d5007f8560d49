"""Checkpoints that are saved in each step."""

from collections.abc import Callable

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import Rule
from nsysflow.analysis.findings.rules.copies import blocking_copies
from nsysflow.analysis.findings.rules.host_code import (
    CHANGE_OF_CHECKPOINT,
    checkpoint_in_loop,
    host_code,
)
from nsysflow.analysis.findings.rules.waits import waits
from tests.analysis.findings.subjects import US, Row, asked, found, launched, loop, options_of
from tests.in_us import copy, launch, opened

EVERY_US = 1_260


def saving(name: str = "save", *, kernel: bool = False) -> list[Row]:
    """A kernel of 400 us; then 12 tensors are copied to the host and written, 60 us each."""
    rows: list[Row] = [*launched(10, 400), opened(450, 1_250, name)]
    for at in range(460, 460 + 12 * 60, 60):
        rows += [launch(at, at + 20, at, name="cudaMemcpyAsync")]
        rows += [copy(at + 12, at + 18, at, "DtoH", "device", "pageable", moved=4_096)]
    return [*rows, *(launched(1_240, 5) if kernel else [])]


def training(of_step: Callable[[int], list[Row]]) -> JudgedReport:
    return loop(of_step, every=EVERY_US, steps=16)


def test_a_checkpoint_in_each_step_is_a_finding_with_the_code_around_its_copies() -> None:
    subject = training(lambda _: saving())
    one = asked(checkpoint_in_loop, subject)
    assert one.title == "a checkpoint is saved in each step: 12 copies to the host in step/save"
    assert one.change == CHANGE_OF_CHECKPOINT
    assert options_of(one) == "--remove copy@step/save --faster-host step/save=0"
    first, *_ = find(subject).valued
    assert first.finding.rule == "checkpoint-in-loop"
    # twelve times 60 us, of which 20 us are the copies' calls
    assert first.high_ns == pytest.approx(12 * 60 * US, rel=0.15)
    assert first.finding.method == "bound"


@pytest.mark.parametrize("rule", [waits, blocking_copies, host_code])
def test_no_other_rule_is_about_its_waits_and_code(rule: Rule) -> None:
    assert not found(rule, training(lambda _: saving()))


@pytest.mark.parametrize(
    "of_step",
    [
        lambda step: saving() if step in (5, 9) else launched(10, 400),
        lambda _: saving("load"),
        lambda _: saving("checkpoint", kernel=True),  # of activations
    ],
    ids=["rarely", "another name", "kernels"],
)
def test_what_is_rare_or_no_checkpoint_is_left_to_other_rules(
    of_step: Callable[[int], list[Row]],
) -> None:
    assert not found(checkpoint_in_loop, training(of_step))
