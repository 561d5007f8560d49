"""Which stalled time is charged to a gap, on gaps and stalls written by hand."""

import polars as pl

from nsysflow.analysis.frames.intervals import Axis, Cover
from nsysflow.analysis.gaps.charged_stalls import AT_THE_START, charged_stalls, since_last_gap

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
