"""Ranks beside each other, against the twin: who comes late, by clocks aligned at the ends."""

from collections import Counter
from dataclasses import asdict, replace

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks import rank_tables
from nsysflow.analysis.schema import ARRIVALS, COLLECTIVES, RANKS
from nsysflow.report.results import Results
from tests.analyses import EXAMPLES, analysed, loaded
from tests.twin.ranks import Collective, ranks_and_arrivals

NAMES = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "ncclDevKernel_AllGather",
    "ncclKernel_SendRecv",
)


OURS = ("report_no", "looked_at")
"""Of the twin's rows what the table does not have."""


def frames(kernels: list[Collective], reports: int) -> list[pl.DataFrame]:
    """The `COLLECTIVES` of each report."""
    blank = {"phase": "", "busy_ns": 0, "exposed_ns": 0}
    of_report: list[list[dict[str, object]]] = [[] for _ in range(reports)]
    for kernel in sorted(kernels, key=lambda k: (k.device, k.start_ns, k.end_ns, k.stream)):
        of_report[kernel.report_no].append(
            {name: value for name, value in asdict(kernel).items() if name not in OURS} | blank
        )
    return [pl.DataFrame(rows, schema=COLLECTIVES) for rows in of_report]


def rank(number: int, late_ns: int = 0, ahead_ns: int = 0, report: int | None = None) -> Collective:
    """The first collective of a rank: 1 us, from 1 ms on, on a clock that is `ahead_ns` ahead."""
    at_ns = 1_000_000 + ahead_ns
    of = number if report is None else report
    return Collective(
        of, f"rank{of}", 10 + number, number, 7, at_ns + late_ns, at_ns + 1_000, NAMES[0]
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Collective], int]:
    """Up to three reports of one or two ranks each: mostly the same collectives, now and then one
    more or of another kind, on clocks of their own; all looked at, or some."""
    kernels = []
    looked_at = draw(st.sampled_from((st.just(True), st.sampled_from((True, True, True, False)))))
    reports = draw(st.integers(1, 3))
    common = draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from((None, 1, 2)))))
    for report in range(reports):
        ahead_ns = draw(st.integers(-500, 500))
        for device in range(draw(st.integers(1, 2))):
            own = common + draw(st.sampled_from(([], [], [(NAMES[0], None)])))
            at_ns = 1_000 + ahead_ns
            for name, communicator in own:
                at_ns += draw(st.integers(1, 50))
                end_ns = at_ns + draw(st.integers(0, 20))
                size = draw(st.sampled_from((None, 64)))
                kernels.append(
                    Collective(
                        *(report, f"rank{report}", 100 + report, device, 7, at_ns, end_ns),
                        *(name, "ncclAllReduce", size, communicator),
                        looked_at=draw(looked_at),
                    )
                )
                at_ns = end_ns
    return kernels, reports


