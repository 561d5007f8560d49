"""What may be wrong with a recording, one fault at a time."""

from dataclasses import replace

import pytest

from tests.oracle.model import Op
from tests.tiny import Row, analysis_of, call, kernel, launch, opened

SOUND: tuple[Row, ...] = (launch(0, 10, 1), kernel(20, 30, 1), launch(80, 90, 2), kernel(95, 99, 2))


def checks(*rows: Row) -> dict[str, int]:
    return dict(analysis_of(*rows).integrity.select("check", "count").rows())


def test_a_sound_report_has_no_row() -> None:
    assert checks(*SOUND) == {}


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ([launch(41, 45, 9), kernel(40, 50, 9)], "kernels before their launch"),
        ([kernel(40, 50, None)], "operations without a launch"),
        ([launch(35, 36, 9), kernel(50, 40, 9)], "negative durations"),
        ([launch(40, 50, 9)], "launches without an operation"),
        ([opened(0, 50, "step")], "unattributed operations"),
        ([launch(21, 22, 9), kernel(25, 35, 9)], "overlapping kernels on one stream"),
    ],
)
def test_a_fault_is_counted_by_its_check(fault: list[Row], check: str) -> None:
    assert checks(*SOUND, *fault)[check] == 1


def test_a_launch_into_a_graph_that_is_being_captured_lacks_no_operation() -> None:
    begun, ended = call(35, 36, "cudaStreamBeginCapture"), call(60, 61, "cudaStreamEndCapture")
    assert checks(*SOUND, begun, launch(40, 50, 9), ended) == {}


INTO_OTHERS = "graph operations into other launches"
LONG = "graph kernels over 100 times their median"


def node(start: int, end: int, number: int) -> Op:
    """A kernel of a graph that the launch of that number replayed."""
    return replace(kernel(start, end, number), graph_node=1)


def test_a_graphs_kernel_that_runs_into_another_launch_is_counted() -> None:
    assert checks(launch(0, 5, 1), node(10, 21, 1), launch(6, 9, 2), node(20, 30, 2)) == {
        INTO_OTHERS: 1
    }
    assert checks(launch(0, 5, 1), node(10, 20, 1), launch(6, 9, 2), node(20, 30, 2)) == {}


def test_a_graphs_kernels_may_overlap_each_other() -> None:
    assert checks(launch(0, 5, 1), node(10, 21, 1), node(20, 30, 1)) == {}


@pytest.mark.parametrize(("lasts", "found"), [(100, {}), (101, {LONG: 1})])
def test_a_graphs_kernel_over_100_times_the_median_of_its_node_is_counted(
    lasts: int, found: dict[str, int]
) -> None:
    replays = [(0, 10, 11), (20, 30, 31), (40, 50, 50 + lasts)]
    launches = [launch(at, at + 5, at + 1) for at, _, _ in replays]
    assert checks(*launches, *(node(start, end, at + 1) for at, start, end in replays)) == found
