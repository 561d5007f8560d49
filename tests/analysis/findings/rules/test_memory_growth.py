"""Memory that grows from step to step, and memory that only seems to."""

from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.memory_growth import memory_growth
from nsysflow.analysis.options import Options
from tests.analysis.findings.subjects import found
from tests.oracle.model import Frame, MemoryChange, PlainTrace, Running, to_trace
from tests.tiny import MAIN, PROCESS, kernel, launch, opened, plain_of

STEPS: Final = 10
LONG: Final = 1_000_000
MB: Final = 1 << 20


def program(kept: list[int]) -> PlainTrace:
    """Steps of 1 ms that all compute; step i allocates `kept[i]` bytes in a phase, and no later one
    frees them."""
    starts = range(0, STEPS * LONG, LONG)
    rows = [
        row
        for number, at in enumerate(starts, start=1)
        for row in (
            opened(at, at + LONG - 1000, "step"),
            opened(at + 10_000, at + 90_000, "metrics"),
            launch(at + 1000, at + 2000, number),
            kernel(at + 3000, at + LONG, number),
        )
    ]
    levels = [sum(kept[: step + 1]) for step in range(STEPS)]
    memory = tuple(
        MemoryChange(
            *(at + 20_000, step, 0, PROCESS, "allocator", kept[step], levels[step], levels[step]),
            thread=MAIN,
            address=step,
        )
        for step, at in enumerate(starts)
        if kept[step]
    )
    stack = (Frame(None, None, "aten::cat"), Frame("/home/me/train.py", 40, "log"))
    running = tuple(Running(at + 15_000, at + 25_000, MAIN, stack) for at in starts)
    return replace(plain_of(*rows), memory=memory, running=running)


def growth(kept: list[int]) -> list[tuple[object, ...]]:
    findings = nsysflow.analyze(to_trace(program(kept)), Options()).findings
    columns = ("title", "phase", "source", "saving_high_ns")
    return findings.filter(rule="memory-growth").select(columns).rows()


def test_a_leak_is_named_by_its_phase_and_line_and_saves_no_time() -> None:
    title = "GPU memory grows by 3.15 MB a step in step/metrics, train.py:40 in log"
    assert growth([3 * MB] * STEPS) == [(title, "step/metrics", "train.py:40 in log", 0)]


@pytest.mark.parametrize(
    "kept",
    [
        [3 * MB, 3 * MB] + [0] * (STEPS - 2),  # only while it warms up
        [1000] * STEPS,
        [3 * MB if step % 2 else 0 for step in range(STEPS)],  # not in every step
    ],
)
def test_other_growth_is_no_leak(kept: list[int]) -> None:
    subject = JudgedReport(nsysflow.analyze(to_trace(program(kept)), Options()))
    assert not found(memory_growth, subject)
