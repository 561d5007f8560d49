"""Waits of launching threads for a CPU, in gaps and in all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import nsysflow
from nsysflow.analysis.options import Options
from tests.agreement import assert_pictures_agree
from tests.analysis.idle.test_gil_estimate import IDLE as IN_A_STEP
from tests.analysis.idle.test_gil_estimate import MS, read
from tests.oracle.model import PlainTrace, ProcessCpu, ThreadCpu, to_trace
from tests.tiny import AUTOGRAD, MAIN, PROCESS, Row, call, kernel, launch, plain_of

IDLE: Final = IN_A_STEP[1:]
"""A gap with 20 ms of host code, from 10 ms on."""

SYNC: Final = call(5 * MS, 10 * MS, "cudaStreamSynchronize")
"""The gap is charged with its 5 ms, so that 15 ms of host code are left."""


def waits(*rows: Row, readings: Sequence[ThreadCpu], more: Any = ()) -> PlainTrace:
    return replace(plain_of(*rows), thread_cpu=tuple(readings), process_cpu=tuple(more))


def process(at: int, *values: Any) -> ProcessCpu:
    return ProcessCpu(at * MS, PROCESS, *values)


WHOLE: Final = read((0, 0, 0), (40, 30, 8))

READINGS: Final[dict[str, Sequence[ThreadCpu]]] = {
    "each stretch has its own": read((0, 0, 0), (20, 20, 0), (40, 30, 10)),
    "in any order": WHOLE[::-1],
    "before the recording": read((-40, 0, 0), (40, 30, 8)),
    "one reading": WHOLE[:1],
    "two at one instant": read((20, 0, 0), (20, 9, 9)),
    "what it ran fell": read((0, 9, 0), (40, 3, 8)),
    "its wait fell": read((0, 0, 9), (20, 3, 1), (40, 3, 3)),
    "elsewhere": read((0, 0, 0), (9, 1, 8)),
    "another thread": read((0, 0, 0), (40, 0, 8), thread=AUTOGRAD),
    "times that no clock has": (ThreadCpu(-(1 << 62), MAIN, 0, 0), *WHOLE[1:]),
}

PICTURES: Final[dict[str, PlainTrace]] = {
    **{name: waits(*IDLE, readings=readings) for name, readings in READINGS.items()},
    "spread over all of the stretch": waits(*IDLE, readings=WHOLE),
    "none of it in syncs": waits(*IDLE, SYNC, readings=WHOLE),
    "no longer than the time outside syncs": waits(
        *IDLE, SYNC, readings=read((0, 0, 0), (40, 0, 40))
    ),
    "none of it in short calls or between them": waits(
        *IDLE,
        *(call(at * 40_000, at * 40_000 + 20_000, "cudaMemcpyAsync") for at in range(1, 250)),
        readings=WHOLE,
    ),
    "some of it in a long call": waits(
        *IDLE,
        call(5 * MS, 9 * MS, "cudaLaunchKernel"),
        call(9 * MS, 10 * MS, "cuInit"),
        readings=WHOLE,
    ),
    "no host code": waits(
        launch(0, 1, 1), launch(2, 3, 2), kernel(4, 9, 1), kernel(20, 30, 2), readings=WHOLE
    ),
    "two threads in one gap": waits(
        *IDLE[:2],
        call(15 * MS, 16 * MS, "cudaFuncGetAttributes", thread=AUTOGRAD),
        launch(30 * MS, 30 * MS + 1, 2, thread=AUTOGRAD),
        IDLE[3],
        readings=(*WHOLE, *read((0, 0, 0), (20, 5, 10), (40, 20, 10), thread=AUTOGRAD)),
    ),
    "a process": waits(
        *IDLE,
        readings=WHOLE,
        more=[
            process(0, 4, 5 * MS, 0, 100 * MS, 2_500, 0),
            process(40, 4, 85 * MS, 40 * MS, 240 * MS, 2_500, 7 * MS),
        ],
    ),
    "a process whose counters fell": waits(
        *IDLE,
        readings=WHOLE,
        more=[process(0, 4, 5, 3, 9, None, 4), process(40, 2, 4, 2, 7, None, 3)],
    ),
    "a process read once": waits(*IDLE, readings=WHOLE, more=[process(3, 4, 5, 3)]),
    "what a process lacks": waits(
        *IDLE,
        readings=WHOLE,
        more=[process(9, 1, 5, 0, 7, 500, 4), process(40, 1, 9, 0), process(40, 1, 9, 0, 8)],
    ),
}


def test_pictures_of_waits_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


def test_a_gap_that_is_cut_keeps_its_share() -> None:
    trace = to_trace(PICTURES["spread over all of the stretch"])
    narrow = nsysflow.analyze(trace, Options(from_ns=20 * MS, to_ns=40 * MS))
    ((host_ns, ns),) = narrow.gaps.select("host_ns", "descheduled_ns").rows()
    assert ns == 4 * MS * host_ns // (20 * MS) == narrow.cpu["descheduled_ns"].item()
    assert narrow.cpu["waited_ns"].item() == 8 * MS
