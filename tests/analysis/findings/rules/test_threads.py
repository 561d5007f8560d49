"""The GPU waits for a thread that has no CPU, or that waits for Python's lock."""

from dataclasses import replace
from functools import cache
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.cpu import (
    LIMIT,
    NEIGHBOUR,
    TOO_FEW,
    UNKNOWN,
    _Reason,
    cpu_wait,
)
from nsysflow.analysis.findings.rules.gil import ESTIMATED
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.whatif import whatif
from nsysflow.analysis.tables.gil import GIL
from nsysflow.analysis.trace import NoteKind
from tests import tiny
from tests.analysis.findings.subjects import MS
from tests.oracle.model import Gil, PlainTrace, ProcessCpu, ThreadCpu, to_trace

STEPS: Final = 12
STEP_MS: Final = 20

Process = tuple[int, float, float, float | None, int | None, float | None]
"""Its CPUs; how many it used, those that it started, and all; its limit, and how long that held it
up, of the time."""


def analysed(trace: PlainTrace) -> nsysflow.Analysis:
    return nsysflow.analyze(to_trace(trace), replace(tiny.AS_RECORDED, skip=0))


def found(analysis: nsysflow.Analysis, rule: str) -> Valued | None:
    return next((one for one in analysis.found.valued if one.finding.rule == rule), None)


def run(waited: float, process: Process | None = (4, 1, 0, 1, None, None)) -> PlainTrace:
    """Steps of 20 ms, half of it host code that the GPU waits for; the thread waits for a CPU for
    that share of each."""
    rows: list[tiny.Row] = []
    readings = []
    for step in range(STEPS):
        at = step * STEP_MS * MS
        rows += [tiny.opened(at, at + STEP_MS * MS, "step"), tiny.launch(at + 1, at + 2, step + 1)]
        rows.append(tiny.kernel(at + 3, at + 10 * MS, step + 1))
        readings.append(ThreadCpu(at, tiny.MAIN, at, int(at * waited)))
    of_process = []
    if process is not None:
        cores, used, started, busy, limit, held = process
        for at in (0, STEPS * STEP_MS * MS):
            busy_ns, held_ns = (None if of is None else int(at * of) for of in (busy, held))
            times = int(at * used), int(at * started), busy_ns
            of_process.append(ProcessCpu(at, tiny.PROCESS, cores, *times, limit, held_ns))
    return replace(tiny.plain_of(*rows), thread_cpu=tuple(readings), process_cpu=tuple(of_process))


def asked(trace: PlainTrace) -> Finding | None:
    return next(cpu_wait(JudgedReport(analysed(trace))), None)


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        ((4, 3.7, 0, 3.8, None, None), TOO_FEW),
        ((4, 1, 2.7, 3.8, None, None), TOO_FEW),
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
    finding = asked(run(0.2, process))
    assert finding is not None
    assert finding.title.endswith(reason.title)
    assert finding.change == reason.change
    assert finding.method == "bound"
    assert finding.size_ns == pytest.approx(0.2 * 10 * MS, rel=0.1)
    assert finding.evidence[1] == "that thread waited 20 % of the recording, 44.0 ms"


def test_a_wait_for_a_cpu_that_costs_nothing_is_no_finding() -> None:
    assert asked(run(0.03)) is None
    assert asked(replace(run(0.2), thread_cpu=())) is None


def test_a_wait_for_a_cpu_is_valued_by_what_the_gpu_waits() -> None:
    valued = found(nsysflow.analyze(to_trace(run(0.2)), tiny.AS_RECORDED), "cpu-wait")
    assert valued is not None
    assert 1.8 * MS < valued.alone_ns < 2.2 * MS
    assert valued.low_ns == 0


@cache
def steps(waits_ms: float, *, sampled: bool = False, held: bool = True) -> nsysflow.Analysis:
    """Steps of 10 ms, of which the GPU computes 2 and the host needs 8 until the next launch, which
    begin with a wait for the lock."""
    rows: list[tiny.Row] = []
    for step in range(STEPS):
        at, until = step * 10 * MS, round((step * 10 + 2 + waits_ms) * MS)
        rows += [tiny.opened(at, at + 10 * MS, f"step {step}")]
        rows += [tiny.launch(at + 1_000, at + 6_000, step + 1)]
        rows.append(tiny.kernel(at + 7_000, at + 2 * MS, step + 1))
        rows.append(Gil(at + 2 * MS, until, tiny.MAIN, "waiting"))
        rows.append(Gil(at + MS, until, tiny.WORKER if held else tiny.MAIN, "holding"))
        if sampled:
            times = range(at, at + 10 * MS, MS)
            rows += [tiny.sample(t, "decode", "run", thread=tiny.WORKER) for t in times]
    return analysed(tiny.plain_of(*rows))


