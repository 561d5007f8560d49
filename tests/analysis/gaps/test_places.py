"""Where the host was during a gap, on traces of a few rows."""

from tests.tiny import Row, analysis_of, kernel, launch, opened


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
