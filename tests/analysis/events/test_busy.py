"""When a device was busy, and with what."""

import polars as pl

from tests.tiny import Row, copy, kernel, timeline_of


def parts(*rows: Row, start: int = 0, end: int = 100) -> dict[str, int]:
    """The parts of `[start, end)` on device 0."""
    timeline = timeline_of(*rows)
    window = pl.DataFrame({"device_no": [0], "start_ns": [start], "end_ns": [end]})
    (found,) = timeline.busy.parts(window, timeline.events.axis).to_dicts()
    return {name: ns for name, ns in found.items() if ns}


def test_kernels_at_the_same_time_count_once() -> None:
    found = parts(kernel(0, 60, 1), kernel(20, 80, 2))
    assert (found["compute_ns"], found["idle_ns"]) == (80, 20)


def test_communication_is_exposed_where_no_compute_runs() -> None:
    found = parts(kernel(0, 50, 1), kernel(30, 90, 2, name="ncclDevKernel_AllReduce"))
    assert (found["comm_union_ns"], found["comm_exposed_ns"], found["idle_ns"]) == (60, 40, 10)


def test_a_copy_is_exposed_where_neither_compute_nor_communication_runs() -> None:
    rows = [kernel(0, 30, 1), kernel(30, 60, 2, name="ncclDevKernel_AllReduce")]
    found = parts(*rows, copy(10, 80, None, "HtoD", "pinned", "device"))
    assert (found["copy_union_ns"], found["copy_exposed_ns"]) == (70, 20)


def test_a_window_cuts_what_reaches_over_its_edges() -> None:
    assert parts(kernel(0, 100, 1), start=40, end=70) == {"window_ns": 30, "compute_ns": 30}
