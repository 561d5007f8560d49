"""The GPU waits for a thread that has no CPU, or that waits for Python's lock."""

from dataclasses import replace
from functools import cache
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.threads import (
    ESTIMATED,
    LIMIT,
    NEIGHBOUR,
    ONE,
    TOO_FEW,
    UNKNOWN,
    _Reason,
    cpu_wait,
)
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.whatif import whatif
from nsysflow.analysis.tables.gil import GIL
from nsysflow.analysis.trace import NoteKind
from tests import tiny
from tests.analysis.findings.subjects import MS, as_recorded, repeated
from tests.oracle.model import Gil, PlainTrace, ProcessCpu, ThreadCpu, to_trace

STEPS: Final = 12
STEP_MS: Final = 20

Process = tuple[int, float, float, float | None, int | None, float | None]
"""Its CPUs; how many it used, those that it started, and all; its limit, and how long that held it
up, of the time."""


def found(analysis: nsysflow.Analysis, rule: str) -> Valued:
    """The one finding of a rule."""
    (one,) = (each for each in analysis.found.valued if each.finding.rule == rule)
    return one


def rules_of(analysis: nsysflow.Analysis) -> list[str]:
    """The rules of all findings, the first one first."""
    return [one.finding.rule for one in analysis.found.valued]


def run(waited: float, process: Process | None = (4, 1, 0, 1, None, None)) -> PlainTrace:
    """Steps of 20 ms, half of it host code that the GPU waits for; the thread waits for a CPU for
    that share of each."""
    step = tiny.opened(0, STEP_MS * MS, "step"), tiny.launch(1, 2, 1), tiny.kernel(3, 10 * MS, 1)
    rows = repeated(step, 1_000 * STEP_MS, STEPS)
    times = range(0, STEPS * STEP_MS * MS, STEP_MS * MS)
    readings = tuple(ThreadCpu(at, tiny.MAIN, at, int(at * waited)) for at in times)
    of_process = []
    if process is not None:
        cores, used, started, busy, limit, held = process
        for at in (0, times.stop):
            busy_ns, held_ns = (None if of is None else int(at * of) for of in (busy, held))
            spent = int(at * used), int(at * started), busy_ns
            of_process.append(ProcessCpu(at, tiny.PROCESS, cores, *spent, limit, held_ns))
    return replace(tiny.plain_of(*rows), thread_cpu=readings, process_cpu=tuple(of_process))


def cpu_waits(trace: PlainTrace) -> list[Finding]:
    return [*cpu_wait(JudgedReport(as_recorded(trace)))]


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        ((4, 3.7, 0, 3.8, None, None), TOO_FEW),
        ((4, 1, 2.7, 3.8, None, None), TOO_FEW),
        ((1, 0.9, 0.1, 1, None, None), ONE),
        ((4, 1, 0, 3.7, None, None), NEIGHBOUR),
        ((4, 1, 0, 3.0, None, None), UNKNOWN),
        ((4, 3.5, 0, 3.7, None, None), UNKNOWN),
        ((4, 1, 0, None, None, None), UNKNOWN),
        ((64, 2, 0, 30, 2_000, 0.05), LIMIT),
        ((4, 3.9, 0, 4, 4_000, 0.005), TOO_FEW),
        (None, UNKNOWN),
    ],
)
def test_it_says_why_the_thread_has_no_cpu(process: Process | None, reason: _Reason) -> None:
    (finding,) = cpu_waits(run(0.2, process))
    assert finding.title.endswith(reason.title)
    assert finding.change == reason.change
    assert finding.method == "bound"
    assert finding.size_ns == pytest.approx(0.2 * 10 * MS, rel=0.1)
    assert finding.evidence[1] == "that thread waited 20 % of the recording, 44.0 ms"


def test_a_wait_for_a_cpu_that_costs_nothing_is_no_finding() -> None:
    assert not cpu_waits(run(0.03))
    assert not cpu_waits(replace(run(0.2), thread_cpu=()))


def test_a_wait_for_a_cpu_is_valued_by_what_the_gpu_waits() -> None:
    valued = found(nsysflow.analyze(to_trace(run(0.2)), tiny.AS_RECORDED), "cpu-wait")
    assert 1.8 * MS < valued.alone_ns < 2.2 * MS
    assert valued.low_ns == 0


def test_host_code_behind_a_wait_for_a_cpu_saves_what_is_left_of_it() -> None:
    analysis = nsysflow.analyze(to_trace(run(0.9)), tiny.AS_RECORDED)
    cpu = found(analysis, "cpu-wait")
    first, *others = analysis.found.valued
    assert first == cpu
    assert cpu.high_ns == pytest.approx(9 * MS, rel=0.1)
    assert others[0].finding.rule in ("host-code", "data-loading")
    assert others[0].alone_ns > 9 * MS
    assert sum(one.high_ns for one in others) <= 1.2 * MS


@cache
def steps(waits_ms: float, *, sampled: bool = False, held: bool = True) -> nsysflow.Analysis:
    """Steps of 10 ms, of which the GPU computes 2 and the host needs 8 until the next launch, which
    begin with a wait for the lock."""
    until = round((2 + waits_ms) * MS)
    step: list[tiny.Row] = [
        tiny.launch(1_000, 6_000, 1),
        tiny.kernel(7_000, 2 * MS, 1),
        Gil(2 * MS, until, tiny.MAIN, "waiting"),
        Gil(MS, until, tiny.WORKER if held else tiny.MAIN, "holding"),
    ]
    if sampled:
        times = range(0, 10 * MS, MS)
        step += [tiny.sample(at, "decode", "run", thread=tiny.WORKER) for at in times]
    starts = enumerate(range(0, STEPS * 10 * MS, 10 * MS))
    ranges = (tiny.opened(at, at + 10 * MS, f"step {number}") for number, at in starts)
    return as_recorded(tiny.plain_of(*ranges, *repeated(step, 10_000, STEPS)))


