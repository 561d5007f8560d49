"""The run-ahead model, and the stalls that used it up."""

import polars as pl
import pytest

from nsysflow.analysis.frames.intervals import Axis, Cover
from nsysflow.analysis.idle.charged_stalls import AT_THE_START, charged_stalls, since_last_gap
from tests.oracle.model import Overhead
from tests.tiny import MAIN, PROCESS, Row, analysis_of, call, kernel, launch

US = 1_000
SYNC = "cudaStreamSynchronize"


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
    times = {name.removesuffix("_ns"): ns for name, ns in gap.items() if name.endswith("_ns")}
    return {
        name: ns for name, ns in times.items() if ns and name not in ("start", "end", "duration")
    }


def test_a_pause_of_up_to_50_us_between_two_launches_is_launch_overhead_and_longer_host_code() -> (
    None
):
    assert causes() == {"host": 199 * US, "launch": 10}
    assert causes(launch_at=50 * US + 10) == {"launch": 49 * US + 20}
    assert causes(launch_at=50 * US + 11) == {"host": 49 * US + 11, "launch": 10}


def test_queue_time_up_to_10_us_is_a_delay_and_longer_a_dependency() -> None:
    assert causes(queued=10 * US)["queue_delay"] == 10 * US
    assert causes(queued=10 * US + 1)["dependency"] == 10 * US + 1


def test_a_wait_takes_what_it_lasted_in_the_gap() -> None:
    wait = call(20 * US, 80 * US, SYNC)
    assert causes(wait) == {"sync": 60 * US, "host": 120 * US, "launch": 19 * US + 10}


def test_the_profiler_counts_before_every_call_and_a_wait_before_an_allocation() -> None:
    wait, alloc = call(90 * US, 150 * US, SYNC), call(90 * US, 160 * US, "cudaMalloc")
    times = causes(wait, alloc, Overhead(100 * US, 140 * US, PROCESS, MAIN, "flush"))
    assert (times["profiler"], times["sync"], times["alloc"]) == (40 * US, 20 * US, 10 * US)


def test_another_cuda_call_in_a_long_pause_is_api_and_in_a_short_one_launch() -> None:
    assert causes(call(100 * US, 101 * US, "cudaEventQuery"))["api"] == US
    short = causes(call(20 * US, 21 * US, "cudaEventQuery"), launch_at=40 * US)
    assert short == {"launch": 39 * US + 10}


def test_a_gap_whose_launch_is_not_recorded_is_unknown() -> None:
    analysis = analysis_of(launch(0, 10, 1), kernel(20, US, 1), kernel(5 * US, 6 * US, None))
    (gap,) = analysis.gaps.to_dicts()
    assert (gap["cause"], gap["unknown_ns"]) == ("unknown", 4 * US)


AXIS = Axis(origin_ns=0, stride_ns=10_000)

Gap = tuple[int, int, int]
"""The start of a gap, and the start and end of its launch."""


def cover(*stalls: tuple[int, int]) -> Cover:
    return Cover(pl.DataFrame(stalls, schema=["start", "end"], orient="row"))


def waiting(*gaps: Gap, linked: bool = True) -> pl.DataFrame:
    """Gaps of one process on one device."""
    frame = pl.DataFrame(gaps, schema=["start_ns", "next_start_ns", "launched_ns"], orient="row")
    rows = frame.with_row_index("gap").with_columns(
        *(pl.lit(0, pl.UInt32).alias(name) for name in ("device_no", "process_no", "lane")),
        pl.lit(linked).alias("linked"),
        pl.min_horizontal("start_ns", "next_start_ns").alias("h_ns"),
    )
    return rows.with_columns(since_last_gap(rows, AT_THE_START.searched, AXIS))


@pytest.mark.parametrize(
    ("stalls", "gaps", "linked", "expected"),
    [
        pytest.param(
            [(100, 900)], [(1_000, 1_020, 1_030)], True, [30], id="no more than its host time"
        ),
        pytest.param(
            [(900, 910)], [(1_000, 1_020, 1_030)], True, [10], id="no more than the host stalled"
        ),
        pytest.param(
            [(900, 950)],
            [(1_000, 1_010, 1_020), (1_100, 1_110, 1_120), (1_200, 1_210, 1_220)],
            True,
            [20, 20, 10],
            id="what one gap leaves of a stall is charged to the next",
        ),
        pytest.param(
            [(900, 990), (1_050, 1_055)],
            [(1_000, 1_010, 1_020), (1_100, 1_110, 1_130), (1_200, 1_210, 1_230)],
            True,
            [20, 5, 0],
            id="a new stall drops the rest of the one before",
        ),
        pytest.param(
            # 1000..1100 is the host time of the first gap: step 2 charges the stall inside it there
            [(1_010, 1_090)],
            [(1_000, 1_095, 1_100), (1_200, 1_210, 1_220)],
            True,
            [0, 0],
            id="stalled time inside an earlier gap is not charged again",
        ),
        pytest.param([(500, 900)], [(1_000, 400, 1_030)], True, [0], id="none after the launch"),
        pytest.param(
            [(100, 900)], [(1_000, 1_020, 1_030)], False, [0], id="none behind another process"
        ),
    ],
)
def test_a_gap_is_charged(
    stalls: list[tuple[int, int]], gaps: list[Gap], expected: list[int], *, linked: bool
) -> None:
    """All host time can be charged."""
    rows = waiting(*gaps, linked=linked)
    can_give = rows["launched_ns"] - rows["start_ns"]
    charged = charged_stalls(cover(*stalls), AXIS, rows, can_give, AT_THE_START)
    ns = (pl.col("stop") - pl.col("begin")).sum().alias("ns")
    by_gap = dict(charged.charged.group_by("gap").agg(ns).rows())
    assert by_gap == {gap: ns for gap, ns in enumerate(charged.ns) if ns}
    assert charged.ns.to_list() == expected


def test_the_end_of_a_stall_is_charged_first() -> None:
    rows = waiting((300, 300, 400))
    charged = charged_stalls(cover((0, 50), (100, 200)), AXIS, rows, pl.Series([120]), AT_THE_START)
    assert charged.ns.to_list() == [120]
    # in stalled time: 20 of the first stall's 50, and all 100 of the second
    assert charged.charged.select("begin", "stop").rows() == [(30, 150)]
    assert charged.left.select("begin", "stop").rows() == [(0, 30)]
