"""Where the time of a device went, on operations that overlap in known ways."""

from tests.tiny import Row, analysis_of, copy, kernel


def accounted(*rows: Row) -> dict[str, object]:
    (row,) = analysis_of(*rows).accounting.to_dicts()
    return row


def test_compute_exposed_and_idle_time_add_up_to_the_window() -> None:
    row = accounted(
        kernel(0, 100, None),
        kernel(50, 130, None, name="ncclDevKernel_AllReduce"),
        copy(120, 160, None, "HtoD", "pinned", "device"),
        kernel(200, 210, None),
    )
    parts = ("compute_ns", "comm_exposed_ns", "copy_exposed_ns", "idle_ns")
    assert [row[part] for part in parts] == [110, 30, 30, 40]
    assert row["window_ns"] == 210


def test_a_share_of_what_never_ran_is_empty_and_not_0() -> None:
    row = accounted(kernel(0, 10, None), kernel(20, 30, None))
    assert (row["comm_hidden_pct"], row["copy_hidden_pct"]) == (None, None)


def test_the_hidden_share_is_of_the_time_and_not_of_the_sum_of_durations() -> None:
    first, second = (
        copy(start, start + 100, None, "HtoD", "pinned", "device") for start in (0, 50)
    )
    row = accounted(first, second, kernel(0, 75, None))
    assert (row["copy_ns"], row["copy_exposed_ns"], row["copy_hidden_pct"]) == (200, 75, 50.0)


def test_each_device_has_a_row() -> None:
    both = analysis_of(kernel(0, 10, None), kernel(5, 15, None, device=1)).accounting
    assert both.select("device", "kernels", "window_ns").rows() == [(0, 1, 10), (1, 1, 10)]
