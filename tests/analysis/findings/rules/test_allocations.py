"""Who gives GPU memory back: PyTorch's allocator itself, or a program that empties its cache."""

from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.allocations import CHANGE, OF_ALLOCATOR, allocations
from tests.analysis.findings.subjects import US, Row, as_recorded, asked, launched, repeated
from tests.in_us import call, opened
from tests.oracle.model import Backtrace, Frame, MemoryChange
from tests.tiny import MAIN, PROCESS, plain_of

STEPS: Final = 8
EVERY: Final = 300
SEGMENT: Final = 1 << 25

FORWARD: Final = (Frame("/home/me/train.py", 40, "forward"),)
LOOP: Final = (Frame("/home/me/train.py", 90, "train"),)
EMPTYING: Final = (Frame("/usr/lib/torch/cuda/memory.py", 280, "empty_cache"), *LOOP)

Stack = tuple[Frame, ...]


def step() -> list[Row]:
    """A cudaFree and a cudaMalloc between two kernels."""
    rows: list[Row] = [opened(0, EVERY - 1, "step"), *launched(10, 20), *launched(140, 20)]
    return [*rows, call(40, 80, "cudaFree"), call(90, 130, "cudaMalloc")]


def giving_back(called: Stack | None, back: Stack | None, taken: Stack | None) -> Finding:
    """What is said of steps whose cudaFree has the stack `called`; the allocator's history has
    `back` there, and `taken` at the cudaMalloc behind it."""
    memory: list[MemoryChange] = []
    backtraces: list[Backtrace] = []
    for at in range(0, STEPS * EVERY, EVERY):
        for us, frames, left in ((50, back, 10), (100, taken, 11)):
            of = ((at + us) * US, len(memory), 0, PROCESS, "allocator", 0, 1, left * SEGMENT)
            memory.append(MemoryChange(*of, thread=MAIN, frames=frames))
        if called:
            backtraces.append(Backtrace((at + 40) * US, MAIN, called))
    plain = replace(
        plain_of(*repeated(step(), EVERY, STEPS)),
        memory=tuple(memory),
        backtraces=tuple(backtraces),
    )
    return asked(allocations, JudgedReport(as_recorded(plain)))


def test_an_allocator_that_makes_room_for_itself_has_no_cache_to_leave_full() -> None:
    one = giving_back(FORWARD, FORWARD, FORWARD)
    assert one.rule == "allocator-churn"
    assert one.title.startswith("PyTorch's allocator gives blocks back to make room: ")
    assert one.change == OF_ALLOCATOR
    assert "expandable_segments" in one.change[0]
    assert not any("empty_cache" in line for line in one.change)


@pytest.mark.parametrize(
    ("called", "back", "taken"),
    [
        pytest.param(EMPTYING, FORWARD, FORWARD, id="the same line takes it again"),
        pytest.param(LOOP, FORWARD, LOOP, id="other code takes it"),
        pytest.param(LOOP, None, None, id="no history of stacks"),
        pytest.param(None, FORWARD, FORWARD, id="who calls is not known"),
    ],
)
def test_where_a_cache_may_be_emptied_the_advice_is_to_keep_it(
    called: Stack | None, back: Stack | None, taken: Stack | None
) -> None:
    one = giving_back(called, back, taken)
    assert one.title.startswith("memory allocated and freed in the loop: ")
    assert one.change == CHANGE
