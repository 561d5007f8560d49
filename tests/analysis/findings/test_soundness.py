"""What no saving may be, in every report, range and window (spec §16.10)."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.findings import Findings, find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.trace import NoteKind
from tests.analyses import analysed, every_report, few_reports, loaded


def assert_can_be(found: Findings, most_ns: float) -> None:
    """Each saving is at most `most_ns`, and the plan goes down to what all save together."""
    assert not found.notes
    step_ns = found.undisturbed_step_ns
    for one in found.valued:
        assert 0 <= one.low_ns <= one.high_ns <= min(most_ns, one.step_ns)
        assert one.alone_ns <= most_ns
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


@every_report
def test_savings_can_be(name: str) -> None:
    analysis = analysed(name)
    assert_can_be(analysis.found, 1.001 * idle_and_work_ns(analysis))


def selections(name: str) -> Iterator[Options]:
    """The range that runs longest, the one that runs shortest, the middle and the end of a report,
    and one of its steps."""
    whole = analysed(name)
    phases = whole.phases.filter(pl.col("kernel_ns") > 0).sort("kernel_ns")["path"]
    for path in {*phases.head(1), *phases.tail(1)}:
        yield Options(range=path)
    times = pl.col("start_ns")
    first, last = whole.timeline.events.ops.select(times.min(), last=times.max()).row(0)
    yield Options(from_ns=first + (last - first) // 3, to_ns=first + 2 * (last - first) // 3)
    yield Options(from_ns=last - (last - first) // 10)
    yield Options(whole=True)
    if len(whole.steps):
        yield Options(steps=(StepPart(0, 1),))


@few_reports
def test_savings_of_a_narrowed_report_can_be(name: str) -> None:
    for options in selections(name):
        analysis = nsysflow.analyze(loaded(name), options)
        assert_can_be(analysis.found, 1.001 * idle_and_work_ns(analysis))


def test_a_saving_that_cannot_be_is_a_note_and_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = JudgedReport(analysed("nan_check-sync"))
    monkeypatch.setattr(Replays, "busy_ns", lambda *_: -(1 << 40))  # what caps them caps nothing
    monkeypatch.setattr(Replays, "saving_ns", lambda *_: 1 << 39)
    found = find(subject)
    assert {note.kind for note in found.notes} == {NoteKind.UNSOUND_FINDING}
    assert_can_be(replace(found, notes=()), subject.run_step_ns)
