"""`clock-drop`: what a lower clock costs, and why it is lower."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.clock import clock_drop
from tests import tiny
from tests.analysis.findings.subjects import MS, as_recorded, found, one_gpu
from tests.oracle.model import GpuState, PlainTrace, to_trace

STEPS: Final = 30

Clock = Callable[[int], int]


def run(clock: Clock, *, limit: str = "none", memory_bound: bool = False) -> PlainTrace:
    """Steps that compute 50 ms at 1980 MHz, and wait for it; the clock is read once in each."""
    rows: list[tiny.Row] = []
    states, at = [], 0
    for step in range(STEPS):
        mhz = clock(step)
        compute = 50 * MS if memory_bound else 50 * MS * 1980 // mhz
        length = compute + MS
        rows += [tiny.opened(at, at + length, "step"), tiny.launch(at + 1, at + 2, step + 1)]
        rows.append(tiny.kernel(at + 3, at + 3 + compute, step + 1))
        rows.append(tiny.call(at + 4, at + 4 + compute, "cudaDeviceSynchronize"))
        why = limit if mhz < 1980 else "none"
        states.append(GpuState(at, 0, mhz, 2619, 700, 80, why))
        at += length
    return replace(tiny.plain_of(*rows), gpu_states=tuple(states))


def falls(step: int) -> int:
    return 1980 if step < 15 else 1530


def held(step: int) -> int:
    return 1530


def found_in(trace: PlainTrace) -> list[Finding]:
    return found(clock_drop, JudgedReport(as_recorded(trace)))


def planned(trace: PlainTrace) -> Valued:
    valued = nsysflow.analyze(to_trace(trace), tiny.AS_RECORDED).found.valued
    (one,) = (each for each in valued if each.finding.rule == "clock-drop")
    return one


LOST_NS: Final = (50 * MS * 1980 // 1530 - 50 * MS) * 14 // 29
"""What 14 of 29 steps lose where the clock falls."""
HELD_NS: Final = 50 * MS * 1980 // 1530 * (1 - 1530 / 1980)
"""What a step loses where the clock is held down."""


@pytest.mark.parametrize(
    ("limit", "said", "first"),
    [
        ("power_cap", " (power cap)", "see the power limit"),
        ("thermal", " (heat)", "cool it"),
        ("none", "", "see what NVML says while it runs"),
    ],
)
def test_steps_that_are_slower_at_a_lower_clock_cost_what_they_lost(
    limit: str, said: str, first: str
) -> None:
    (one,) = found_in(run(falls, limit=limit))
    assert one.title == f"the GPU's clock falls from 1980 to 1530 MHz in 14 of 29 steps{said}"
    assert one.change[0].startswith(first)
    assert one.size_ns == one.at_most_ns == pytest.approx(LOST_NS, rel=1e-3)
    assert one.evidence[0].startswith("clock 1980 → 1530 MHz: 23 % of these steps' compute")
    assert "700 W, 80 °C" in one.evidence[1]


def with_peak(trace: PlainTrace) -> PlainTrace:
    """The same, once seen at 1980 MHz before its first step."""
    return replace(trace, gpu_states=(GpuState(-5_000 * MS, 0, 1980), *trace.gpu_states))


def reads_0(trace: PlainTrace) -> PlainTrace:
    asleep = (replace(state, sm_clock_mhz=0) for state in trace.gpu_states)
    return with_peak(replace(trace, gpu_states=tuple(asleep)))


@pytest.mark.parametrize(
    "trace",
    [
        run(lambda step: 1980),
        run(lambda step: 1980 - 15 * (step % 2)),
        run(falls, memory_bound=True),
        run(lambda step: 1200 + 26 * min(step, 30), memory_bound=True),
        run(held, limit="power_cap"),
        *(reads_0(run(clock, limit="thermal")) for clock in (held, falls)),
    ],
)
def test_a_clock_that_slows_no_step_or_reads_0_is_no_finding(trace: PlainTrace) -> None:
    assert not found_in(trace)


@pytest.mark.parametrize(
    ("limit", "said"),
    [("thermal", "heat"), ("power_brake", "power brake"), ("hardware", "hardware")],
)
def test_a_clock_that_a_fault_holds_down_is_a_bound(limit: str, said: str) -> None:
    (one,) = found_in(with_peak(run(held, limit=limit)))
    assert one.title == f"{said} holds the GPU's clock at 1530 of 1980 MHz"
    assert one.size_ns == pytest.approx(HELD_NS, rel=0.02)


@pytest.mark.parametrize("limit", ["power_cap", "setting", "idle"])
def test_a_clock_that_somebody_holds_down_on_purpose_is_no_finding(limit: str) -> None:
    assert not found_in(with_peak(run(held, limit=limit)))


@pytest.mark.parametrize(
    ("trace", "lost_ns", "off"),
    [
        (run(falls, limit="power_cap"), LOST_NS, 0.1),
        (with_peak(run(held, limit="thermal")), HELD_NS, 0.02),
    ],
)
def test_in_a_plan_it_is_a_bound(trace: PlainTrace, lost_ns: float, off: float) -> None:
    valued = planned(trace)
    assert (valued.low_ns, valued.finding.method) == (0, "bound")
    assert valued.high_ns == pytest.approx(lost_ns, rel=off)


def test_windows_without_steps_may_be_held_down_too() -> None:
    states = GpuState(0, 0, 1980), GpuState(1, 0, 1530, limit="thermal")
    ran = tiny.plain_of(tiny.launch(0, 1, 1), tiny.kernel(2, 500 * MS, 1))
    trace = replace(ran, gpu_states=states, devices=one_gpu("NVIDIA H200", 132))
    assert planned(trace).finding.title == "heat holds the GPU's clock at 1530 of 1980 MHz"
