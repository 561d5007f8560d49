"""Ranks compared with the oracle: the straggler, by clocks aligned at the ends."""

from collections import Counter
from dataclasses import asdict, replace

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.arrivals import rank_tables
from nsysflow.analysis.tables.schema import ARRIVALS, COLLECTIVES, RANKS
from nsysflow.report.results import Results
from tests.analyses import EXAMPLES, analysed, loaded
from tests.oracle.ranks import Collective, matched, ranks_and_arrivals

NAMES = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "ncclDevKernel_AllGather",
    "ncclKernel_SendRecv",
)
STEPS = st.tuples(st.sampled_from(NAMES), st.sampled_from((None, None, None, 1, 2)), st.booleans())
"""A collective: its name, communicator, and whether each group has its own."""

MANY = settings(max_examples=5 * EXAMPLES, suppress_health_check=list(HealthCheck))
"""Many examples: in most random layouts nothing matches, or everything does."""

OF_RANKS = [
    name for name in RANKS if not name.startswith(("rank", "cost", "late_")) or name == "late_ns"
]
OF_ARRIVALS = [
    name for name in ARRIVALS if name not in ("group", "last_rank", "cost_ns", "done_ns")
]

OURS = ("report_no", "in_window")
"""The fields of the oracle's rows that the table does not have."""


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


def each_of(name: str) -> pl.DataFrame:
    """The collectives of a real report."""
    return analysed(name).digest.collectives.with_columns(report=pl.lit(name))


@st.composite
def runs(draw: st.DrawFn, groups: int = 2) -> tuple[list[Collective], int]:
    """Up to three reports of one or two ranks each, with their own clocks, all or some selected.

    In one group, all ranks do every collective together. Of two groups, each also has its own
    collectives, of the same names and counts and at its own pace; sometimes a rank has one more.
    The ends of a collective are up to 5 ns apart. With one group it takes at least 40 ns.
    """
    reports = draw(st.integers(1, 3))
    ranks = [(report, gpu) for report in range(reports) for gpu in range(draw(st.integers(1, 2)))]
    of = {rank: draw(st.integers(0, groups - 1)) for rank in ranks}
    parties = [[rank for rank in ranks if of[rank] == each] for each in range(groups)]
    ahead_ns = [draw(st.integers(-500, 500)) for _ in range(reports)]
    pace_ns = [draw(st.integers(0, 40)) for _ in range(groups)]
    lasts_ns = st.integers(40, 80) if groups == 1 else st.sampled_from((0, 3, 40, 80))
    in_window = draw(st.sampled_from((st.just(True), st.sampled_from((True, True, True, False)))))
    at_ns = dict.fromkeys(ranks, 1_000)
    kernels = []

    def meet(members: list[tuple[int, int]], name: str, communicator: int | None) -> None:
        starts = [at_ns[rank] + pace_ns[of[rank]] + draw(st.integers(0, 30)) for rank in members]
        last_ns = max(starts, default=0) + draw(lasts_ns)
        for rank, start_ns in zip(members, starts, strict=True):
            at_ns[rank] = last_ns + draw(st.integers(0, 5))
            times = (start_ns + ahead_ns[rank[0]], at_ns[rank] + ahead_ns[rank[0]])
            kernels.append(
                Collective(
                    *(rank[0], f"rank{rank[0]}", 100 + rank[0], rank[1], 7, *times, name),
                    *("ncclAllReduce", draw(st.sampled_from((None, 64))), communicator),
                    in_window=draw(in_window),
                )
            )

    for name, communicator, apart in draw(st.lists(STEPS, max_size=12)):
        for members in parties if apart else [ranks]:
            meet(members, name, communicator)
    if groups > 1 and draw(st.integers(0, 3)) == 3:
        meet(ranks[-1:], NAMES[0], None)
    return kernels, reports


