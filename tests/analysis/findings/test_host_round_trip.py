"""One function's waits, copies and host code as one finding."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, judged, launched
from tests.oracle.model import Frame, Sample

TRAIN, METRIC = Frame("/me/t.py", 3, "train"), Frame("/me/t.py", 7, "add")


def steps_with_a_metric(*, metric: Frame, copied_bytes: int = 2_000_000) -> JudgedReport:
    """Eight steps of 4 ms with a kernel of 3 ms. Then 4 ms in a function of the program: 1 ms in a
    copy of pageable memory to the host, if there is one, and 3 ms of Python."""

    def rows() -> Iterator[Row]:
        for i in range(8):
            start = i * 8 * MS
            yield tiny.opened(start, start + 4 * MS, "step")
            yield from launched(start, 10 * i + 1, at=10, took=5, kernel_ns=3 * MS)
            for at in range(0, 8_000, 100):
                inside = (metric, TRAIN) if at > 4_000 else (TRAIN,)
                yield Sample(start + at * US, tiny.MAIN, inside)
            if copied_bytes:
                begin = start + 4_010 * US
                yield tiny.launch(begin, begin + 1 * MS, 10 * i + 2, name="cudaMemcpy")
                end = begin + 990 * US
                op = tiny.copy(begin + 10 * US, end, 10 * i + 2, "DtoH", "device", "pageable")
                yield replace(op, copy=op.copy and replace(op.copy, bytes=copied_bytes))

    return judged(*rows())


def test_what_a_function_copies_and_computes_on_the_host_is_one_finding() -> None:
    first, *others = find(steps_with_a_metric(metric=METRIC)).valued
    finding = first.finding
    assert (finding.rule, finding.source) == ("host-round-trip", "t.py:7 in add")
    assert finding.title == "copies and host code in add (t.py:7) hold the GPU up"
    assert finding.change[0].startswith("do its work on the GPU")
    # the copy blocks for 1 ms; 3 ms of Python follow it
    assert first.low_ns < 1.1 * MS
    assert first.high_ns == pytest.approx(4 * MS, rel=0.05)
    assert not {one.finding.rule for one in others} & {"data-loading", "pageable-copy"}
    assert not any(one.finding.joint for one in others)


TO_PINNED = "copy to pinned memory with non_blocking=True"
LOOP = Frame("/me/t.py", 7, "train")


@pytest.mark.parametrize(
    ("copied_bytes", "title"),
    [
        (2_000_000, "copy to pageable memory: cudaMemcpy outside any range, t.py:7 in train"),
        (8_000_000, "DtoH copy of pageable memory, 8.16 GB/s outside any range, t.py:7 in train"),
    ],
)
def test_a_loop_that_copies_and_computes_is_no_round_trip(copied_bytes: int, title: str) -> None:
    valued = find(steps_with_a_metric(metric=LOOP, copied_bytes=copied_bytes)).valued
    found = {one.finding.rule: one.finding for one in valued}
    assert {"data-loading", "pageable-copy"} <= found.keys()
    assert "host-round-trip" not in found
    fetched = found["pageable-copy"]
    assert (fetched.title, fetched.source) == (title, "t.py:7 in train")
    assert fetched.change[0].startswith(TO_PINNED)


def test_host_code_without_a_copy_or_a_wait_is_no_round_trip() -> None:
    valued = find(steps_with_a_metric(metric=METRIC, copied_bytes=0)).valued
    assert [one.finding.rule for one in valued if one.finding.is_sampled] == ["data-loading"]


def test_values_read_back_one_by_one_in_a_function_are_counted() -> None:
    def rows() -> Iterator[Row]:
        for i in range(8):
            start = i * 8 * MS
            yield tiny.opened(start, start + 4 * MS, "step")
            yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=3 * MS)
            for at in range(0, 8_000, 100):
                inside = (METRIC, TRAIN) if at > 4_000 else (TRAIN,)
                yield Sample(start + at * US, tiny.MAIN, inside)
            for number in range(12):  # a value each 110 us, and 2.6 ms of Python behind them
                begin, read = start + (4_010 + 110 * number) * US, 100 * i + 2 + number
                yield tiny.launch(begin, begin + 105 * US, read, name="cudaMemcpy")
                ran = begin + 50 * US
                yield tiny.copy(ran, ran + 50 * US, read, "DtoH", "device", "pageable")

    first, *_ = find(judged(*rows())).valued
    finding = first.finding
    assert finding.title == "12 waits a step and host code in add (t.py:7) hold the GPU up"
    assert finding.change[0].startswith("read it some steps later")
    assert finding.change[-1].startswith("do it less often")
