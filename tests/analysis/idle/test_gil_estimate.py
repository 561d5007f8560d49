"""Waits for Python's lock where nobody recorded them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.agreement import assert_pictures_agree
from tests.oracle.model import Frame, Gil, PlainTrace, Running, Sample, ThreadCpu
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
READER: Final = ("/opt/nsysflow/runtime/gpu_states.py", "counters")
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


def of_thread(*code: Code) -> list[Sample]:
    """What another thread ran, from Python's threading.py on."""
    begun = Frame("/usr/lib/python3.12/threading.py", 1010, "run")
    return [replace(one, frames=(one.frames[0], begun)) for one in sampled(*code, thread=WORKER)]


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


def beside(readings: Sequence[ThreadCpu]) -> PlainTrace:
    """The launching thread ran for 10 of 40 ms; these readings are of another one."""
    return replace(lock(10, 30), thread_cpu=(*read((0, 0, 0), (40, 10, 0)), *readings))


GAPS: Final[dict[str, PlainTrace]] = {
    # of 40 ms it slept 20, and half of them lie in the gap
    "it slept while another one ran": lock(20, 20),
    "no longer than it slept": lock(30, 20),
    "no longer than another one ran": lock(10, 8),
    "it ran meanwhile, as with NumPy": lock(40, 30),
    "nobody else ran": lock(10, 0),
    "it waited for a CPU": lock(20, 20, waited=15),
    "in a queue": lock(1, 30, samples=sampled(QUEUE)),
    "in a queue for half of the time": lock(19, 20, samples=sampled(QUEUE, PROGRAM)),
    "in another library's wait": lock(1, 30, samples=sampled(ZMQ)),
    "in a library that computes": lock(20, 20, samples=sampled(NUMPY)),
    "in autograd's engine": lock(1, 30, samples=sampled(ENGINE)),
    "in the engine of an older PyTorch": lock(1, 30, samples=sampled(ENGINE_BEFORE)),
    "in a file of the program": lock(20, 20, samples=sampled(OWN_QUEUE)),
    "in a queue before the middle": lock(5, 30, samples=sampled(PROGRAM, first=QUEUE)),
    "not sampled": lock(20, 20, samples=sampled(AUDIT, thread=WORKER)),
    "in a sync": lock(20, 20, rows=(*IDLE, call(1, 9_990_000, "cudaStreamSynchronize"))),
    "two others together": lock(10, 9, more=read((0, 0, 0), (40, 11, 0), thread=OTHER)),
    "another one that launches": lock(
        10,
        0,
        more=read((0, 0, 0), (40, 30, 0), thread=AUTOGRAD),
        rows=(*IDLE, launch(35 * MS, 35 * MS + 1, 3, thread=AUTOGRAD), kernel(41 * MS, 42 * MS, 3)),
    ),
    "another one of another process": beside(
        read((0, 0, 0), (40, 30, 0), thread=WORKER + (1 << 24))
    ),
    "another one read elsewhere": beside(read((40, 0, 0), (80, 30, 0), thread=WORKER)),
    "another one whose stretch is longer": beside(read((-40, 0, 0), (120, 64, 0), thread=WORKER)),
    # a row names who ran most, and what it ran when it did not wait
    "two others, of which one ran more": lock(
        20,
        12,
        samples=[*sampled(PROGRAM), *sampled(QUEUE, AUDIT, QUEUE, thread=WORKER)],
        more=read((0, 0, 0), (40, 5, 0), thread=OTHER),
    ),
    "only one thread was read": beside([]),
    "only the recording's own thread ran": lock(
        20, 20, samples=[*sampled(PROGRAM), *of_thread(READER)]
    ),
}


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
    "counted late": seconds(((400, 500), 300), ((500, 500), 300)),
    "counted as more than a half": seconds(((490, 510), 300), ((500, 500), 300)),
    "each second has its own": seconds(((100, 300), 900), ((500, 500), 900)),
    "all of them": seconds(((100, 300), 300), ((0, 100), 400)),
}

SLEPT: Final = GAPS["it slept while another one ran"]
OPERATOR: Final = Frame(None, None, "aten::mm")
ALONE: Final = (
    *(GAPS[name] for name in ("in a queue", "not sampled", "only one thread was read")),
    # nothing is estimated where the lock was recorded or operators ran
    replace(SLEPT, gil=(Gil(12 * MS, 13 * MS, WORKER, "holding"),)),
    replace(SLEPT, samples=(), running=(Running(0, 40 * MS, MAIN, (OPERATOR,)),)),
)
"""What the other threads of a report would decide."""


def test_pictures_of_the_estimate_agree_with_the_oracle() -> None:
    assert_pictures_agree(GAPS | SECONDS)
    for trace in ALONE:
        assert_pictures_agree({"alone": trace})