@MANY
@given(runs())
def test_ranks_and_arrivals_of_any_run_agree_with_the_oracle(
    run: tuple[list[Collective], int],
) -> None:
    kernels, reports = run
    begun = [kernel for kernel in kernels if kernel.in_window]
    arrivals, ranks = rank_tables(frames(kernels, reports), frames(begun, reports))
    oracle_ranks, oracle_arrivals = ranks_and_arrivals(kernels)
    assert ranks.select(OF_RANKS).rows() == [
        tuple(row[name] for name in OF_RANKS) for row in oracle_ranks
    ]
    assert arrivals.select(OF_ARRIVALS).rows() == [
        tuple(row[name] for name in OF_ARRIVALS) for row in oracle_arrivals
    ]


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
# an even number, because halves are rounded to even
@given(runs(), st.integers(-(10**9), 10**9).map(lambda half_ns: 2 * half_ns))
def test_shifting_the_clock_of_a_later_report_changes_only_that_clock(
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


@MANY
@given(runs())
def test_no_rank_waits_longer_than_its_own_kernels_take(
    run: tuple[list[Collective], int],
) -> None:
    kernels, reports = run
    begun = [kernel for kernel in kernels if kernel.in_window]
    _, ranks = rank_tables(frames(kernels, reports), frames(begun, reports))
    own_ns: Counter[tuple[str, int]] = Counter()
    for kernel in begun:
        own_ns[kernel.report, kernel.device] += kernel.end_ns - kernel.start_ns
    for report, device, waited_ns in ranks.select("report", "device", "waited_ns").iter_rows():
        assert (waited_ns or 0) <= own_ns[report, device]


@MANY
@given(runs())
def test_the_kernels_of_a_matched_collective_all_overlap(
    run: tuple[list[Collective], int],
) -> None:
    kernels, reports = run
    arrivals, ranks = rank_tables(frames(kernels, reports))
    ahead_ns = dict(ranks.select("report", "clock_ns").iter_rows())
    of_rank: dict[tuple[int, int], list[Collective]] = {}
    for kernel in kernels:
        if kernel.name != NAMES[2]:
            of_rank.setdefault((kernel.report_no, kernel.device), []).append(kernel)
    candidates = matched([of_rank[rank] for rank in sorted(of_rank)]) if len(ranks) else []
    for row in arrivals.iter_rows(named=True):
        ends = [k.end_ns - ahead_ns[k.report] for k in candidates[row["collective"]]]
        assert row["start_ns"] + row["spread_ns"] < min(ends)


@MANY
@given(runs(groups=1))
def test_every_collective_is_matched_if_all_ranks_take_part(
    run: tuple[list[Collective], int],
) -> None:
    kernels, reports = run
    arrivals, ranks = rank_tables(frames(kernels, reports))
    common = [k for k in kernels if k.name != NAMES[2]]
    assert ranks["collectives"].to_list() == [len(arrivals)] * len(ranks)
    if not ranks.is_empty():
        assert len(arrivals) * len(ranks) == len(common)


def test_a_straggler_is_named_and_the_others_wait_for_it() -> None:
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


def test_collectives_with_unequal_counts_are_counted_and_not_matched() -> None:
    once_more = replace(rank(1), start_ns=2_000_000, end_ns=2_000_100)
    arrivals, ranks = rank_tables(frames([rank(0), rank(1), once_more], 2))
    assert arrivals.is_empty()
    assert ranks.select("collectives", "matched").rows() == [(1, 0), (2, 0)]


def pairs(count: int, slower_ns: int, ahead_ns: int) -> list[Collective]:
    """The collectives of two pairs of ranks, with a report each.

    Each takes 100 us, every millisecond, in the second pair every millisecond and `slower_ns`. No
    rank is ever late.
    """
    return [
        Collective(*(rank, f"rank{rank}", 10, rank, 7, start_ns, start_ns + 100_000), NAMES[0])
        for rank in range(4)
        for start_ns in (
            rank * ahead_ns + number * (1_000_000 + (rank > 1) * slower_ns)
            for number in range(count)
        )
    ]


@pytest.mark.parametrize("ahead_ns", [0, 3_000_000_777])
def test_two_independent_groups_have_no_straggler(ahead_ns: int) -> None:
    arrivals, ranks = rank_tables(frames(pairs(40, 200_000, ahead_ns), 4))
    assert arrivals.is_empty()
    assert ranks["collectives"].to_list() == [40] * 4
    for name in ("late_ns", "waited_ns", "clock_ns", "residual_ns"):
        assert ranks[name].null_count() == 4


def test_clocks_come_from_collectives_of_all_ranks_even_if_groups_have_more() -> None:
    # of another name, every 10 ms: rank 3 is always 20 us late
    ahead_ns = 3_000_000_777
    together = [
        Collective(*(rank, f"rank{rank}", 10, rank, 7, start_ns, at_ns + 50_000), NAMES[1])
        for rank in range(4)
        for at_ns in (rank * ahead_ns + number * 10_000_000 for number in range(5))
        for start_ns in (at_ns + (rank == 3) * 20_000,)
    ]
    arrivals, ranks = rank_tables(frames(pairs(40, 200_000, ahead_ns) + together, 4))
    assert arrivals["name"].to_list() == [NAMES[1]] * 5
    assert ranks["matched"].to_list() == [5] * 4
    assert ranks["clock_ns"].to_list() == [rank * ahead_ns for rank in range(4)]
    assert ranks["late_ns"].to_list() == [0, 0, 0, 100_000]
    assert ranks["waited_ns"].to_list() == [100_000] * 3 + [0]


def test_collectives_whose_clocks_disagree_align_no_clock() -> None:
    # each name alone would match: by one, rank 1 is 5 ms ahead, by the other not at all
    kernels = [
        Collective(*(rank, f"rank{rank}", 10, rank, 7, at_ns, at_ns + 100_000), name)
        for rank in range(2)
        for which, name in enumerate(NAMES[:2])
        for at_ns in (
            number * 1_000_000 + which * 500_000 + rank * which * 5_000_000 for number in range(9)
        )
    ]
    arrivals, ranks = rank_tables(frames(kernels, 2))
    assert arrivals.is_empty()
    assert ranks["clock_ns"].null_count() == 2


def test_only_the_short_collective_that_ends_apart_is_left_out() -> None:
    # the second report's clock is 28 us off at one of them, which takes 8 us
    kernels = [
        Collective(*(rank, f"rank{rank}", 10, rank, 7, at_ns, at_ns + lasts_ns), NAMES[0])
        for rank in range(2)
        for number, lasts_ns in enumerate((250_000, 250_000, 8_000, 250_000))
        for at_ns in (number * 1_000_000 + (number == 2) * rank * 28_000,)
    ]
    arrivals, ranks = rank_tables(frames(kernels, 2))
    assert arrivals["collective"].to_list() == [0, 1, 3]
    assert ranks.select("collectives", "matched").rows() == [(4, 3), (4, 3)]


def test_a_window_changes_neither_clocks_nor_matches() -> None:
    reports = [loaded(f"h200-ddp-rank{number}") for number in (0, 1)]
    whole = Results([nsysflow.analyze(report) for report in reports])
    # the two clocks are 37 ms apart: the same instants are in different steps
    starts = [analysed(report.report).steps["start_ns"].to_list() for report in reports]
    options = Options(from_ns=starts[1][1], to_ns=starts[0][3])
    part = Results([nsysflow.analyze(report, options) for report in reports])
    assert 0 < len(part.table("arrivals")) < len(whole.table("arrivals"))
    assert set(part.table("arrivals").rows()) < set(whole.table("arrivals").rows())
    assert part.table("ranks")["clock_ns"].equals(whole.table("ranks")["clock_ns"])


def test_a_single_rank_has_no_rows() -> None:
    arrivals, ranks = rank_tables(frames([rank(0)], 1))
    assert arrivals.is_empty()
    assert ranks.is_empty()


def test_in_a_real_run_rank_1_waits_for_rank_0_whose_profiler_started_late() -> None:
    reports = [each_of(f"h200-ddp-rank{number}") for number in (0, 1)]
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
def test_the_first_report_only_decides_whose_clock_is_used(swapped: bool) -> None:
    names = ["h200-ddp-rank0", "h200-ddp-rank1"]
    reports = [each_of(name) for name in (names[::-1] if swapped else names)]
    arrivals, ranks = rank_tables(reports)
    by_name = {row["report"]: row for row in ranks.to_dicts()}
    assert by_name["h200-ddp-rank0"]["late_ns"] > 100 * by_name["h200-ddp-rank1"]["late_ns"]
    assert arrivals.height == 30
