"""Steps that take longer at equal distances."""

from collections.abc import Iterator

from nsysflow.analysis.findings.rules.periodic_pause import periodic_pause
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.options import Options
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, found, launched, of_sample


def saving_every(k: int, steps: int = 40, until: int = 40) -> Subject:
    """Steps of 1 ms; each k-th of the first takes 5 ms longer, in a range that saves."""

    def rows() -> Iterator[Row]:
        start = 0
        for i in range(steps):
            slow = 5_000 * US if i % k == k - 1 and i < until else 0
            yield tiny.opened(start, start + 990 * US + slow, "step")
            yield from launched(start, 10 * i + 1, at=10, took=5, kernel_ns=400 * US)
            yield tiny.opened(start + 30 * US, start + 420 * US + slow, "save")
            begin = start + 420 * US + slow
            yield from launched(begin, 10 * i + 2, at=5, took=5, kernel_ns=500 * US)
            start += 1_000 * US + slow

    return Subject(tiny.analysis_of(*rows(), options=Options(skip=0)))


def test_what_every_tenth_step_takes_longer_is_spread_over_all_steps() -> None:
    (one,) = found(periodic_pause, saving_every(10))
    assert one.title.startswith("every 10 steps one takes longer")
    assert 0.45 * MS < one.at_most_ns < 0.55 * MS
    assert one.method == "bound"


def test_what_ends_before_the_run_does_is_spread_over_all_steps_too() -> None:
    (one,) = found(periodic_pause, saving_every(10, until=30))
    assert 0.34 * MS < one.at_most_ns < 0.41 * MS


def test_steps_of_equal_length_are_none() -> None:
    assert not found(periodic_pause, of_sample("nan_check-sync"))
