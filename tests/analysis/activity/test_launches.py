"""The times of a launch, on traces of a few rows."""

from tests.tiny import kernel, launch, timeline_of


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
