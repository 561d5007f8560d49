"""How busy a GPU is, and how far the host runs ahead."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.report.perfetto.trace import bin_ns, busy_share, run_ahead
from tests.analyses import analysed, few_reports


def times(*rows: tuple[int, int], names: tuple[str, str] = ("start_ns", "end_ns")) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")


def busy(*gaps: tuple[int, int], start: int, end: int) -> list[tuple[int, float]]:
    return busy_share(times(*gaps), start, end).rows()


@pytest.mark.parametrize(
    ("window_ns", "width_ns"),
    [(0, 1), (1000, 1), (1001, 2), (2001, 5), (5001, 10), (10**9, 10**6), (10**9 + 1, 2 * 10**6)],
)
def test_a_bin_is_a_round_time(window_ns: int, width_ns: int) -> None:
    assert bin_ns(window_ns) == width_ns


def test_a_gap_takes_its_part_of_a_bin() -> None:
    found = dict(busy((1_001, 1_003), (1_999, 2_004), start=1_000, end=5_000))
    assert (found[1_000], found[1_005]) == (60.0, 100.0)
    assert (found[1_995], found[2_000], found[2_005]) == (80.0, 20.0, 100.0)
    assert found[5_000] == 0.0


def test_the_last_bin_may_be_short() -> None:
    found = busy((1_600, 1_601), start=0, end=1_601)
    assert found[-2:] == [(1_600, 0.0), (1_601, 0.0)]


@given(st.lists(st.integers(1, 400), min_size=2, max_size=40))
def test_the_shares_are_those_that_a_slow_count_finds(lengths: list[int]) -> None:
    ends = [sum(lengths[: index + 1]) for index in range(len(lengths))]
    gaps = [*zip(ends[0::2], ends[1::2], strict=False)]
    end = ends[-1] + 7
    idle = {at for first, last in gaps for at in range(first, last)}
    width = bin_ns(end)
    slow = [
        (
            first,
            100
            * len({*range(first, min(first + width, end))} - idle)
            / (min(first + width, end) - first),
        )
        for first in range(0, end, width)
    ]
    found = busy(*gaps, start=0, end=end)
    assert [at for at, _ in found] == [*(at for at, _ in slow), end]
    assert [share for _, share in found] == pytest.approx([*(share for _, share in slow), 0.0])


def ahead(*launched: tuple[int, int]) -> list[tuple[int, int]]:
    return run_ahead(times(*launched, names=("call_ns", "start_ns"))).rows()


def test_an_operation_is_queued_from_its_launch_until_it_starts() -> None:
    assert ahead((10, 30), (20, 40)) == [(10, 1), (20, 2), (30, 1), (40, 0)]


def test_what_starts_when_the_next_is_launched_changes_nothing() -> None:
    assert ahead((10, 20), (20, 40)) == [(10, 1), (40, 0)]


def test_what_starts_before_its_launch_is_queued_for_a_ns() -> None:
    assert ahead((10, 5)) == [(10, 1), (11, 0)]


def test_nothing_launched_is_nothing_queued() -> None:
    assert ahead() == []


@few_reports
def test_it_is_the_run_ahead_of_each_launch(name: str) -> None:
    timeline = analysed(name).timeline
    launches, ops = timeline.launches, timeline.events.ops
    called = ops.drop_nulls("call")
    call_ns = timeline.events.calls["start_ns"].gather(called["call"])
    for (process,), rows in called.with_columns(call_ns.alias("call_ns")).group_by("process"):
        queued, call_at = run_ahead(rows), rows["call_ns"].sort()
        mine = launches.filter(pl.Series(ops["process"].gather(launches["op"])) == process)
        starts = timeline.events.calls["start_ns"].gather(mine["call"])
        # what is launched at the same time was not launched before
        row = queued["time_ns"].search_sorted(starts, side="right").cast(pl.Int64) - 1
        same = call_at.search_sorted(starts, side="right") - call_at.search_sorted(starts)
        ahead_of = queued["value"].gather(row.set(row < 0, None)).fill_null(0) - same
        assert ahead_of.to_list() == mine["run_ahead"].to_list()
