"""`cpu-wait`: the GPU waits for a thread that has no CPU, and why it has none."""

from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.cpu import (
    LIMIT,
    NEIGHBOUR,
    TOO_FEW,
    UNKNOWN,
    _Reason,
    cpu_wait,
)
from tests import tiny
from tests.oracle.model import PlainTrace, ProcessCpu, ThreadCpu, to_trace

MS: Final = 1_000_000
STEPS: Final = 12
STEP_MS: Final = 20

Process = tuple[int, float, float, float | None, int | None, float | None]
"""Its CPUs; how many it used, those that it started, and all; its limit, and how long that held it
up, of the time."""


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
    lasted = STEPS * STEP_MS * MS
    of_process = []
    if process is not None:
        cores, used, started, busy, limit, held = process
        for at in (0, lasted):
            values = (None if share is None else int(at * share) for share in (busy, held))
            busy_ns, held_ns = values
            of_process.append(
                ProcessCpu(
                    at,
                    tiny.PROCESS,
                    *(cores, int(at * used), int(at * started), busy_ns, limit, held_ns),
                )
            )
    return replace(tiny.plain_of(*rows), thread_cpu=tuple(readings), process_cpu=tuple(of_process))


def asked(trace: PlainTrace) -> Finding | None:
    analysis = nsysflow.analyze(to_trace(trace), replace(tiny.AS_RECORDED, skip=0))
    return next(cpu_wait(JudgedReport(analysis)), None)


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


def test_a_wait_that_costs_nothing_is_no_finding() -> None:
    assert asked(run(0.03)) is None
    assert asked(replace(run(0.2), thread_cpu=())) is None


def test_it_is_valued_by_what_the_gpu_waits() -> None:
    analysis = nsysflow.analyze(to_trace(run(0.2)), tiny.AS_RECORDED)
    (valued,) = (each for each in analysis.found.valued if each.finding.rule == "cpu-wait")
    assert 1.8 * MS < valued.high_ns < 2.2 * MS
    assert valued.low_ns == 0