@settings(max_examples=5 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(runs())
def test_ranks_and_arrivals_of_any_run_are_the_twins(run: tuple[list[Collective], int]) -> None:
    kernels, reports = run
    begun = [kernel for kernel in kernels if kernel.looked_at]
    arrivals, ranks = rank_tables(frames(kernels, reports), frames(begun, reports))
    twin_ranks, twin_arrivals = ranks_and_arrivals(kernels)
    assert ranks.rows() == [tuple(row[name] for name in RANKS) for row in twin_ranks]
    assert arrivals.rows() == [tuple(row[name] for name in ARRIVALS) for row in twin_arrivals]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
# by an even number: halves are rounded to even
@given(runs(), st.integers(-(10**9), 10**9).map(lambda half_ns: 2 * half_ns))
def test_another_clock_of_a_later_report_moves_nothing_but_that_clock(
    run: tuple[list[Collective], int], by_ns: int
) -> None:
    kernels, reports = run
    assume(any(k.report_no == 0 and "Send" not in k.name for k in kernels))  # whose clock it is
    moved = [
        replace(k, start_ns=k.start_ns + by_ns, end_ns=k.end_ns + by_ns) if k.report_no else k
        for k in kernels
    ]
    arrivals, ranks = rank_tables(frames(kernels, reports))
    arrivals_moved, ranks_moved = rank_tables(frames(moved, reports))
    assert arrivals.equals(arrivals_moved)
    assert ranks.drop("clock_ns").equals(ranks_moved.drop("clock_ns"))


def test_a_rank_that_comes_late_is_named_and_the_others_wait_for_it() -> None:
    kernels = [rank(0), rank(1, late_ns=600, ahead_ns=5_000), rank(2, late_ns=100)]
    arrivals, ranks = rank_tables(frames(kernels, 3))
    assert arrivals.select("spread_ns", "last_report", "ends_spread_ns").rows() == [
        (600, "rank1", 0)
    ]
    assert ranks["times_last"].to_list() == [0, 1, 0]
    assert ranks["late_ns"].to_list() == [0, 600, 100]
    assert ranks["waited_ns"].to_list() == [600, 0, 500]
    assert ranks["clock_ns"].to_list() == [0, 5_000, 0]


def test_ranks_in_one_report_share_its_clock() -> None:
    kernels = [rank(0, report=0), rank(1, late_ns=300, ahead_ns=50, report=0)]
    arrivals, ranks = rank_tables(frames(kernels, 1))
    assert ranks["clock_ns"].to_list() == [0, 0]
    assert arrivals["spread_ns"].to_list() == [350]


def test_what_not_all_ranks_did_as_often_is_left_out_and_counted() -> None:
    once_more = replace(rank(1), start_ns=2_000_000, end_ns=2_000_100)
    arrivals, ranks = rank_tables(frames([rank(0), rank(1), once_more], 2))
    assert arrivals.is_empty()
    assert ranks.select("collectives", "matched").rows() == [(1, 0), (2, 0)]


def test_a_window_moves_no_clock_and_takes_no_collective_for_the_next() -> None:
    reports = [loaded(f"h200-ddp-rank{number}") for number in (0, 1)]
    whole = Results([nsysflow.analyze(report) for report in reports])
    # 37 ms apart, the two clocks: the same instants are different steps
    starts = [analysed(report.report).steps["start_ns"].to_list() for report in reports]
    options = Options(from_ns=starts[1][1], to_ns=starts[0][3])
    part = Results([nsysflow.analyze(report, options) for report in reports])
    assert 0 < len(part.table("arrivals")) < len(whole.table("arrivals"))
    assert set(part.table("arrivals").rows()) < set(whole.table("arrivals").rows())
    assert part.table("ranks")["clock_ns"].equals(whole.table("ranks")["clock_ns"])


def test_one_rank_has_nobody_to_wait_for() -> None:
    arrivals, ranks = rank_tables(frames([rank(0)], 1))
    assert arrivals.is_empty()
    assert ranks.is_empty()


def test_in_a_real_run_rank_1_waits_for_rank_0_whose_profiler_started_late() -> None:
    reports = [analysed(f"h200-ddp-rank{number}").collectives for number in (0, 1)]
    arrivals, ranks = rank_tables(reports)
    assert ranks["matched"].to_list() == [30, 30]
    first = arrivals.row(0, named=True)
    assert first["last_report"] == "h200-ddp-rank0"
    assert first["spread_ns"] > 30_000_000
    # from the second step on they are together, as far as the clocks can tell
    assert (arrivals["spread_ns"][6:] < 100_000).all()
    assert (arrivals["ends_spread_ns"] < 50_000).all()
    late, waited = ranks["late_ns"].to_list(), ranks["waited_ns"].to_list()
    assert late == waited[::-1]
    assert Counter(arrivals["last_report"]) == dict(
        ranks.select("report", "times_last").iter_rows()
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_which_report_comes_first_only_chooses_the_clock(swapped: bool) -> None:
    names = ["h200-ddp-rank0", "h200-ddp-rank1"]
    reports = [analysed(name).collectives for name in (names[::-1] if swapped else names)]
    arrivals, ranks = rank_tables(reports)
    by_name = {row["report"]: row for row in ranks.to_dicts()}
    assert by_name["h200-ddp-rank0"]["late_ns"] > 100 * by_name["h200-ddp-rank1"]["late_ns"]
    assert arrivals.height == 30
