"""Batches that go to the GPU in many small copies."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.plan import value
from nsysflow.analysis.findings.rules.small_copies import LEFT, MANY, SMALL_BYTES, small_copies
from nsysflow.analysis.findings.saving import Replays
from tests import tiny
from tests.analysis.findings.subjects import US, Row, asked, launched, loop
from tests.oracle.model import Copy


def copying(
    count: int = MANY, *, bytes_each: int = 1_000, way: str = "HtoD", memory: str = "pinned"
) -> JudgedReport:
    """Steps of so many copies, each behind 15 us of Python and with a launch of 5 us, and of a
    kernel."""
    up = way == "HtoD"
    ends = (memory, "device") if up else ("device", memory)

    def body(start: int, i: int) -> Iterator[Row]:
        for k in range(count):
            begin, number = start + (100 + 20 * k) * US, 100 * i + k + 1
            yield tiny.launch(begin, begin + 5 * US, number, name="cudaMemcpyAsync")
            op = tiny.copy(begin + 7 * US, begin + 9 * US, number, way, *ends)
            yield replace(op, copy=Copy(bytes_each, way, *ends))
        yield from launched(start, 100 * i + 99, at=110 + 20 * count, took=5, kernel_ns=100 * US)

    return loop(body, every=2_000)


def test_many_small_copies_are_named_with_what_one_would_save() -> None:
    subject = copying()
    found = asked(small_copies, subject)
    assert found is not None
    assert found.title == "32 small copies to the GPU a step in step"
    assert found.evidence[0] == "32.0 kB a step in all, 1.00 kB each"
    assert found.change[0].startswith("stack them on the CPU")
    # the first copy's code may be of the loop, and LEFT copies stay
    assert found.size_ns == pytest.approx((MANY - 1) * 20 * US * (1 - LEFT / MANY), rel=0.01)
    valued = value(found, Replays(subject))
    assert found.method == "bound"
    assert 0.9 * found.size_ns < valued.high_ns <= found.size_ns


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(copying(MANY - 1), id="few"),
        pytest.param(copying(bytes_each=SMALL_BYTES), id="large"),
        pytest.param(copying(way="DtoH"), id="to the host"),
        pytest.param(copying(memory="pageable"), id="the host waits for them"),
    ],
)
def test_nothing_is_said_of_other_copies(subject: JudgedReport) -> None:
    assert asked(small_copies, subject) is None
