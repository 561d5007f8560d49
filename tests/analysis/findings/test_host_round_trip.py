"""One function's waits, copies and host code as one finding."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, judged, launched
from tests.oracle.model import Frame, Sample

TRAIN, METRIC = Frame("/me/t.py", 3, "train"), Frame("/me/t.py", 7, "add")
LOOP: Final = Frame("/me/t.py", 7, "train")


Behind = Callable[[int, int], Iterator[Row]]
"""What the GPU and the host do in the function, for its start and the number of a call."""


def steps_with(function: Frame, behind: Behind = lambda *_: iter(())) -> JudgedReport:
    """Eight steps of 4 ms with a kernel of 3 ms. Then 4 ms in a function of the program, with these
    rows 10 us behind its start."""

    def rows() -> Iterator[Row]:
        for i in range(8):
            start = i * 8 * MS
            yield tiny.opened(start, start + 4 * MS, "step")
            yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=3 * MS)
            for at in range(0, 8_000, 100):
                inside = (function, TRAIN) if at > 4_000 else (TRAIN,)
                yield Sample(start + at * US, tiny.MAIN, inside)
            yield from behind(start + 4_010 * US, 100 * i + 2)

    return judged(*rows())


def fetching(copied_bytes: int) -> Behind:
    """A copy to pageable memory that the host waits for, 1 ms; 3 ms of Python are left."""

    def rows(begin: int, number: int) -> Iterator[Row]:
        yield tiny.launch(begin, begin + 1 * MS, number, name="cudaMemcpy")
        end = begin + 990 * US
        op = tiny.copy(begin + 10 * US, end, number, "DtoH", "device", "pageable")
        yield replace(op, copy=op.copy and replace(op.copy, bytes=copied_bytes))

    return rows


def reading(begin: int, number: int) -> Iterator[Row]:
    """Twelve values are read back, one each 110 us; 2.6 ms of Python are left."""
    for k in range(12):
        now = begin + 110 * k * US
        yield tiny.launch(now, now + 105 * US, number + k, name="cudaMemcpy")
        ran = now + 50 * US
        yield tiny.copy(ran, ran + 50 * US, number + k, "DtoH", "device", "pageable")


def test_what_a_function_copies_and_computes_on_the_host_is_one_finding() -> None:
    first, *others = find(steps_with(METRIC, fetching(2_000_000))).valued
    finding = first.finding
    assert (finding.rule, finding.source) == ("host-round-trip", "t.py:7 in add")
    assert finding.title == "copies and host code in add (t.py:7) hold the GPU up"
    assert finding.change[0].startswith("do its work on the GPU")
    # the copy blocks for 1 ms; 3 ms of Python follow it
    assert first.low_ns < 1.1 * MS
    assert first.high_ns == pytest.approx(4 * MS, rel=0.05)
    assert not {one.finding.rule for one in others} & {"data-loading", "pageable-copy"}
    assert not any(one.finding.joint for one in others)


@pytest.mark.parametrize(
    ("copied_bytes", "title"),
    [
        (2_000_000, "copy to pageable memory: cudaMemcpy outside any range, t.py:7 in train"),
        (8_000_000, "DtoH copy to pageable memory, 8.16 GB/s outside any range, t.py:7 in train"),
    ],
)
def test_a_loop_that_copies_and_computes_is_no_round_trip(copied_bytes: int, title: str) -> None:
    valued = find(steps_with(LOOP, fetching(copied_bytes))).valued
    found = {one.finding.rule: one.finding for one in valued}
    assert {"data-loading", "pageable-copy"} <= found.keys()
    assert "host-round-trip" not in found
    fetched = found["pageable-copy"]
    assert (fetched.title, fetched.source) == (title, "t.py:7 in train")
    assert fetched.change[0].startswith("copy to pinned memory with non_blocking=True")


def test_host_code_without_a_copy_or_a_wait_is_no_round_trip() -> None:
    valued = find(steps_with(METRIC)).valued
    assert [one.finding.rule for one in valued if one.finding.is_sampled] == ["data-loading"]


def test_values_read_back_one_by_one_in_a_function_are_counted() -> None:
    first, *_ = find(steps_with(METRIC, reading)).valued
    finding = first.finding
    assert finding.title == "12 waits a step and host code in add (t.py:7) hold the GPU up"
    assert finding.change[0].startswith("read it some steps later")
    assert finding.change[-1].startswith("do it less often")
