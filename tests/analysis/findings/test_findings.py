"""All findings of a report, what to change next, and what no saving may be (spec §16.10)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings import saving
from nsysflow.analysis.findings.findings import Findings, find, largest_after, problem_of
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.other_loop import OTHER_LOOP, largest_loop, with_other_loop
from nsysflow.analysis.findings.plan import WORTH_PCT, ranked
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.analysis.tables.run import RUN
from nsysflow.analysis.trace import NoteKind
from tests.analyses import analysed, loaded, reports_of_rules
from tests.analysis.findings.subjects import Row, launched, loop, valued
from tests.in_us import call, opened
from tests.report import handmade
from tests.tiny import AS_RECORDED


def test_a_bound_comes_before_what_surely_saves_less_than_three_quarters_of_it() -> None:
    one = valued("rolloutcopy-torch")[0]
    bound, more, less = (
        replace(one, alone_low_ns=low_ns, alone_ns=high_ns)
        for low_ns, high_ns in ((0, 1_000), (751, 751), (749, 749))
    )
    assert ranked([less, bound, more]) == (more, bound, less)
    assert replace(bound, alone_low_ns=400).rank_ns == 850


def rarely(i: int) -> list[Row]:
    """A kernel; in the first of 12 steps a wait that the others do not have, and 0.4 ms of idle
    time."""
    if i:
        return [*launched(10, 500), *launched(60, 450)]
    wait = opened(20, 530, "check"), call(25, 520, "cudaDeviceSynchronize")
    return [*launched(10, 500), *wait, *launched(900, 450)]


def test_what_the_replayed_part_lacks_is_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "MOST_OPS", 4)
    found = find(loop(rarely, steps=12, every=1_400)).valued
    (one,) = (one for one in found if one.finding.phase == "step/check")
    assert (one.finding.method, one.low_ns) == ("bound", 0)


def test_faster_kernels_save_once_the_step_of_gpt2_is_a_graph() -> None:
    of = analysed("h200-gpt2-eager")
    then = largest_after(JudgedReport(of), of.found, Changes(graphs=("train_step",)))
    assert then is not None
    assert then.finding.rule == "unfused-elementwise"
    assert then.high_ns > 5_000_000


def test_nothing_is_left_of_a_wait_that_is_removed_and_all_without_a_change() -> None:
    of = analysed("nan_check-sync")
    gone = Changes(removed=(Removal(kind="sync", at="nan_check.py:125"),))
    then = largest_after(JudgedReport(of), of.found, gone)
    assert then is None or then.finding.rule != "sync-in-loop"
    first, then = of.found.valued[0], largest_after(JudgedReport(of), of.found, Changes())
    assert then is not None
    assert (then.finding, then.high_ns) == (first.finding, first.high_ns)


def test_what_the_host_hides_comes_behind_the_launches_with_what_it_saves_then() -> None:
    recorded = nsysflow.analyze(loaded("h200-gpt2-eager"), AS_RECORDED)
    every = find(JudgedReport(recorded)).valued
    rules = [one.finding.rule for one in every]
    hidden = [one for one in every if 100 * one.alone_ns < WORTH_PCT * one.step_ns]
    assert {one.finding.rule for one in hidden} >= {"unaligned-matmul", "unfused-elementwise"}
    assert every[-len(hidden) :] == tuple(hidden)
    assert rules.index("launch-bound") < len(rules) - len(hidden)
    assert all(one.pct >= WORTH_PCT and one.low_ns == 0 for one in hidden)


def test_what_saves_nothing_stands_behind_faster_kernels_that_the_host_hides() -> None:
    every = analysed("h200-accumulation").found.valued
    saves = [100 * one.high_ns >= WORTH_PCT * one.step_ns for one in every]
    hidden = [100 * one.alone_ns < WORTH_PCT * one.step_ns for one in every]
    assert any(hidden)
    assert not all(saves)
    assert saves == sorted(saves, reverse=True)


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
    left_ns, step_ns = first.step_after_ns, first.step_ns
    assert problem_of(first, None) == ""
    assert problem_of(replace(first, low_ns=-1), None) == "it is negative"
    assert problem_of(replace(first, alone_ns=step_ns + 1), None) == "it is longer than the step"
    assert problem_of(first, left_ns - 1) == "the step gets longer"
    busy = replace(first, busy_after_ns=left_ns + 1)
    assert problem_of(busy, None) == "the step gets shorter than the work in it"


Part = tuple[str, int, int, str]
"""Part, count, time and phase of a row of `run`."""

STEPS: tuple[Part, ...] = (
    ("start-up", 2, 9_000, "step"),
    ("typical", 8, 700, "step"),
    ("longer", 2, 300, "step"),
    ("end", 0, 5_000, ""),
)


def run_of(*parts: Part) -> pl.DataFrame:
    rows = [
        {"report": "a", "part": part, "count": count, "time_ns": time_ns, "phase": phase}
        | {"start_ns": 10, "end_ns": 20}
        for part, count, time_ns, phase in parts
    ]
    return pl.DataFrame(rows, schema=dict(RUN))


def findings_of(
    savings: tuple[int, ...], *, step_ns: int, bounds: tuple[int, ...] = ()
) -> Findings:
    """Findings that save so much of a step by a replay, then upper bounds."""
    some = [handmade.valued(ns, "a", title=f"saves {ns}") for ns in savings]
    some += [handmade.valued(ns, "a", changes=None) for ns in bounds]
    of_step = (replace(one, step_ns=step_ns, step_after_ns=step_ns - one.high_ns) for one in some)
    found = handmade.found_of(*of_step, steps=8)
    return replace(found, step_ns=step_ns, undisturbed_step_ns=step_ns)


EVAL, SAVE = ("loop", 50, 1_000, "eval"), ("loop", 5, 200, "save")


@pytest.mark.parametrize(
    ("loops", "judged", "at_least_pct", "largest"),
    [
        ((), None, 20, None),
        ((EVAL,), None, 20, "eval"),
        ((SAVE, EVAL), None, 20, "eval"),
        ((SAVE, EVAL), ["save"], 20, None),  # 200 of 2 200
        ((SAVE, EVAL), ["save"], 9, "save"),
        ((("loop", 5, 249, "eval"),), None, 20, None),  # of 1 249, start-up and end apart
        ((("loop", 5, 250, "eval"),), None, 20, "eval"),
    ],
)
def test_a_loop_counts_by_its_share_of_the_time_after_start_up(
    loops: tuple[Part, ...], judged: list[str] | None, at_least_pct: int, largest: str | None
) -> None:
    row = largest_loop(run_of(*STEPS, *loops), judged, at_least_pct=at_least_pct)
    assert (row and row["phase"]) == largest


@pytest.mark.parametrize("only_before", [True, False])
def test_a_loop_that_ran_only_before_the_steps_is_asked_for(*, only_before: bool) -> None:
    """nanoGPT evaluates before its first step: how often it does so again is not known."""
    ends = pl.when(part="loop").then(10).otherwise("end_ns")
    run = run_of(*STEPS, EVAL).with_columns(end_ns=ends)
    assert (largest_loop(run, only_before=only_before) is not None) == only_before


@pytest.mark.parametrize(
    ("of_loop", "of_steps", "saved_ns", "at"),
    [
        ((10, 2), (), 60, 0),  # 12 ns in each of 50, over 10 steps
        ((10, 2), (70, 50), 60, 1),
        ((15, 6), (), 100, 0),  # no more than the loop takes
        ((), (70,), None, None),
        ((0,), (), None, None),
    ],
)
def test_what_a_loop_saves_is_spread_over_the_steps_and_takes_its_place(
    of_loop: tuple[int, ...], of_steps: tuple[int, ...], saved_ns: int | None, at: int | None
) -> None:
    row = largest_loop(run_of(*STEPS, EVAL))
    own = findings_of(of_loop, step_ns=20, bounds=(9,))
    before = findings_of(of_steps, step_ns=100)
    after = with_other_loop(before, row, lambda name: {"eval": own}[name])
    if saved_ns is None or at is None:
        assert after == before
        return
    one = after.valued[at]
    assert (one.finding.rule, one.high_ns, one.step_ns) == ("other-loop", saved_ns, 200)
    assert one.finding.title == "eval, 50 % of the time after start-up: saves " + str(of_loop[0])
    assert not one.counts
    assert one.step_after_ns == (after.valued[at - 1].step_after_ns if at else 100)
    assert (*after.valued[:at], *after.valued[at + 1 :]) == before.valued
