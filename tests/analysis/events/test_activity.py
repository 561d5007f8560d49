"""What single copies, launches and stalls did."""

import pytest

from tests.tiny import Row, call, copy, kernel, launch, timeline_of

US = 1_000


def label(*more: Row, source: str = "pinned", returned: int = 10) -> str | None:
    """The label of a copy to the device from 20 to 100, whose call returned at `returned`."""
    rows = (
        launch(0, returned, 1, name="cudaMemcpyAsync"),
        copy(20, 100, 1, "HtoD", source, "device"),
    )
    found: str | None = timeline_of(*rows, *more).copies["copy_label"].item()
    return found


@pytest.mark.parametrize("source", ["pinned", "pageable"])
def test_a_label_names_the_host_memory_and_whether_the_call_outlasted_the_copy(source: str) -> None:
    assert label(source=source) == f"{source}_async"
    assert label(source=source, returned=100) == f"{source}_blocking"


def test_a_sync_within_50_us_of_the_call_makes_it_blocking() -> None:
    assert label(call(10 + 50 * US, 60 * US, "cudaStreamSynchronize")) == "pinned_blocking"
    assert label(call(11 + 50 * US, 60 * US, "cudaStreamSynchronize")) == "pinned_async"


def test_another_launch_before_the_sync_leaves_it_asynchronous() -> None:
    wait = call(10 * US, 20 * US, "cudaStreamSynchronize")
    assert label(launch(US, 2 * US, 2), wait) == "pinned_async"
    assert label(call(US, 2 * US, "cudaEventQuery"), wait) == "pinned_blocking"


def test_a_copy_within_the_device_has_no_host_side() -> None:
    assert label(source="device") == "device"


def test_a_copy_without_a_call_has_no_label() -> None:
    (found,) = timeline_of(copy(20, 30, None, "HtoD", "pinned", "device")).copies["copy_label"]
    assert found is None


def test_latency_starts_with_the_call_and_queue_time_at_its_end() -> None:
    (row,) = timeline_of(launch(0, 10, 1), kernel(25, 30, 1)).launches.to_dicts()
    assert (row["api_ns"], row["latency_ns"], row["queue_ns"]) == (10, 25, 15)


def test_the_latency_of_a_call_with_several_operations_is_to_the_first() -> None:
    graph = launch(0, 10, 1, name="cudaGraphLaunch")
    (row,) = timeline_of(graph, kernel(50, 60, 1), kernel(25, 30, 1)).launches.to_dicts()
    assert row["latency_ns"] == 25


def test_run_ahead_counts_what_was_launched_and_has_not_started() -> None:
    calls = [launch(10 * n, 10 * n + 5, n) for n in range(1, 5)]
    kernels = [kernel(100 * n, 100 * n + 90, n) for n in range(1, 5)]
    assert timeline_of(*calls, *kernels).launches["run_ahead"].to_list() == [0, 1, 2, 3]


def test_waits_allocations_and_blocking_copies_are_stalls_and_launches_are_not() -> None:
    rows = [call(0, 5, "cudaMalloc"), call(10, 15, "cudaDeviceSynchronize"), launch(20, 25, 1)]
    names = timeline_of(*rows, kernel(30, 40, 1)).stalls["name"].to_list()
    assert names == ["cudaMalloc", "cudaDeviceSynchronize"]


def test_a_useful_wait_is_one_in_which_the_gpu_was_busy() -> None:
    wait = call(50, 150, "cudaStreamSynchronize")
    (row,) = timeline_of(launch(0, 5, 1), kernel(20, 120, 1), wait).stalls.to_dicts()
    assert row["gpu_busy_ns"] == 70
