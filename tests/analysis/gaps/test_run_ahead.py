"""How a gap is split among causes, on traces of a few rows (spec §3, steps 1 and 2)."""

from tests.oracle.model import Overhead
from tests.tiny import MAIN, PROCESS, Row, analysis_of, call, kernel, launch

US = 1_000


def causes(
    *between: Row, launch_at: int = 200 * US, took: int = 10, queued: int = 0
) -> dict[str, int]:
    """The causes of the gap from 1 us to the second kernel, which is launched at `launch_at`."""
    start = launch_at + took + queued
    rows = (launch(0, 10, 1), kernel(20, US, 1), *between)
    analysis = analysis_of(
        *rows, launch(launch_at, launch_at + took, 2), kernel(start, start + 5, 2)
    )
    (gap,) = analysis.gaps.to_dicts()
    return {
        name.removesuffix("_ns"): ns
        for name, ns in gap.items()
        if name.endswith("_ns") and name not in ("start_ns", "end_ns", "duration_ns") and ns
    }  # fmt: skip


def test_a_long_pause_between_two_launches_is_host_code() -> None:
    assert causes() == {"host": 199 * US, "launch": 10}


def test_a_pause_of_up_to_50_us_between_two_launches_is_launch_overhead() -> None:
    assert causes(launch_at=50 * US + 10) == {"launch": 49 * US + 20}
    assert causes(launch_at=50 * US + 11) == {"host": 49 * US + 11, "launch": 10}


def test_queue_time_up_to_10_us_is_a_delay_and_longer_a_dependency() -> None:
    assert causes(queued=10 * US)["queue_delay"] == 10 * US
    assert causes(queued=10 * US + 1)["dependency"] == 10 * US + 1


def test_a_wait_takes_what_it_lasted_in_the_gap() -> None:
    wait = call(20 * US, 80 * US, "cudaStreamSynchronize")
    assert causes(wait) == {"sync": 60 * US, "host": 120 * US, "launch": 19 * US + 10}


def test_a_wait_counts_before_an_allocation_at_the_same_time() -> None:
    wait = call(100 * US, 150 * US, "cudaEventSynchronize")
    found = causes(wait, call(90 * US, 160 * US, "cudaMalloc"))
    assert (found["sync"], found["alloc"]) == (50 * US, 20 * US)


def test_another_cuda_call_in_a_long_pause_is_api_and_in_a_short_one_launch() -> None:
    query = call(100 * US, 101 * US, "cudaEventQuery")
    assert causes(query)["api"] == US
    assert causes(call(20 * US, 21 * US, "cudaEventQuery"), launch_at=40 * US) == {
        "launch": 39 * US + 10
    }


def test_the_work_of_the_profiler_counts_before_every_call() -> None:
    flush = Overhead(100 * US, 140 * US, PROCESS, MAIN, "flush")
    wait = call(90 * US, 150 * US, "cudaStreamSynchronize")
    found = causes(wait, flush)
    assert (found["profiler"], found["sync"]) == (40 * US, 20 * US)


def test_a_gap_whose_launch_is_not_recorded_is_unknown() -> None:
    analysis = analysis_of(launch(0, 10, 1), kernel(20, US, 1), kernel(5 * US, 6 * US, None))
    (gap,) = analysis.gaps.to_dicts()
    assert (gap["cause"], gap["unknown_ns"]) == ("unknown", 4 * US)
