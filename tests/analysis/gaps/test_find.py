"""What a gap is, on traces of a few rows."""

from tests.tiny import Row, kernel, launch, timeline_of


def gaps(*rows: Row) -> list[tuple[int, int]]:
    return timeline_of(*rows).found_gaps.select("start_ns", "end_ns").rows()


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
    (next_op,) = timeline.found_gaps["next_op"]
    assert timeline.ops["short_name"][next_op] == "early"
