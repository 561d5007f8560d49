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


def steps_with_a_metric(*, metric: Frame, copied: bool = True) -> JudgedReport:
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
            if copied:
                begin = start + 4_010 * US
                yield tiny.launch(begin, begin + 1 * MS, 10 * i + 2, name="cudaMemcpy")
                end = begin + 990 * US
                op = tiny.copy(begin + 10 * US, end, 10 * i + 2, "DtoH", "device", "pageable")
                yield replace(op, copy=op.copy and replace(op.copy, bytes=2_000_000))

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


@pytest.mark.parametrize(
    ("metric", "copied", "rules"),
    [
        # the loop itself copies and computes: its lines need not be of one thing
        (Frame("/me/t.py", 7, "train"), True, {"data-loading", "pageable-copy"}),
        # nothing is copied or waited for
        (METRIC, False, {"data-loading"}),
    ],
)
def test_a_loop_and_mere_host_code_are_no_round_trip(
    metric: Frame, copied: bool, rules: set[str]
) -> None:
    valued = find(steps_with_a_metric(metric=metric, copied=copied)).valued
    found = {one.finding.rule: one.finding for one in valued}
    assert found.keys() & {*rules, "host-round-trip"} == rules
    if copied:
        fetched = found["pageable-copy"]
        assert fetched.title.startswith("copy to pageable memory: ")
        assert fetched.change[0].startswith("copy to pinned memory with non_blocking=True")