@pytest.mark.parametrize("waits_ms", [1.0, 3.0, 6.0])
def test_a_wait_for_the_lock_saves_up_to_its_length_before_the_host_code_that_waits(
    waits_ms: float,
) -> None:
    """Even where the other host code takes longer; and what the lock takes, it keeps."""
    valued = found(steps(waits_ms), "gil-contention")
    assert valued is not None
    assert valued.finding.size_ns == pytest.approx(waits_ms * MS, rel=0.01)
    assert valued.alone_ns == valued.high_ns == pytest.approx(waits_ms * MS, rel=0.02)
    assert valued.finding.method == "bound"
    assert "thread 3 (nameless) holds it" in valued.finding.title
    rules = [one.finding.rule for one in steps(waits_ms).found.valued]
    assert ("host-code" in rules[rules.index("gil-contention") :]) == (waits_ms < 6)


def test_samples_name_the_code_that_holds_the_lock() -> None:
    valued = found(steps(3.0, sampled=True), "gil-contention")
    assert valued is not None
    assert valued.finding.title.endswith(": decode (train.py:1) holds it")


@pytest.mark.parametrize(
    "analysis", [steps(0.3), steps(3.0, held=False)], ids=["too short", "a single thread"]
)
def test_short_waits_and_single_threads_are_no_finding(analysis: nsysflow.Analysis) -> None:
    assert found(analysis, "gil-contention") is None
    assert analysis.gil.schema == GIL


@pytest.mark.parametrize(("waits_ms", "said"), [(0.2, [False]), (3.0, [True]), (6.0, [])])
def test_host_code_is_no_place_to_begin_where_most_of_it_waits(
    waits_ms: float, said: list[bool]
) -> None:
    """And where a part of it waits, it says so."""
    valued = found(steps(waits_ms), "host-code")
    evidence = [] if valued is None else [valued.finding.evidence]
    assert [any("Python's lock" in each for each in texts) for texts in evidence] == said


@cache
def estimated(other: float, *, long: bool = True) -> nsysflow.Analysis:
    """Steps of 20 ms, half of it host code that the GPU waits for: one long pause, or many short
    ones. The launching thread slept for half of the step, another one ran for that share of it."""
    rows: list[tiny.Row] = []
    pauses = 1 if long else 50
    for step in range(STEPS):
        at = step * STEP_MS * MS
        rows.append(tiny.opened(at, at + STEP_MS * MS, "step"))
        for part in range(pauses):
            number, then = step * pauses + part + 1, at + part * STEP_MS * MS // pauses
            rows.append(tiny.launch(then + 1, then + 2, number))
            rows.append(tiny.kernel(then + 3, then + STEP_MS * MS // pauses // 2, number))
    times = range(0, STEPS * STEP_MS * MS, MS)
    rows += [tiny.sample(at, "forward", "run") for at in times]
    rows += [tiny.sample(at, "decode", "run", thread=tiny.WORKER) for at in times]
    cpu = [
        ThreadCpu(step * STEP_MS * MS, thread, int(step * share * STEP_MS * MS), 0)
        for step in range(STEPS + 1)
        for thread, share in ((tiny.MAIN, 0.5), (tiny.WORKER, other))
    ]
    return analysed(replace(tiny.plain_of(*rows), thread_cpu=tuple(cpu)))


def test_an_estimate_is_a_bound_that_says_so() -> None:
    valued = found(estimated(0.4), "gil-contention")
    assert valued is not None
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
    analysis = estimated(other)
    assert found(analysis, "gil-contention") is None
    assert found(analysis, "host-code") is not None


def test_an_estimate_comes_before_no_finding_that_saves_more() -> None:
    rules = [one.finding.rule for one in estimated(0.15).found.valued]
    assert rules.index("host-code") < rules.index("gil-contention")
    host_code = found(estimated(0.15), "host-code")
    assert host_code is not None
    said = [each for each in host_code.finding.evidence if "Python's lock" in each]
    assert said == ["for 15 % of it, it seems to have waited for Python's lock (table gil)"]


def test_an_estimate_hides_no_launches() -> None:
    rules = [one.finding.rule for one in estimated(0.15, long=False).found.valued]
    assert rules.index("launch-bound") < rules.index("gil-contention")


def test_no_replay_takes_an_estimate_away() -> None:
    answer = whatif(estimated(0.4).timeline, Changes(no_gil=True))
    assert answer.before == answer.after
    assert [note.kind for note in answer.notes] == [NoteKind.LOCK_NOT_RECORDED]
    assert not whatif(steps(3.0).timeline, Changes(no_gil=True)).notes
