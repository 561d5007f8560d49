"""When devices idled, and where the host was."""

from tests.tiny import Row, analysis_of, kernel, launch, opened, timeline_of


def gaps(*rows: Row) -> list[tuple[int, int]]:
    return timeline_of(*rows).bare_gaps.select("start_ns", "end_ns").rows()


def test_a_gap_lies_between_two_operations() -> None:
    assert gaps(kernel(0, 10, 1), kernel(30, 40, 2)) == [(10, 30)]


def test_operations_that_touch_leave_no_gap() -> None:
    assert gaps(kernel(0, 10, 1), kernel(10, 40, 2)) == []


def test_a_nested_operation_ends_no_gap() -> None:
    assert gaps(kernel(0, 100, 1), kernel(20, 30, 2), kernel(150, 160, 3)) == [(100, 150)]


def test_an_operation_of_no_length_bounds_no_gap() -> None:
    assert gaps(kernel(0, 10, 1), kernel(20, 20, 2), kernel(30, 40, 3)) == [(10, 30)]


def test_each_device_has_gaps_of_its_own() -> None:
    rows = [kernel(0, 10, 1), kernel(30, 40, 2)]
    assert gaps(*rows, kernel(0, 40, 3, device=1)) == [(10, 30)]


def test_the_operation_launched_first_ends_the_gap_if_several_start_together() -> None:
    rows: list[Row] = [launch(5, 6, 2), launch(3, 4, 3), kernel(0, 10, 1)]
    timeline = timeline_of(*rows, kernel(20, 30, 2, name="late"), kernel(20, 30, 3, name="early"))
    (next_op,) = timeline.bare_gaps["next_op"]
    assert timeline.ops["short_name"][next_op] == "early"


def host_range(*ranges: Row, second: int) -> str:
    """The host range of a gap from 100 to 1000, whose next launch began at `second`."""
    rows = (launch(0, 10, 1), kernel(20, 100, 1), launch(second, second + 5, 2))
    (gap,) = analysis_of(*rows, kernel(1_000, 1_100, 2), *ranges).gaps.to_dicts()
    return str(gap["host_range"])


def test_the_host_range_is_open_in_the_middle_of_the_time_before_the_launch() -> None:
    ranges = opened(0, 299, "data"), opened(300, 900, "forward")
    assert host_range(*ranges, second=500) == "forward"  # the middle is at 300
    assert host_range(*ranges, second=498) == ""  # at 299 neither is open


def test_the_host_range_is_empty_if_the_launch_came_before_the_gap() -> None:
    assert host_range(opened(0, 2_000, "step"), second=50) == ""
