"""What no saving may be, in every report, range and window (spec §16.10)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.findings import Findings, find, problem_of
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.other_loop import OTHER_LOOP
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.trace import NoteKind
from tests.analyses import analysed, loaded, reports_of_rules


def assert_can_be(found: Findings, most_ns: float) -> None:
    """Each saving is at most `most_ns`, that of another loop at most all time after start-up, and
    the plan goes down to what all save together."""
    assert not found.notes
    step_ns = found.undisturbed_step_ns
    for one in found.valued:
        beside_steps = one.finding.rule == OTHER_LOOP
        here_ns = one.step_ns if beside_steps else min(most_ns, one.step_ns)
        assert 0 <= one.low_ns <= one.high_ns <= here_ns
        assert one.alone_ns <= (here_ns if beside_steps else most_ns)
        assert one.step_after_ns <= step_ns
        assert one.step_after_ns >= one.busy_after_ns or not one.counts
        step_ns = one.step_after_ns
    if found.together_ns is not None:
        assert found.undisturbed_step_ns - found.together_ns == step_ns


def idle_and_work_ns(analysis: nsysflow.Analysis) -> float:
    """The idle time of the judged part and all that its GPU ran in it, of a step."""
    spent = pl.col("idle_ns") + pl.col("kernel_ns") + pl.col("copy_ns")
    most_ns = max(analysis.run_steps.accounting.select(spent).to_series().to_list())
    counts = analysis.run_steps.view.steps.group_by("process", "device").len()["len"].to_list()
    return most_ns / max(counts) if analysis.judged.view.of_steps else float(most_ns)


@reports_of_rules
def test_savings_can_be(name: str) -> None:
    analysis = analysed(name)
    assert_can_be(analysis.found, 1.001 * idle_and_work_ns(analysis))


def most_run(analysis: nsysflow.Analysis, place: int) -> Options:
    """The range at this place of those that run kernels, the shortest first."""
    phases = analysis.phases.filter(pl.col("kernel_ns") > 0).sort("kernel_ns")["path"]
    return Options(range=phases[place])


def of_time(analysis: nsysflow.Analysis, first: float, last: float | None) -> Options:
    """A stretch of the report, in shares of it."""
    starts_ns = analysis.timeline.events.ops["start_ns"].sort()
    begin_ns, whole_ns = starts_ns[0], starts_ns[-1] - starts_ns[0]
    until_ns = None if last is None else begin_ns + int(last * whole_ns)
    return Options(from_ns=begin_ns + int(first * whole_ns), to_ns=until_ns)


SELECTIONS: Final[dict[str, Callable[[nsysflow.Analysis], Options]]] = {
    "h200-gpu-metrics": lambda of: most_run(of, -1),
    "h200-nvtx-domain": lambda of: most_run(of, 0),
    "h200-hf-trainer": lambda of: of_time(of, 1 / 3, 2 / 3),
    "h200-ddp-rank0": lambda of: of_time(of, 0.9, None),
    "synthetic-3": lambda _: Options(whole=True),
    "nan_check-sync": lambda _: Options(steps=(StepPart(0, 1),)),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_savings_of_a_narrowed_report_can_be(name: str) -> None:
    analysis = nsysflow.analyze(loaded(name), SELECTIONS[name](analysed(name)))
    assert_can_be(analysis.found, 1.001 * idle_and_work_ns(analysis))


def test_a_saving_that_cannot_be_is_a_note_and_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = JudgedReport(analysed("nan_check-sync"))
    monkeypatch.setattr(Replays, "busy_ns", lambda *_: -(1 << 40))  # what caps them caps nothing
    monkeypatch.setattr(Replays, "saving_ns", lambda *_: 1 << 39)
    found = find(subject)
    assert {note.kind for note in found.notes} == {NoteKind.UNSOUND_FINDING}
    assert_can_be(replace(found, notes=()), subject.run_step_ns)


def test_each_saving_that_cannot_be_is_told_from_those_that_can() -> None:
    (first, *_) = analysed("nan_check-sync").found.valued
    left_ns = first.step_after_ns
    assert problem_of(first, None) == ""
    assert problem_of(replace(first, low_ns=-1), None) == "it is negative"
    assert (
        problem_of(replace(first, alone_ns=first.step_ns + 1), None) == "it is longer than the step"
    )
    assert problem_of(first, left_ns - 1) == "the step gets longer"
    busy = replace(first, busy_after_ns=left_ns + 1)
    assert problem_of(busy, None) == "the step gets shorter than the work in it"
