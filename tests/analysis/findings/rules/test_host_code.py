"""Single pieces of Python that hold the GPU up."""

from collections.abc import Iterator

from nsysflow.analysis.findings.find import find
from nsysflow.analysis.findings.rules.host_code import host_code
from nsysflow.analysis.findings.subject import Subject
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, found, launched, loop, of_sample


def logging(start: int, i: int, every: int = 1) -> Iterator[Row]:
    """Two kernels; 3 ms of Python between them in a range, in every so many steps."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=100 * US)
    late = 3_200 if i % every == 0 else 120
    yield tiny.opened(start + 20 * US, start + (late + 20) * US, "log")
    yield from launched(start, 100 * i + 2, at=late, took=5, kernel_ns=(3_980 - late) * US)


def test_a_long_piece_of_python_in_each_step_is_an_upper_bound() -> None:
    (one,) = find(loop(logging, every=4_000)).valued
    assert (one.finding.rule, one.finding.phase) == ("host-code", "step/log")
    assert one.finding.method == "bound"
    assert one.low_ns == 0
    assert 2 * MS < one.high_ns < 3.2 * MS


def test_the_host_s_time_in_the_phases_inside_is_not_taken_with_it() -> None:
    def nested(start: int, i: int) -> Iterator[Row]:
        yield from logging(start, i)
        yield tiny.opened(start + 3_190 * US, start + 3_210 * US, "inner")

    (one,) = found(host_code, loop(nested, every=4_000))
    assert one.changes is not None
    assert list(one.changes.options()) == ["--faster-host", "step/log/.=0"]


def test_a_piece_in_a_third_of_the_steps_is_none() -> None:
    assert not found(host_code, loop(lambda start, i: logging(start, i, 3), steps=9, every=4_000))


def test_start_up_is_none_where_no_steps_are_marked() -> None:
    rows = [*launched(0, 1, at=10, took=5, kernel_ns=100 * US)]
    rows += launched(0, 2, at=90_000, took=5, kernel_ns=100 * US)
    assert not found(host_code, Subject(tiny.analysis_of(*rows)))


def test_short_pauses_between_launches_are_none() -> None:
    assert not found(host_code, of_sample("launch_bound-eager"))
    assert not found(host_code, of_sample("sum_many-loop"))
