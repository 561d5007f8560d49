"""The profiler's own work."""

from collections.abc import Iterator

from nsysflow.analysis.findings.find import find
from tests import tiny
from tests.analysis.findings.subjects import US, Row, launched, loop, valued
from tests.oracle.model import Overhead


def flushing(start: int, i: int) -> Iterator[Row]:
    """A kernel, and one that is launched 200 us later since the profiler works meanwhile."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=200 * US)
    begin, end = start + 220 * US, start + 420 * US
    yield Overhead(begin, end, tiny.PROCESS, tiny.MAIN, "Buffer flush")
    yield from launched(start, 100 * i + 2, at=425, took=5, kernel_ns=200 * US)


def test_what_the_profiler_takes_is_a_replay_without_it() -> None:
    (one,) = (
        one
        for one in find(loop(flushing, every=650)).valued
        if one.finding.rule == "profiler-overhead"
    )
    assert one.finding.changes is not None
    assert list(one.finding.changes.options()) == ["--no-profiler"]
    assert one.high_ns > 150 * US


def test_a_profiler_that_takes_a_hundredth_is_none() -> None:
    assert "profiler-overhead" not in {
        one.finding.rule for one in valued("alloc_churn-empty_cache")
    }
