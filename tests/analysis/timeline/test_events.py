"""A trace's rows in order, on traces of a few rows."""

from tests.oracle.model import Call
from tests.tiny import MAIN, PROCESS, Row, kernel, launch, opened, timeline_of


def launch_of_the_kernel(*rows: Row) -> tuple[int, int]:
    """When the launch of the one kernel began and ended."""
    ops = timeline_of(*rows).events.ops
    ((start, end),) = ops.select("launch_start_ns", "launch_end_ns").rows()
    return start, end


def test_a_kernel_is_launched_by_the_call_of_its_correlation_id() -> None:
    assert launch_of_the_kernel(launch(0, 5, 1), launch(10, 15, 2), kernel(20, 30, 2)) == (10, 15)


def test_of_a_runtime_call_and_the_driver_call_inside_it_the_outer_one_counts() -> None:
    inner = launch(12, 14, 2, name="cuLaunchKernel")
    assert launch_of_the_kernel(inner, launch(10, 15, 2), kernel(20, 30, 2)) == (10, 15)


def test_correlation_ids_of_another_process_do_not_join() -> None:
    other = Call(0, 5, 2 * PROCESS, 2 * MAIN, 2, "cudaLaunchKernel")
    assert launch_of_the_kernel(other, launch(10, 15, 2), kernel(20, 30, 2)) == (10, 15)


def test_rows_of_negative_length_are_dropped_and_counted() -> None:
    events = timeline_of(kernel(0, 10, 1), kernel(30, 20, 2), opened(9, 8, "odd")).events
    assert (len(events.ops), len(events.ranges), events.dropped) == (1, 0, 2)


def test_operations_are_sorted_by_start_whatever_their_order_in_the_report() -> None:
    events = timeline_of(kernel(50, 60, 1), kernel(0, 10, 2), kernel(20, 30, 3)).events
    assert events.ops["start_ns"].to_list() == [0, 20, 50]