@pytest.mark.parametrize("waits_ms", [1.0, 3.0, 6.0])
def test_a_wait_for_the_lock_saves_up_to_its_length_before_the_host_code_that_waits(
    waits_ms: float,
) -> None:
    """Even where the other host code takes longer; and what the lock takes, it keeps."""
    valued = found(steps(waits_ms), "gil-contention")
    assert valued.finding.size_ns == pytest.approx(waits_ms * MS, rel=0.01)
    assert valued.alone_ns == valued.high_ns == pytest.approx(waits_ms * MS, rel=0.02)
    assert valued.finding.method == "bound"
    assert "thread 3 (nameless) holds it" in valued.finding.title
    rules = rules_of(steps(waits_ms))
    assert ("host-code" in rules[rules.index("gil-contention") :]) == (waits_ms < 6)


def test_samples_name_the_code_that_holds_the_lock() -> None:
    valued = found(steps(3.0, sampled=True), "gil-contention")
    assert valued.finding.title.endswith(": decode (train.py:1) holds it")


@pytest.mark.parametrize(
    "analysis", [steps(0.3), steps(3.0, held=False)], ids=["too short", "a single thread"]
)
def test_short_waits_and_single_threads_are_no_finding(analysis: nsysflow.Analysis) -> None:
    assert "gil-contention" not in rules_of(analysis)
    assert analysis.gil.schema == GIL


@pytest.mark.parametrize(("waits_ms", "said"), [(0.2, [False]), (3.0, [True]), (6.0, [])])
def test_host_code_is_no_place_to_begin_where_most_of_it_waits(
    waits_ms: float, said: list[bool]
) -> None:
    """And where a part of it waits, it says so."""
    valued = steps(waits_ms).found.valued
    evidence = [one.finding.evidence for one in valued if one.finding.rule == "host-code"]
    assert [any("Python's lock" in each for each in texts) for texts in evidence] == said


@cache
def estimated(other: float, *, long: bool = True) -> nsysflow.Analysis:
    """Steps of 20 ms, half of it host code that the GPU waits for: one long pause, or many short
    ones. The launching thread slept for half of the step, another one ran for that share of it."""
    every = STEP_MS * MS if long else STEP_MS * MS // 50
    step: list[tiny.Row] = [tiny.opened(0, STEP_MS * MS, "step")]
    for at in range(0, STEP_MS * MS, every):
        step += [tiny.launch(at + 1, at + 2, at + 1), tiny.kernel(at + 3, at + every // 2, at + 1)]
    for at in range(0, STEP_MS * MS, MS):
        step.append(tiny.sample(at, "forward", "run"))
        step.append(tiny.sample(at, "decode", "run", thread=tiny.WORKER))
    rows = repeated(step, 1_000 * STEP_MS, STEPS)
    cpu = [
        ThreadCpu(step * STEP_MS * MS, thread, int(step * share * STEP_MS * MS), 0)
        for step in range(STEPS + 1)
        for thread, share in ((tiny.MAIN, 0.5), (tiny.WORKER, other))
    ]
    return as_recorded(replace(tiny.plain_of(*rows), thread_cpu=tuple(cpu)))


def test_an_estimate_is_a_bound_that_says_so() -> None:
    valued = found(estimated(0.4), "gil-contention")
    assert valued.finding.title == (
        "the launching thread seems to wait for Python's lock (GIL) in step:"
        " decode (train.py:1) runs meanwhile"
    )
    assert ESTIMATED in valued.finding.evidence
    assert valued.finding.changes is None
    assert valued.finding.method == "bound"
    assert valued.low_ns == 0
    # of 8 ms a step half lie in the gap
    assert valued.finding.size_ns == pytest.approx(4 * MS, rel=0.1)
    assert valued.high_ns <= valued.finding.size_ns
    assert estimated(0.4).gil["estimated"].to_list() == [True]


@pytest.mark.parametrize("other", [0.0, 0.08])
def test_a_small_estimate_is_no_finding(other: float) -> None:
    rules = rules_of(estimated(other))
    assert "gil-contention" not in rules
    assert "host-code" in rules


def test_an_estimate_comes_before_no_finding_that_saves_more() -> None:
    rules = rules_of(estimated(0.15))
    assert rules.index("host-code") < rules.index("gil-contention")
    evidence = found(estimated(0.15), "host-code").finding.evidence
    said = [each for each in evidence if "Python's lock" in each]
    assert said == ["for 15 % of it, it seems to have waited for Python's lock (table gil)"]


def test_an_estimate_hides_no_launches() -> None:
    rules = rules_of(estimated(0.15, long=False))
    assert rules.index("launch-bound") < rules.index("gil-contention")


def test_no_replay_takes_an_estimate_away() -> None:
    answer = whatif(estimated(0.4).timeline, Changes(no_gil=True))
    assert answer.before == answer.after
    assert [note.kind for note in answer.notes] == [NoteKind.LOCK_NOT_RECORDED]
    assert not whatif(steps(3.0).timeline, Changes(no_gil=True)).notes
