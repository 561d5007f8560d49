"""Launches one by one that keep the GPU waiting."""

from collections.abc import Iterator

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.launch_bound import launch_bound
from tests import tiny
from tests.analysis.findings.subjects import (
    US,
    Row,
    found,
    launched,
    loop,
    of_report,
    of_sample,
    valued,
)


@pytest.mark.parametrize(
    ("name", "phase", "line"),
    [
        ("launch_bound-eager", "step/forward", "launch_bound.py:41 in forward"),
        ("launch_bound-eager-plain", "step/forward", ""),
        ("sum_many-loop", "step/metrics", "sum_many.py:65 in loop"),
        ("rolloutcopy-torch", "step/compute_advantage", "advantage.py:297 in advantage_ref"),
        ("rolloutcopy-fused", "step/train_select_and_copy", ""),
        ("trainforward-fused", "step/backward", ""),
        ("trainstep-torch", "step/backward", ""),
        ("trainstep-fused", "step/backward", ""),
    ],
)
def test_launches_are_the_first_finding_and_a_graph_of_the_step_its_value(
    name: str, phase: str, line: str
) -> None:
    first = valued(name)[0].finding
    assert (first.rule, first.phase, first.source) == ("launch-bound", phase, line)
    assert first.changes is not None
    assert list(first.changes.options()) == ["--graph", "step"]
    assert first.method == "replay"


@pytest.mark.parametrize(
    "name",
    [
        *("launch_bound-graph", "sum_many-fused", "trainforward-graph", "trainstep-graph"),
        *("rolloutcopy-graph", "alloc_churn-empty_cache", "h2d-pinned_blocking"),
        *("metrics-at_end", "fusion-eager", "deep_queue-queued"),
    ],
)
def test_a_graph_and_a_gpu_that_waits_for_something_else_are_not_launch_bound(name: str) -> None:
    assert not found(launch_bound, of_sample(name))


def test_an_eager_language_model_is_launch_bound_in_its_forward() -> None:
    (one,) = found(launch_bound, of_report("h200-gpt2-eager"))
    assert one.phase == "train_step/forward"


def test_where_data_is_loaded_only_the_other_phases_become_graphs() -> None:
    (one,) = found(launch_bound, of_report("h200-gpu-metrics"))
    assert one.changes is not None
    assert set(one.changes.graphs) == {"step/forward", "step/backward", "step/optimizer"}
    assert one.exact


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


def test_pauses_that_take_much_of_a_step_count_before_however_few_launches() -> None:
    (one,) = found(launch_bound, of_report("h200-ddp-messages"))
    assert one.phase == "step/backward"
    assert 100 * one.size_ns > 12 * of_report("h200-ddp-messages").step_ns
