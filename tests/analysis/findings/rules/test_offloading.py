"""Activations that the host keeps for the backward pass, and copies that only look like it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.copies import blocking_copies, exposed_copy, small_copies
from nsysflow.analysis.findings.rules.offloading import NOT_KNOWN, PIN, offloaded_activations
from nsysflow.analysis.findings.rules.waits import waits
from tests import tiny
from tests.analysis.findings.rules.test_memory import GB, changes
from tests.analysis.findings.subjects import US, Row, asked, found, launched
from tests.oracle.model import Copy, GpuMemory, MemoryChange, to_trace

STEPS: Final = 8
LENGTH_US: Final = 10_000
EVERY_US: Final = 400
"""From one copy to the next."""

MB: Final = 10**6

Move = tuple[str, str, int]
"""In which pass a copy is launched, its direction, and its bytes."""

SIZES: Final = (40 * MB, 10 * MB, 10 * MB, 20 * MB, 30 * MB)
OUT: Final[list[Move]] = [("forward", "DtoH", each) for each in SIZES]
BACK: Final[list[Move]] = [("backward", "HtoD", each) for each in reversed(SIZES)]


def moving(at: int, move: Move, *, us: int, memory: str, by_thread: bool) -> Iterator[Row]:
    """At so many us 30 us of Python and a copy; what goes to the host is waited for. Autograd's
    thread launches the backward pass, or a range has it."""
    phase, way, moved = move
    thread = tiny.AUTOGRAD if phase == "backward" and by_thread else tiny.MAIN
    number, name = at + 30, "cudaMemcpyAsync"
    begin = number * US
    yield tiny.launch(begin, begin + 5 * US, number, name=name, thread=thread)
    if phase == "backward" and not by_thread:
        yield tiny.opened(begin - US, begin + 6 * US, "backward")
    ran = begin + 10 * US
    ends = (memory, "device") if way == "HtoD" else ("device", memory)
    op = tiny.copy(ran, ran + us * US, number, way, *ends)
    yield replace(op, copy=Copy(moved, way, *ends))
    if way == "DtoH":
        yield tiny.call(begin + 6 * US, ran + (us + 5) * US, "cudaStreamSynchronize", thread=thread)


def rows_of(
    moves: Sequence[Move], *, us: int, memory: str, by_thread: bool, reads: bool
) -> Iterator[Row]:
    for start in range(0, STEPS * LENGTH_US, LENGTH_US):
        yield tiny.opened(start * US, (start + LENGTH_US) * US - 1, "step")
        yield from launched(start + 5, 50)
        for at, move in enumerate(moves):
            begin = start + 100 + EVERY_US * at
            yield from moving(begin, move, us=us, memory=memory, by_thread=by_thread)
            # a kernel behind each: nobody waits for a copy without one
            yield from launched(begin + us + 60, 40)
        if reads:
            read = ("", "DtoH", 8)
            yield from moving(start + 9_000, read, us=2, memory="pinned", by_thread=True)
        yield from launched(start + 9_400, 400)


def training(
    *moves: Move,
    us: int = 200,
    memory: str = "pinned",
    by_thread: bool = True,
    reads: bool = False,
    used: Sequence[MemoryChange] = (),
) -> JudgedReport:
    """Steps of 10 ms that copy in this order, and may read a value back at their end."""
    rows = rows_of(moves, us=us, memory=memory, by_thread=by_thread, reads=reads)
    plain = replace(
        tiny.plain_of(*rows),
        memory=tuple(used),
        gpu_memory=(GpuMemory(tiny.PROCESS, 0, 80 * GB),) if used else (),
    )
    options = replace(tiny.AS_RECORDED, skip=0)
    return JudgedReport(nsysflow.analyze(to_trace(plain), options))


@pytest.mark.parametrize("by_thread", [True, False])
def test_what_goes_to_the_host_and_comes_back_in_backward_is_named(by_thread: bool) -> None:
    subject = training(*OUT, *BACK, by_thread=by_thread)
    one = asked(offloaded_activations, subject)
    assert one.title == (
        "activations go to the host and come back in backward: 110 MB a step in step"
    )
    assert one.evidence[:2] == (
        "5 tensors a step go there, and as many bytes come back in the backward pass",
        "nothing computes for 2.00 ms a step while they are copied",
    )
    assert one.evidence[-1] == NOT_KNOWN
    assert one.changes is not None
    assert one.changes.scaled == (("memcpy DtoH", 0.0), ("memcpy HtoD", 0.0))
    assert [removal.kind for removal in one.changes.removed] == ["sync"]
    assert one.method == "bound"


def test_it_is_the_only_finding_about_these_copies_and_waits() -> None:
    subject = training(*OUT, *BACK)
    others = (waits, blocking_copies, exposed_copy, small_copies)
    assert not [one for rule in others for one in found(rule, subject)]
    first, *_ = find(subject).valued
    assert first.finding.rule == "offloaded-activations"
    # ten copies of 200 us, and what the host takes to launch them while the GPU waits for it
    assert 2_000 * US < first.high_ns <= first.finding.at_most_ns


def test_another_wait_is_left_to_its_own_finding() -> None:
    subject = training(*OUT, *BACK, reads=True)
    assert found(offloaded_activations, subject)
    assert len(subject.stalls) == subject.steps
    assert {one.rule for one in found(waits, subject)} == {"scalar-readback"}


def test_pageable_copies_are_advised_to_be_pinned() -> None:
    subject = training(*OUT, *BACK, memory="pageable")
    one = asked(offloaded_activations, subject)
    assert one.change[-1] == PIN
    assert not found(blocking_copies, subject)


def test_the_memory_that_is_free_is_said_where_it_is_known() -> None:
    steps = range(0, STEPS * LENGTH_US * US, LENGTH_US * US)
    used = changes(
        (-9, 1, GB),
        *(each for at in steps for each in ((at + US, 2, 3 * GB), (at + 9_000 * US, 2, -3 * GB))),
    )
    one = asked(offloaded_activations, training(*OUT, *BACK, used=used))
    assert (
        one.evidence[-1]
        == "on the GPU they would take 110 MB, and 70.0 GB of 80.0 GB stay free there"
    )


PARAMETERS: Final[list[Move]] = [
    *(("forward", "HtoD", each) for each in SIZES),
    *BACK,
    *(("backward", "DtoH", each) for each in SIZES),
]


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(
            training(*OUT, *(("backward", "HtoD", size + 1) for _, _, size in BACK)),
            id="other sizes come back",
        ),
        pytest.param(training(*BACK, *OUT), id="back before out"),
        pytest.param(
            training(*OUT, *(("forward", "HtoD", size) for _, _, size in BACK)),
            id="no backward pass",
        ),
        pytest.param(training(*OUT, *BACK, us=20), id="a small share of the step"),
        pytest.param(training(*OUT[:3], *BACK[-3:]), id="few copies"),
        pytest.param(training(*PARAMETERS), id="parameters come, gradients go"),
        pytest.param(
            training(*PARAMETERS[:5], *OUT, *BACK), id="layers that come, go and come again"
        ),
        pytest.param(
            training(*OUT, *BACK, ("backward", "HtoD", 50 * MB)), id="much that never went"
        ),
    ],
)
def test_nothing_is_said_of_activations(subject: JudgedReport) -> None:
    assert not found(offloaded_activations, subject)
    assert len(subject.copies) == len(subject.tables.copies)
