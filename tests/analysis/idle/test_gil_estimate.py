"""Waits for Python's lock where nobody recorded them: pictures, and the figures of some."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

import nsysflow
from tests.agreement import assert_pictures_agree
from tests.oracle.model import Frame, Gil, PlainTrace, Running, Sample, ThreadCpu, to_trace
from tests.tiny import AUTOGRAD, MAIN, OTHER, WORKER, Row, call, kernel, launch, opened, plain_of

MS: Final = 1_000_000

IDLE: Final[tuple[Row, ...]] = (
    opened(0, 40 * MS, "step"),
    launch(0, 1, 1),
    kernel(2, 10 * MS, 1),
    launch(30 * MS, 30 * MS + 1, 2),
    kernel(30 * MS + 2, 40 * MS, 2),
)
"""A gap with 20 ms of host code, from 10 ms on, in a trace of 40 ms."""

PROGRAM: Final = ("/home/me/train.py", "step")
AUDIT: Final = ("/home/me/audit.py", "redact")
QUEUE: Final = ("/usr/lib/python3.12/queue.py", "get")
NUMPY: Final = ("/usr/lib/python3.12/site-packages/numpy/linalg.py", "svd")
ZMQ: Final = ("/usr/lib/python3.12/site-packages/zmq/sugar/poll.py", "poll")
ENGINE: Final = ("/opt/torch/autograd/graph.py", "_engine_run_backward")
ENGINE_BEFORE: Final = ("/opt/torch/autograd/__init__.py", "backward")
OWN_QUEUE: Final = ("/home/me/queue.py", "get")

Code = tuple[str, str]


def sampled(
    *code: Code, thread: int = MAIN, until: int = 40, first: Code | None = None
) -> list[Sample]:
    """What a thread ran, one sample a ms by turns; before 20 ms `first` where that is given."""
    return [
        Sample(at * MS, thread, (Frame(file, 7, function), Frame("/home/me/train.py", 1, "main")))
        for at in range(until)
        for file, function in [first if first and at < 20 else code[at % len(code)]]
    ]


def read(*readings: tuple[float, float, float], thread: int = MAIN) -> list[ThreadCpu]:
    """When, what it ran and what it waited, in ms."""
    return [ThreadCpu(int(at * MS), thread, int(r * MS), int(w * MS)) for at, r, w in readings]


def lock(
    ran: float,
    other: float,
    *,
    waited: float = 0,
    samples: Sequence[Sample] | None = None,
    more: Sequence[ThreadCpu] = (),
    rows: Sequence[Row] = IDLE,
) -> PlainTrace:
    """The launching thread ran for so many of 40 ms, another one for so many."""
    stacks = [*sampled(PROGRAM), *sampled(AUDIT, thread=WORKER)] if samples is None else samples
    cpu = read((0, 0, 0), (40, ran, waited)) + read((0, 0, 0), (40, other, 0), thread=WORKER)
    return replace(plain_of(*rows), samples=tuple(stacks), thread_cpu=(*cpu, *more))


GAPS: Final[dict[str, tuple[PlainTrace, float | None]]] = {
    # of 40 ms it slept 20, and half of them lie in the gap
    "it slept while another one ran": (lock(20, 20), 10),
    "no longer than it slept": (lock(30, 20), 5),
    "no longer than another one ran": (lock(10, 8), 4),
    "it ran meanwhile, as with NumPy": (lock(40, 30), 0),
    "nobody else ran": (lock(10, 0), 0),
    "it waited for a CPU": (lock(20, 20, waited=15), 2.5),
    "in a queue": (lock(1, 30, samples=sampled(QUEUE)), None),
    "in a queue for half of the time": (lock(19, 20, samples=sampled(QUEUE, PROGRAM)), 0.5),
    "in another library's wait": (lock(1, 30, samples=sampled(ZMQ)), None),
    "in a library that computes": (lock(20, 20, samples=sampled(NUMPY)), 10),
    "in autograd's engine": (lock(1, 30, samples=sampled(ENGINE)), None),
    "in the engine of an older PyTorch": (lock(1, 30, samples=sampled(ENGINE_BEFORE)), None),
    "in a file of the program": (lock(20, 20, samples=sampled(OWN_QUEUE)), 10),
    "in a queue before the middle": (lock(5, 30, samples=sampled(PROGRAM, first=QUEUE)), 7.5),
    "not sampled": (lock(20, 20, samples=sampled(AUDIT, thread=WORKER)), None),
    "in a sync": (
        lock(20, 20, rows=(*IDLE, call(1, 9_990_000, "cudaStreamSynchronize"))),
        20 * 20 / 30 * 10 / 20,
    ),
    "two others together": (
        lock(10, 9, more=read((0, 0, 0), (40, 11, 0), thread=OTHER)),
        10,
    ),
    "another one that launches": (
        lock(
            10,
            0,
            more=read((0, 0, 0), (40, 30, 0), thread=AUTOGRAD),
            rows=(
                *IDLE,
                launch(35 * MS, 35 * MS + 1, 3, thread=AUTOGRAD),
                kernel(41 * MS, 42 * MS, 3),
            ),
        ),
        0,
    ),
    "another one of another process": (
        replace(
            lock(10, 30),
            thread_cpu=(
                *read((0, 0, 0), (40, 10, 0)),
                *read((0, 0, 0), (40, 30, 0), thread=WORKER + (1 << 24)),
            ),
        ),
        None,
    ),
    "another one read elsewhere": (
        replace(
            lock(10, 30),
            thread_cpu=(
                *read((0, 0, 0), (40, 10, 0)),
                *read((40, 0, 0), (80, 30, 0), thread=WORKER),
            ),
        ),
        None,
    ),
    "another one whose stretch is longer": (
        replace(
            lock(10, 30),
            thread_cpu=(
                *read((0, 0, 0), (40, 10, 0)),
                *read((-40, 0, 0), (120, 64, 0), thread=WORKER),
            ),
        ),
        8,
    ),
    "only one thread was read": (
        replace(lock(10, 30), thread_cpu=tuple(read((0, 0, 0), (40, 10, 0)))),
        None,
    ),
}


@pytest.mark.parametrize("name", GAPS)
def test_the_estimate_of_a_gap(name: str) -> None:
    trace, ms = GAPS[name]
    found = nsysflow.analyze(to_trace(trace))
    gil_ns = found.gaps["gil_ns"][0]
    if ms is None:
        assert gil_ns is None
        assert found.gil.is_empty()
    else:
        # the last sample stands for 1 ms more than the others
        assert gil_ns / MS == pytest.approx(ms, rel=0.07, abs=0.25 if ms else 0)
        assert found.gil["gil_ns"].sum() == found.gaps["gil_ns"].sum()
        assert gil_ns + found.gaps["descheduled_ns"][0] <= found.gaps["host_ns"][0]


def test_pictures_of_the_estimate_agree_with_the_oracle() -> None:
    assert_pictures_agree({name: trace for name, (trace, _) in GAPS.items()})
    for name in ("in a queue", "not sampled", "only one thread was read"):
        assert_pictures_agree({"alone": GAPS[name][0]})


def test_a_row_names_who_ran_most_and_what_it_ran_when_it_did_not_wait() -> None:
    stacks = [*sampled(PROGRAM), *sampled(QUEUE, AUDIT, QUEUE, thread=WORKER)]
    more = read((0, 0, 0), (40, 5, 0), thread=OTHER)
    found = nsysflow.analyze(to_trace(lock(20, 12, samples=stacks, more=more)))
    (row,) = found.gil.to_dicts()
    names: dict[str, Any] = {key: row[key] for key in ("thread", "holder", "phase", "function")}
    assert names == {"thread": 1, "holder": 3, "phase": "step", "function": "redact"}
    assert row["source"] == "audit.py:7 in redact"
    assert row["gil_ns"] == pytest.approx(17 / 2 * MS, rel=0.03)


def test_nothing_is_estimated_where_the_lock_was_recorded_or_operators_ran() -> None:
    trace, _ = GAPS["it slept while another one ran"]
    recorded = replace(trace, gil=(Gil(12 * MS, 13 * MS, WORKER, "holding"),))
    assert nsysflow.analyze(to_trace(recorded)).gaps["gil_ns"].to_list() == [0]
    stretch = Running(0, 40 * MS, MAIN, (Frame(None, None, "aten::mm"),))
    operators = replace(trace, samples=(), running=(stretch,))
    assert nsysflow.analyze(to_trace(operators)).gaps["gil_ns"].to_list() == [None]


def seconds(*of: tuple[tuple[float, float], float]) -> PlainTrace:
    """A gap of host code that is seconds long, read twice a second: in each half the launching
    thread ran so many ms, in all of the second another one so many."""
    ran, other, mine, others = 0.0, 0.0, [(0.0, 0.0, 0.0)], [(0.0, 0.0, 0.0)]
    for second, (halves, more) in enumerate(of):
        for half, ms in enumerate(halves):
            ran += ms
            mine.append((1000 * second + 500 * (half + 1), ran, 0))
        other += more
        others.append((1000 * second + 1000, other, 0))
    end = 1000 * len(of) * MS
    rows = launch(0, 1, 1), kernel(2, 3, 1), launch(end - 1, end, 2), kernel(end, end + 1, 2)
    frames = (Frame(*PROGRAM[:1], 7, PROGRAM[1]),)
    samples = [Sample(at, MAIN, frames) for at in range(0, end, 10 * MS)]
    cpu = *read(*mine), *read(*others, thread=WORKER)
    return replace(plain_of(*rows), samples=tuple(samples), thread_cpu=cpu)


SECONDS: Final = {
    # ticks of the kernel, and not sleep: what one half seems to sleep the other one ran too long
    "counted late": (seconds(((400, 500), 300), ((500, 500), 300)), 100),
    "counted as more than a half": (seconds(((490, 510), 300), ((500, 500), 300)), 0),
    "each second has its own": (seconds(((100, 300), 900), ((500, 500), 900)), 600),
    "all of them": (seconds(((100, 300), 300), ((0, 100), 400)), 700),
}


@pytest.mark.parametrize("name", SECONDS)
def test_stretches_of_a_second_are_taken_together(name: str) -> None:
    trace, ms = SECONDS[name]
    (gil_ns,) = nsysflow.analyze(to_trace(trace)).gaps["gil_ns"]
    assert gil_ns / MS == pytest.approx(ms, abs=0.1)


def test_seconds_agree_with_the_oracle() -> None:
    assert_pictures_agree({name: trace for name, (trace, _) in SECONDS.items()})
