"""Ranks written down by hand: who meets whom, on whose clock, who is late, and what that costs."""

from dataclasses import replace

import pytest

from tests.oracle.ranks import Collective
from tests.runs_of_ranks import NAMES, ranks_of


def rank(number: int, late_ns: int = 0, ahead_ns: int = 0, report: int | None = None) -> Collective:
    """The first collective of a rank: 1 us, from 1 ms on, on a clock that is `ahead_ns` ahead."""
    at_ns = 1_000_000 + ahead_ns
    of = number if report is None else report
    return Collective(
        *(of, f"rank{of}", 10 + number, number, 7, at_ns + late_ns, at_ns + 1_000, NAMES[0]),
        until=(0, 0, 1_000 - late_ns),
    )


def test_a_straggler_is_named_and_the_others_wait_for_it() -> None:
    found = ranks_of([rank(0), rank(1, late_ns=600, ahead_ns=5_000), rank(2, late_ns=100)], 3)
    assert found.arrivals.select(
        "spread_ns", "last_report", "ends_spread_ns", "cost_ns", "done_ns"
    ).rows() == [(600, "rank1", 0, 500, 400)]
    assert found.ranks["times_last"].to_list() == [0, 1, 0]
    assert found.ranks["late_ns"].to_list() == [0, 600, 100]
    assert found.ranks["waited_ns"].to_list() == [600, 0, 500]
    assert found.ranks["cost_ns"].to_list() == [0, 500, 0]
    assert found.ranks["clock_ns"].to_list() == [0, 5_000, 0]


def test_a_wait_that_compute_hides_costs_nothing() -> None:
    hidden = [replace(each, until=(0, 0, 0)) for each in (rank(0), rank(1, late_ns=600))]
    found = ranks_of(hidden, 2)
    assert found.ranks["waited_ns"].to_list() == [600, 0]
    assert found.ranks["cost_ns"].to_list() == [0, 0]


def bucket(
    number: int, start_ns: int, end_ns: int, *, exposed_ns: int, before_ns: int = 0
) -> Collective:
    """A collective of a rank, of which this much is exposed."""
    times = (start_ns, end_ns, NAMES[0])
    spent = (0, 0, before_ns), (0, 0, before_ns + exposed_ns)
    of_rank = (number, f"rank{number}", 10, number, 7)
    return replace(Collective(*of_rank, *times), before=spent[0], until=spent[1])


def test_a_delay_costs_the_transfers_too_that_compute_no_longer_hides() -> None:
    # both wait for rank 1, which is 1 us late: in the first compute goes on, in the second not
    found = ranks_of(
        [
            bucket(0, 1_000, 3_000, exposed_ns=0),
            bucket(0, 3_000, 5_000, exposed_ns=1_500),
            bucket(1, 2_000, 3_000, exposed_ns=0),
            bucket(1, 4_500, 5_000, exposed_ns=500),
        ],
        2,
    )
    assert found.ranks.select("late_ns", "cost_ns").rows() == [(0, 0), (2_500, 1_000)]
    assert found.arrivals["cost_ns"].to_list() == [0, 1_000]


def test_exposed_time_is_of_the_collective_that_started_last() -> None:
    around, inside = (
        bucket(0, 0, 100, exposed_ns=30),
        bucket(0, 40, 60, exposed_ns=15, before_ns=5),
    )
    kernels = ranks_of([around, inside], 1).matched.kernels
    assert kernels["exposed_ns"].to_list() == [15, 15]


@pytest.mark.parametrize("communicator", [None, 5])
def test_what_one_rank_recorded_for_longer_than_the_others_is_left_out(
    communicator: int | None,
) -> None:
    def at(number: int, turn: int) -> Collective:
        begun = rank(number, ahead_ns=1_000_000 * turn)
        return replace(begun, communicator=communicator)

    kernels = [at(0, turn) for turn in range(20)] + [at(1, turn) for turn in range(22)]
    found = ranks_of(kernels, 2)
    assert found.ranks.select("collectives", "matched").rows() == [(20, 20), (22, 20)]


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
def test_two_independent_groups_are_two_groups_in_which_nobody_is_late(ahead_ns: int) -> None:
    found = ranks_of(pairs(40, 200_000, ahead_ns), 4)
    assert found.rank_groups["members"].to_list() == ["0,1", "2,3"]
    assert found.ranks["matched"].to_list() == [40] * 4
    assert found.ranks["late_ns"].to_list() == [0] * 4
    # nothing joins the second pair's clocks to the first report's
    assert found.ranks["clock_ns"].to_list() == [0, ahead_ns, None, None]


def test_groups_that_run_alike_are_told_apart_by_how_well_their_ends_agree() -> None:
    # both pairs do the same, but the second one's collectives come up to 20 us sooner or later
    jitter_ns = (0, 15_000, -20_000, 5_000, 20_000, -10_000, 0, 10_000)
    kernels = [
        replace(each, start_ns=each.start_ns + by_ns, end_ns=each.end_ns + by_ns)
        for number, each in enumerate(pairs(40, 0, 0))
        for by_ns in (jitter_ns[number % 8] * (each.report_no > 1),)
    ]
    assert ranks_of(kernels, 4).rank_groups["members"].to_list() == ["0,1", "2,3"]


def test_a_chain_of_groups_aligns_all_clocks() -> None:
    # of another name, every 10 ms: rank 3 is always 20 us late
    ahead_ns = 3_000_000_777
    together = [
        Collective(*(rank, f"rank{rank}", 10, rank, 7, start_ns, at_ns + 50_000), NAMES[1])
        for rank in range(4)
        for at_ns in (rank * ahead_ns + number * 10_000_000 for number in range(5))
        for start_ns in (at_ns + (rank == 3) * 20_000,)
    ]
    found = ranks_of(pairs(40, 200_000, ahead_ns) + together, 4)
    assert found.rank_groups.sort("group")["members"].to_list() == ["0-3", "0,1", "2,3"]
    assert found.ranks["clock_ns"].to_list() == [rank * ahead_ns for rank in range(4)]
    assert found.ranks["late_ns"].to_list() == [0, 0, 0, 100_000]
    assert found.ranks["waited_ns"].to_list() == [100_000] * 3 + [0]


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
    found = ranks_of(kernels, 2)
    assert found.arrivals.is_empty()
    assert found.ranks["clock_ns"].null_count() == 2


def test_only_the_short_collective_that_ends_apart_is_left_out() -> None:
    # the second report's clock is 28 us off at one of them, which takes 8 us
    kernels = [
        Collective(*(rank, f"rank{rank}", 10, rank, 7, at_ns, at_ns + lasts_ns), NAMES[0])
        for rank in range(2)
        for number, lasts_ns in enumerate((250_000, 250_000, 8_000, 250_000))
        for at_ns in (number * 1_000_000 + (number == 2) * rank * 28_000,)
    ]
    found = ranks_of(kernels, 2)
    assert found.arrivals["collective"].to_list() == [0, 1, 3]
    assert found.ranks.select("collectives", "matched").rows() == [(4, 3), (4, 3)]
