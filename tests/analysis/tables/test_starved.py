"""Starved windows, on launches at a fixed pace."""

from tests.tiny import Row, analysis_of, kernel, launch

US = 1_000


def paced(count: int, *, first: int = 0, every: int = 10 * US, busy: int = US) -> list[Row]:
    """Launches of 5 us, each directly followed by its kernel of `busy` ns."""
    rows: list[Row] = []
    for number in range(count):
        at = (first + number) * every
        key = first + number + 1
        rows += [launch(at, at + 5 * US, key), kernel(at + 5 * US, at + 5 * US + busy, key)]
    return rows


def windows(*rows: Row) -> list[tuple[int, int, int]]:
    return analysis_of(*rows).starved.select("start_ns", "end_ns", "ops").sort("start_ns").rows()


def test_a_window_runs_from_the_first_launch_gap_to_the_last_operation() -> None:
    assert windows(*paced(12)) == [(6 * US, 116 * US, 11)]


def test_fewer_than_8_operations_are_not_a_window() -> None:
    assert windows(*paced(9)) == [(6 * US, 86 * US, 8)]
    assert windows(*paced(8)) == []


def test_a_long_gap_of_another_cause_ends_a_window() -> None:
    pause: list[Row] = [launch(1_000 * US, 1_005 * US, 99), kernel(1_005 * US, 1_006 * US, 99)]
    assert windows(*paced(12), *pause) == [(6 * US, 116 * US, 11)]


def test_an_operation_of_over_50_us_ends_a_window_and_is_left_out() -> None:
    long: list[Row] = [launch(120 * US, 125 * US, 99), kernel(125 * US, 176 * US, 99)]
    assert windows(*paced(12), *long) == [(6 * US, 125 * US, 11)]


def test_kernels_on_a_full_queue_are_not_starved() -> None:
    calls = [launch(n * 5 * US, n * 5 * US + 4 * US, n + 1) for n in range(20)]
    kernels = [kernel(10 * US + n * 8 * US, 17 * US + n * 8 * US, n + 1) for n in range(20)]
    assert windows(*calls, *kernels) == []


def test_the_estimate_of_a_graph_is_500_ns_more_than_each_operation() -> None:
    (row,) = analysis_of(*paced(12)).starved.to_dicts()
    assert row["graph_estimate_ns"] == 11 * (US + 500)
