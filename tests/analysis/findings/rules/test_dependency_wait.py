"""Streams that wait for one another."""

from collections.abc import Iterator

from nsysflow.analysis.findings.rules.dependency_wait import dependency_wait
from tests import tiny
from tests.analysis.findings.subjects import US, Row, found, launched, loop, of_sample


def delayed(start: int, i: int) -> Iterator[Row]:
    """A kernel, and one launched right behind it that begins 300 us after the first has ended."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    yield tiny.launch(start + 20 * US, start + 25 * US, 100 * i + 2)
    yield tiny.kernel(start + 420 * US, start + 500 * US, 100 * i + 2)


def test_idle_time_long_after_a_launch_is_a_wait_for_another_stream() -> None:
    (one,) = found(dependency_wait, loop(delayed, every=550))
    assert one.phase == "step"
    assert 250 * US < one.at_most_ns <= 303 * US
    assert one.method == "bound"


def test_a_gpu_that_waits_for_launches_waits_for_no_stream() -> None:
    assert not found(dependency_wait, of_sample("launch_bound-eager"))
