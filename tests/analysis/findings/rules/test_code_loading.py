"""Code that is built and loaded in steady steps."""

from collections.abc import Iterator

from nsysflow.analysis.findings.rules.code_loading import code_loading
from nsysflow.analysis.findings.rules.host_code import host_code
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, found, launched, loop, of_sample


def building(start: int, i: int) -> Iterator[Row]:
    """A kernel; 3 ms in which a library builds another one, loads it in 20 us and launches it."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    yield tiny.call(start + 3_100 * US, start + 3_120 * US, "cuLibraryLoadData")
    yield from launched(start, 100 * i + 2, at=3_200, took=5, kernel_ns=400 * US)


def test_what_builds_the_code_counts_with_what_loads_it() -> None:
    subject = loop(building, every=4_000)
    (one,) = found(code_loading, subject)
    assert one.culprit == "cuLibraryLoadData"
    assert one.steps == 8
    assert one.at_most_ns > 2.9 * MS
    assert not found(host_code, subject)


def test_steps_that_load_nothing_are_none() -> None:
    assert not found(code_loading, of_sample("fusion-compile"))
