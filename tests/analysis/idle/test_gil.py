"""Who waits for Python's lock while another thread holds it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.options import Options
from tests.agreement import assert_pictures_agree
from tests.oracle.model import Gil, PlainTrace, Thread, side_by_side, to_trace
from tests.tiny import (
    AUTOGRAD,
    MAIN,
    OTHER,
    PROCESS,
    WORKER,
    Row,
    call,
    kernel,
    launch,
    opened,
    plain_of,
    sample,
)

US = 1_000


def waits(start: int, end: int | None, thread: int = MAIN) -> Gil:
    """A thread waits between these us."""
    return Gil(start * US, None if end is None else end * US, thread, "waiting")


def holds(start: int, end: int | None, thread: int = WORKER) -> Gil:
    """A thread has the lock between these us."""
    return Gil(start * US, None if end is None else end * US, thread, "holding")


def gap(*rows: Row, thread: int = MAIN) -> list[Row]:
    """A gap from 100 to 1001 us, of which the host needs 900 to get to the next launch."""
    calls = launch(0, 10 * US, 1), launch(1_000 * US, 1_001 * US, 2, thread=thread)
    return [*calls, kernel(20 * US, 100 * US, 1), kernel(1_001 * US, 1_100 * US, 2), *rows]


WAITS, HOLDS = waits(200, 500), holds(150, 450)

GAPS: dict[str, Sequence[Row]] = {
    "a single thread": gap(holds(0, 1_100, MAIN)),
    "no other holder": gap(WAITS),
    "it holds the lock itself": gap(WAITS, holds(100, 600, MAIN)),
    "another thread holds it for a part": gap(WAITS, HOLDS),
    "two holders in turn": gap(WAITS, holds(150, 300), holds(300, 400, OTHER)),
    "two holders at once: the last one to take it": gap(WAITS, HOLDS, holds(300, 600, OTHER)),
    "the thread itself is the last one to take it": gap(WAITS, HOLDS, holds(300, 600, MAIN)),
    "waits that overlap": gap(WAITS, waits(300, 400), waits(200, 500), HOLDS),
    "ranges without an end": gap(waits(700, None), holds(800, None)),
    "ranges that end before they start, and of no length": gap(
        waits(500, 200), waits(300, 300), holds(450, 150), holds(1, 1)
    ),
    "a wait across both borders of the gap": gap(waits(50, 1_090), holds(60, 1_095)),
    "another thread waits": gap(waits(200, 500, OTHER), HOLDS),
    "a holder in another process": gap(WAITS, holds(150, 450, WORKER + (1 << 24))),
    "the thread before, until the next one calls": gap(
        call(600 * US, 610 * US, "cudaEventQuery", thread=AUTOGRAD),
        *(waits(100, 1_000), waits(100, 300, AUTOGRAD), waits(700, 800, AUTOGRAD)),
        holds(100, 1_000),
        thread=AUTOGRAD,
    ),
    "a stall takes its part": gap(call(20 * US, 90 * US, "cudaStreamSynchronize"), WAITS, HOLDS),
    "a wait in a blocking call is the call's": gap(
        call(150 * US, 480 * US, "cudaStreamSynchronize"), WAITS, HOLDS
    ),
}


def test_pictures_of_the_lock_agree_with_the_oracle() -> None:
    assert_pictures_agree(GAPS)
    assert_pictures_agree({"nobody recorded it": gap()})


def test_a_row_names_the_holder_and_what_it_ran_for_most_of_the_time() -> None:
    ran = [
        sample(at * US, name, "run", thread=WORKER) for at, name in ((250, "decode"), (290, "f"))
    ]
    ran += [sample(330 * US, "decode", "run", thread=WORKER)]
    rows = gap(WAITS, HOLDS, *ran, opened(0, 2_000 * US, "step"))
    hostile = 'feeder\x1b[31m "),\n'
    plain = replace(plain_of(*rows), threads=(Thread(PROCESS, WORKER, hostile),))
    (row,) = nsysflow.analyze(to_trace(plain)).gil.to_dicts()
    assert row["holder_name"] == hostile
    assert (row["thread"], row["holder"], row["phase"]) == (1, 3, "step")
    assert (row["function"], row["source"]) == ("decode", "train.py:1 in decode")
    assert row["gil_ns"] == 250 * US
    assert row["share_pct"] == pytest.approx(100 * 250 / 901)
    assert_pictures_agree({"stacks": plain})


def test_processes_have_a_lock_each_and_half_a_gap_half_of_its_wait() -> None:
    one: PlainTrace = plain_of(*gap(waits(100, 1_000), holds(100, 1_000)))
    free = plain_of(*gap(holds(100, 1_000)))
    both = nsysflow.analyze(to_trace(side_by_side([one, free])))
    assert both.gaps["gil_ns"].to_list() == [900 * US, 0]
    half = nsysflow.analyze(to_trace(one), Options(to_ns=550 * US))
    (gil_ns,) = half.gaps["gil_ns"]
    assert gil_ns == half.gil["gil_ns"].sum() == round(450 * US * 900 / 901)
