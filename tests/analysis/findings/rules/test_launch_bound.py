"""Launches one by one that keep the GPU waiting."""

from collections.abc import Iterator

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.host_code import host_code
from nsysflow.analysis.findings.rules.launch_bound import launch_bound
from tests import tiny
from tests.analysis.findings.subjects import US, Row, asked, found, launched, loop


def graphs(start: int, i: int, count: int) -> Iterator[Row]:
    """So many launches of graphs that end before the next one comes."""
    for k in range(count):
        begin = start + (5 + 30 * k) * US
        yield tiny.launch(begin, begin + 20 * US, 100 * i + k, name="cudaGraphLaunch")
        yield tiny.kernel(begin + 21 * US, begin + 25 * US, 100 * i + k)


def test_a_program_of_many_graphs_is_told_to_launch_fewer() -> None:
    (one,) = found(launch_bound, loop(lambda start, i: graphs(start, i, 10), every=310))
    assert "10 CUDA graphs a step" in one.title
    assert "fewer, larger graphs" in one.change[0]
    assert one.method == "bound"


def test_a_step_that_is_one_graph_cannot_be_launched_by_less() -> None:
    assert not found(launch_bound, loop(lambda start, i: graphs(start, i, 1), every=40))


def long_piece(start: int, i: int) -> Iterator[Row]:
    """Two kernels with 3 ms of Python between them."""
    yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=500 * US)
    yield from launched(start, 100 * i + 2, at=3_500, took=5, kernel_ns=400 * US)


def test_one_long_piece_of_python_is_not_launch_bound() -> None:
    assert not found(launch_bound, loop(long_piece, every=4_000))


def test_without_steps_the_starved_windows_are_the_bound() -> None:
    rows: list[Row] = []
    for k in range(40):
        rows += launched(30 * k * US, k, at=0, took=10, kernel_ns=2 * US)
    (one,) = found(launch_bound, JudgedReport(tiny.analysis_of(*rows)))
    assert one.method == "bound"
    assert one.at_most_ns > 0


def few(start: int, i: int, count: int, name: str) -> Iterator[Row]:
    """So many launches, with 600 us of host code before each."""
    for k in range(count):
        begin = start + (600 + 640 * k) * US
        yield tiny.launch(begin, begin + 8 * US, 100 * i + k, name=name)
        yield tiny.kernel(begin + 10 * US, begin + 30 * US, 100 * i + k)


@pytest.mark.parametrize(
    ("count", "name"), [(1, "cudaLaunchKernel"), (2, "cudaGraphLaunch"), (4, "cudaLaunchKernel")]
)
def test_host_code_between_a_few_launches_is_no_matter_of_launching(count: int, name: str) -> None:
    subject = loop(lambda start, i: few(start, i, count, name), every=640 * count + 40)
    assert not found(launch_bound, subject)
    assert asked(host_code, subject)


@pytest.mark.parametrize(
    ("count", "said"), [(12, ["kernels launched most often, times a step: k 12"]), (9, [])]
)
def test_kernels_that_are_launched_often_are_named(count: int, said: list[str]) -> None:
    def launches(start: int, i: int) -> Iterator[Row]:
        for k in range(count):
            yield from launched(start, 100 * i + k, at=30 * k, took=10, kernel_ns=2 * US)

    (one,) = found(launch_bound, loop(launches, every=30 * count + 40))
    assert [text for text in one.evidence if "most often" in text] == said
