"""Operations that were lost in stretches."""

import pytest

from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.view import view_of
from nsysflow.analysis.validity.lost_stretches import Lost, lost_operations
from tests.tiny import Row, call, kernel, launch, opened, timeline_of


def pairs(numbers: range, *, lost: range = range(0)) -> list[Row]:
    """A launch every 10 ns, and its kernel, except those that are lost."""
    launches: list[Row] = [launch(10 * n, 10 * n + 4, n) for n in numbers]
    kernels = [kernel(10 * n + 5, 10 * n + 9, n) for n in numbers if n not in lost]
    return [*launches, *kernels]


def lost_in(*rows: Row, options: Options | None = None) -> Lost | None:
    return lost_operations(view_of(timeline_of(*rows, options=options)))


def test_twenty_launches_in_a_row_without_an_operation_are_a_stretch() -> None:
    found = lost_in(*pairs(range(1, 101), lost=range(40, 60)))
    assert found == Lost(launches=20, of=100, start_ns=400, end_ns=594)


def test_nineteen_are_none() -> None:
    assert lost_in(*pairs(range(1, 101), lost=range(40, 59))) is None


def test_single_launches_without_an_operation_are_none_however_many() -> None:
    assert lost_in(*pairs(range(1, 101), lost=range(1, 101, 2))) is None


def test_less_than_one_percent_of_the_launches_does_not_matter() -> None:
    assert lost_in(*pairs(range(1, 2001), lost=range(40, 60))) is not None
    assert lost_in(*pairs(range(1, 2002), lost=range(40, 60))) is None


def test_one_percent_of_a_single_step_matters() -> None:
    steps = [opened(10 * n, 10 * (n + 1000), "step") for n in (1, 1001, 2001)]
    assert lost_in(*pairs(range(1, 3001), lost=range(40, 60))) is None
    found = lost_in(*steps, *pairs(range(1, 3001), lost=range(40, 60)))
    assert found == Lost(launches=20, of=3000, start_ns=400, end_ns=594)


@pytest.mark.parametrize("lost", [range(1, 31), range(71, 101)], ids=["begin", "end"])
def test_a_capture_that_was_cut_off_at_either_end_is_incomplete(lost: range) -> None:
    found = lost_in(*pairs(range(1, 101), lost=lost))
    assert found is not None
    assert found.launches == 30


def test_launches_into_a_graph_that_is_captured_lack_no_operation() -> None:
    begun, ended = call(395, 396, "cudaStreamBeginCapture"), call(795, 796, "cudaStreamEndCapture")
    assert lost_in(begun, ended, *pairs(range(1, 101), lost=range(40, 80))) is None


def test_copies_are_no_kernel_launches() -> None:
    copies = [launch(10 * n, 10 * n + 4, 1000 + n, name="cudaMemcpyAsync") for n in range(30)]
    assert lost_in(*copies, *pairs(range(1, 10))) is None


def test_a_call_inside_another_of_the_same_id_is_the_same_launch() -> None:
    inner = [launch(10 * n + 1, 10 * n + 2, n, name="cuLaunchKernel") for n in range(1, 101)]
    found = lost_in(*inner, *pairs(range(1, 101), lost=range(40, 60)))
    assert found == Lost(launches=20, of=100, start_ns=400, end_ns=594)


def test_in_a_narrowed_window_only_what_was_launched_in_it_counts() -> None:
    rows = pairs(range(1, 101), lost=range(40, 60))
    assert lost_in(*rows, options=Options(to_ns=300)) is None
    assert lost_in(*rows, options=Options(from_ns=300)) is not None
