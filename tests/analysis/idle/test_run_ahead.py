"""The run-ahead model, and the stalls that used it up."""

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, Cover
from nsysflow.analysis.idle.charged_stalls import AT_THE_START, charged_stalls, since_last_gap
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


AXIS = Axis(origin_ns=0, stride_ns=10_000)

NOTHING_BEFORE = (AT_THE_START.rest, AT_THE_START.host)

Gap = tuple[int, int, int]
"""The start of a gap, and the start and end of its launch."""


def charged(stalls: list[tuple[int, int]], *gaps: Gap, linked: bool = True) -> list[int]:
    """The ns charged to each gap of one process on one device. All host time can be charged."""
    stalled = Cover(pl.DataFrame(stalls, schema=["start", "end"], orient="row"))
    frame = pl.DataFrame(gaps, schema=["start_ns", "next_start_ns", "launched_ns"], orient="row")
    h_ns = pl.min_horizontal("start_ns", "next_start_ns")
    waiting = frame.with_row_index("gap").with_columns(
        pl.lit(0, pl.UInt32).alias("device_no"),
        pl.lit(0, pl.UInt32).alias("process_no"),
        pl.lit(0, pl.UInt32).alias("lane"),
        pl.lit(linked).alias("linked"),
        h_ns.alias("h_ns"),
    )
    waiting = waiting.with_columns(since_last_gap(waiting, AT_THE_START.looked, AXIS))
    can_give = frame["launched_ns"] - frame["start_ns"]
    taken, ranges, _ = charged_stalls(stalled, AXIS, waiting, can_give, *NOTHING_BEFORE)
    by_range = ranges.group_by("gap").agg((pl.col("stop") - pl.col("begin")).sum().alias("ns"))
    assert dict(by_range.rows()) == {gap: ns for gap, ns in enumerate(taken) if ns}
    return taken.to_list()


def test_a_gap_is_charged_no_more_than_its_host_time() -> None:
    assert charged([(100, 900)], (1_000, 1_020, 1_030)) == [30]


def test_a_gap_is_charged_no_more_than_the_host_had_stalled() -> None:
    assert charged([(900, 910)], (1_000, 1_020, 1_030)) == [10]


def test_what_one_gap_leaves_of_a_stall_is_charged_to_the_next() -> None:
    gaps = [(1_000, 1_010, 1_020), (1_100, 1_110, 1_120), (1_200, 1_210, 1_220)]
    assert charged([(900, 950)], *gaps) == [20, 20, 10]


def test_a_new_stall_drops_the_rest_of_the_one_before() -> None:
    gaps = [(1_000, 1_010, 1_020), (1_100, 1_110, 1_130), (1_200, 1_210, 1_230)]
    assert charged([(900, 990), (1_050, 1_055)], *gaps) == [20, 5, 0]


def test_stalled_time_inside_an_earlier_gap_is_not_charged_again() -> None:
    # 1000..1100 is the host time of the first gap: step 2 charges the stall inside it there
    assert charged([(1_010, 1_090)], (1_000, 1_095, 1_100), (1_200, 1_210, 1_220)) == [0, 0]


def test_a_stall_after_the_launch_is_not_charged() -> None:
    assert charged([(500, 900)], (1_000, 400, 1_030)) == [0]


def test_a_gap_behind_another_process_is_charged_nothing() -> None:
    assert charged([(100, 900)], (1_000, 1_020, 1_030), linked=False) == [0]


def test_the_end_of_a_stall_is_charged_first() -> None:
    stalled = Cover(pl.DataFrame([(0, 50), (100, 200)], schema=["start", "end"], orient="row"))
    one = pl.DataFrame(
        {
            **{name: pl.Series([0], dtype=pl.UInt32) for name in ("gap", "lane")},
            **{name: pl.Series([0], dtype=pl.UInt32) for name in ("device_no", "process_no")},
            "start_ns": [300],
            "launched_ns": [400],
            "since_ns": [0],
            "h_ns": [300],
            "linked": [True],
        }
    )
    taken, ranges, left = charged_stalls(stalled, AXIS, one, pl.Series([120]), *NOTHING_BEFORE)
    assert taken.to_list() == [120]
    # in stalled time: 20 of the first stall's 50, and all 100 of the second
    assert ranges.select("begin", "stop").rows() == [(30, 150)]
    assert left.select("begin", "stop").rows() == [(0, 30)]
