"""Calls that block the host, on traces of a few rows."""

from tests.tiny import call, kernel, launch, timeline_of


def test_waits_allocations_and_blocking_copies_are_stalls_and_launches_are_not() -> None:
    rows = [call(0, 5, "cudaMalloc"), call(10, 15, "cudaDeviceSynchronize"), launch(20, 25, 1)]
    names = timeline_of(*rows, kernel(30, 40, 1)).stalls["name"].to_list()
    assert names == ["cudaMalloc", "cudaDeviceSynchronize"]


def test_a_useful_wait_is_one_in_which_the_gpu_was_busy() -> None:
    wait = call(50, 150, "cudaStreamSynchronize")
    (row,) = timeline_of(launch(0, 5, 1), kernel(20, 120, 1), wait).stalls.to_dicts()
    assert row["gpu_busy_ns"] == 70
