"""Findings of a report, valued and in order."""

from collections.abc import Iterator

import pytest

from nsysflow.analysis.findings import saving
from nsysflow.analysis.findings.find import find
from tests import tiny
from tests.analysis.findings.subjects import US, Row, launched, loop, of_sample


def test_replays_come_before_bounds_of_less_than_twice_their_size() -> None:
    ranks = [one.rank_ns for one in find(of_sample("rolloutcopy-torch")).valued]
    assert ranks == sorted(ranks, reverse=True)


def rarely(start: int, i: int) -> Iterator[Row]:
    """A kernel; in the first of 12 steps a wait that the others do not have, and 0.4 ms of idle
    time."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=500 * US)
    if i == 0:
        yield tiny.opened(start + 20 * US, start + 530 * US, "check")
        yield tiny.call(start + 25 * US, start + 520 * US, "cudaDeviceSynchronize")
    late = 900 if i == 0 else 60
    yield from launched(start, 100 * i + 2, at=late, took=5, kernel_ns=450 * US)


def test_what_is_not_in_the_replayed_part_of_a_long_report_is_an_upper_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(saving, "MOST_OPS", 4)
    (one,) = (
        one
        for one in find(loop(rarely, steps=12, every=1_400)).valued
        if one.finding.phase == "step/check"
    )
    assert one.finding.method == "bound"
    assert one.low_ns == 0
