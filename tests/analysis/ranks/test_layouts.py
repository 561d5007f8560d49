"""Runs by hand and simulated ones: groups, outliers, and all figures as the oracle has them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.outliers import PARTS
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.ranks.stragglers import numbers, where_it_starts
from tests.analyses import EXAMPLES, analysed
from tests.analysis.ranks.test_ranks import assert_agree
from tests.oracle.rank_bandwidth import outliers
from tests.oracle.ranks import Collective, matched
from tests.runs_of_ranks import NAMES, Simulated, Step, digests_of, ranks_of

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
SHARDED = "ncclDevKernel_AllGather_RING_LL"
SEND_RECV = "ncclDevKernel_SendRecv"
DELAY_NS = 500_000
AHEAD_NS = 3_000_000_777

Layout = Simulated | Sequence[Collective]
Delay = Callable[[Simulated, int, int], None]
"""What one rank does in a step before a collective, by the step and the rank."""


def of(number: int, start_ns: int, end_ns: int, name: str = NAMES[0]) -> Collective:
    """A collective of a rank that has a report of its own."""
    return Collective(number, f"rank{number}", 10 + number, number, 7, start_ns, end_ns, name)


def rank(number: int, late_ns: int = 0, ahead_ns: int = 0) -> Collective:
    """The first collective of a rank: 1 us, from 1 ms on, on a clock that is `ahead_ns` ahead."""
    at_ns = 1_000_000 + ahead_ns
    return replace(of(number, at_ns + late_ns, at_ns + 1_000), until=(0, 0, 1_000 - late_ns))


def bucket(number: int, start_ns: int, end_ns: int, *, exposed_ns: int) -> Collective:
    """A collective of a rank, of which this much is exposed."""
    return replace(of(number, start_ns, end_ns), until=(0, 0, exposed_ns))


def longer(communicator: int | None) -> list[Collective]:
    """Two ranks, of which the second recorded two collectives more."""
    turns = ((number, turn) for number, count in enumerate((20, 22)) for turn in range(count))
    every = (rank(number, ahead_ns=1_000_000 * turn) for number, turn in turns)
    return [replace(each, communicator=communicator) for each in every]


def pairs(slower_ns: int, ahead_ns: int) -> list[Collective]:
    """The collectives of two pairs of ranks: each takes 100 us, every millisecond, in the second
    pair every millisecond and `slower_ns`. No rank is ever late."""
    return [
        of(number, start_ns, start_ns + 100_000)
        for number in range(4)
        for start_ns in (
            number * ahead_ns + turn * (1_000_000 + (number > 1) * slower_ns) for turn in range(40)
        )
    ]


JITTER_NS = (0, 15_000, -20_000, 5_000, 20_000, -10_000, 0, 10_000)
ALIKE = [
    replace(each, start_ns=each.start_ns + by_ns, end_ns=each.end_ns + by_ns)
    for number, each in enumerate(pairs(0, 0))
    for by_ns in (JITTER_NS[number % 8] * (each.report_no > 1),)
]
"""Both pairs do the same, but the second one's collectives come up to 20 us sooner or later."""
CHAIN = [
    of(number, at_ns + (number == 3) * 20_000, at_ns + 50_000, NAMES[1])
    for number in range(4)
    for at_ns in (number * AHEAD_NS + turn * 10_000_000 for turn in range(5))
]
"""All four together every 10 ms: rank 3 is always 20 us late."""
DISAGREEING = [
    of(number, at_ns, at_ns + 100_000, name)
    for number in range(2)
    for which, name in enumerate(NAMES[:2])
    for at_ns in (
        turn * 1_000_000 + which * 500_000 + number * which * 5_000_000 for turn in range(9)
    )
]
"""Each name alone would match: by one, rank 1 is 5 ms ahead, by the other not at all."""
APART = [
    of(number, at_ns, at_ns + lasts_ns)
    for number in range(2)
    for turn, lasts_ns in enumerate((250_000, 250_000, 8_000, 250_000))
    for at_ns in (turn * 1_000_000 + (turn == 2) * number * 28_000,)
]
"""The second report's clock is 28 us off at one of them, which takes 8 us."""


def nothing(run: Simulated, step: int, rank: int) -> None:
    """Every rank does the same."""


def tensor_and_data(delay: Delay = nothing, *, stated: bool = True) -> Simulated:
    """Two by two ranks, three steps of four layers: activations are all-reduced in 0,1 and 2,3, and
    gradients scattered in 0,2 and 1,3. Without communicators, layers vary by some us."""
    run = Simulated(4, ahead_ns=(0, 7_000_000, -3_000_000, 40_000))
    for step in range(3):
        run.begin_step()
        for layer in range(4):
            for rank in range(4):
                run.compute(rank, 200_000 + 7_000 * ((layer * rank + step) % 5))
                if layer == 2:
                    delay(run, step, rank)
            for pair in (0, 1):
                ranks = (2 * pair, 2 * pair + 1)
                run.meet(ranks, ALL_REDUCE, communicator=1 + pair if stated else None)
        for rank in range(4):
            run.compute(rank, 50_000 + 11_000 * ((rank % 2 * 2 + step * (rank % 2 + 1)) % 5))
        for shard in (0, 1):
            ranks = (shard, shard + 2)
            run.meet(ranks, REDUCE_SCATTER, ns=300_000, communicator=11 + shard if stated else None)
    return run


def delayed(reason: str) -> Simulated:
    """The same with a delay of rank 1 in each step."""

    def late(run: Simulated, step: int, rank: int) -> None:
        spend = {"work": run.compute, "copy": run.copy, "host": run.idle}
        if rank == 1:
            spend[reason](rank, DELAY_NS)

    return tensor_and_data(late)


def computed_ahead() -> Simulated:
    """Rank 1 sleeps in each step. The others compute all of theirs beside the first collective, so
    that rank 1 computes alone between the first and the second."""
    run = Simulated(4)
    run.meet(range(4), ALL_REDUCE)
    for _ in range(6):
        run.begin_step()
        run.idle(1, 6_000_000)
        for rank in range(4):
            run.compute(rank, 2_000_000 if rank == 1 else 4_000_000)
        run.meet(range(4), ALL_REDUCE)
        for rank in range(4):
            run.compute(rank, 2_000_000 if rank == 1 else 10_000)
        run.meet(range(4), ALL_REDUCE)
        for rank in range(4):
            run.compute(rank, 500_000)
    return run


def together(steps: int, name: str, communicator: int | None = None) -> Simulated:
    """Four ranks meet in each step; every fifth time rank 2 is late."""
    run = Simulated(4)
    for step in range(steps):
        run.begin_step()
        for rank in range(4):
            run.compute(rank, 1_000_000 + 1_000 * (rank * step % 4) * (communicator is not None))
            if rank == 2 and step % 5 == 3:
                run.idle(rank, DELAY_NS)
        run.meet(range(4), name, communicator=communicator)
    return run


def pipeline(*, stated: bool) -> Simulated:
    """Four stages that send to the next one; a receive waits for its sender by nature."""
    run = Simulated(4)
    for _ in range(4):
        run.begin_step()
        for micro in range(3):
            for stage in range(4):
                run.compute(stage, 300_000 + 20_000 * stage + 5_000 * micro)
                if stage < 3:
                    communicator = 5 + stage if stated else None
                    ranks = (stage, stage + 1)
                    run.meet(ranks, SEND_RECV, communicator=communicator, stream=20 + stage)
    return run


def linked(slow: tuple[int, int] = (-1, -1), *, count: int = 4) -> Simulated:
    """Pairs of ranks that reduce in each of five steps: 100 us, but 150 us in one pair and from one
    step on."""
    run = Simulated(2 * count)
    for step in range(5):
        run.begin_step()
        for pair in range(count):
            ranks = (2 * pair, 2 * pair + 1)
            for rank in ranks:
                run.compute(rank, 500_000)
            late = pair == slow[0] and step >= slow[1]
            run.meet(ranks, ALL_REDUCE, ns=150_000 if late else 100_000, communicator=1 + pair)
    return run


def sized() -> Simulated:
    """Collectives of which the bus moves other shares."""
    run = Simulated(4)
    for _ in range(3):
        for rank in range(4):
            run.compute(rank, 200_000)
        run.meet(range(4), ALL_REDUCE, ns=100_000, communicator=1, size=4_000_000)
        run.meet(range(4), SHARDED, ns=200_000, communicator=1, size=1_000_000)
    return run


GRID, PAIRS = "TP 0,1; DP 0,2; DP 1,3; TP 2,3", " 0,1;  2,3"
LINKED = "DP 0,1; DP 2,3; DP 4,5; DP 6,7"
LAYOUTS: dict[str, tuple[str, Layout]] = {
    "a straggler": (
        "all 0-2",
        [rank(0), rank(1, late_ns=600, ahead_ns=5_000), rank(2, late_ns=100)],
    ),
    "a wait that compute hides": (
        "all 0,1",
        [replace(each, until=(0, 0, 0)) for each in (rank(0), rank(1, late_ns=600))],
    ),
    # both wait for rank 1, which is 1 us late: in the first compute goes on, in the second not
    "a delay that leaves transfers exposed": (
        "all 0,1",
        [
            *(bucket(0, 1_000, 3_000, exposed_ns=0), bucket(0, 3_000, 5_000, exposed_ns=1_500)),
            *(bucket(1, 2_000, 3_000, exposed_ns=0), bucket(1, 4_500, 5_000, exposed_ns=500)),
        ],
    ),
    "a collective inside another": (
        "",
        [
            bucket(0, 0, 100, exposed_ns=30),
            replace(bucket(0, 40, 60, exposed_ns=20), before=(0, 0, 5)),
        ],
    ),
    "what one rank recorded for longer": ("all 0,1", longer(None)),
    "the same with a communicator": ("all 0,1", longer(5)),
    "independent groups": (PAIRS, pairs(200_000, 0)),
    "independent groups with clocks apart": (PAIRS, pairs(200_000, AHEAD_NS)),
    "groups that run alike, told apart by how well their ends agree": (PAIRS, ALIKE),
    "a chain of groups that aligns all clocks": (
        f"all 0-3; {PAIRS}",
        pairs(200_000, AHEAD_NS) + CHAIN,
    ),
    "clocks that disagree": ("", DISAGREEING),
    "a short collective that ends apart": ("all 0,1", APART),
    "tensor and data parallel": (GRID, tensor_and_data()),
    "the same without communicators": (GRID, tensor_and_data(stated=False)),
    **{f"a delay by {reason}": (GRID, delayed(reason)) for reason in ("work", "copy", "host")},
    "a delay beside which the others compute ahead": ("all 0-3", computed_ahead()),
    "a delay every fifth step": ("all 0-3", together(10, ALL_REDUCE)),
    "sends and receives that join a pipeline": ("PP 0-3", pipeline(stated=True)),
    "the same pipeline without communicators": ("PP 0-3", pipeline(stated=False)),
    "sends and receives of all ranks": ("EP 0-3", together(4, SEND_RECV, 3)),
    "links of one speed": (LINKED, linked()),
    "a slow link": (LINKED, linked((2, 0))),
    "a link that gets slow": ("all 0,1", linked((0, 4), count=1)),
    "operations of other shares of the bus": ("all 0-3", sized()),
}
"""By name the kinds and members of its groups, and the run."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_run_has_its_groups_and_the_figures_of_the_oracle(name: str) -> None:
    groups, run = LAYOUTS[name]
    if isinstance(run, Simulated):
        found, kernels, reports = Ranks.of(run.digests()), run.kernels, run.ranks
    else:
        reports = 1 + max(each.report_no for each in run)
        found, kernels = ranks_of(run, reports), [*run]
    rows = found.rank_groups.sort("group").select("kind", "members").rows()
    assert "; ".join(f"{kind or ''} {members}" for kind, members in rows) == groups
    assert_agree(found, matched(kernels, reports))


def test_what_the_others_computed_ahead_is_no_reason_for_a_delay() -> None:
    (row,) = Ranks.of(computed_ahead().digests()).rank_groups.to_dicts()
    assert (row["rank"], row["cost_work_ns"]) == (1, 0)
    assert row["cost_host_ns"] == row["cost_ns"] > 6 * 5_000_000


def test_a_rank_alone_has_no_slow_link_and_no_straggler() -> None:
    both = linked((0, 4), count=1)
    assert Ranks.of(both.digests()).bandwidth["slow_ns"].sum() > 0
    alone = ranks_of([each for each in both.kernels if each.report_no == 0], 1)
    assert alone.bandwidth["slow_ns"].to_list() == [None]
    assert alone.rank_groups.is_empty()
    assert Ranks.of([]).ranks.is_empty()


def test_a_real_run_reaches_half_of_nvlink_s_peak() -> None:
    run = Ranks.of([digest(analysed(f"ddp-bucketed-rank{rank}")) for rank in (0, 1)])
    (row,) = run.bandwidth.to_dicts()
    assert row["peak_bytes_per_s"] == 450e9
    assert 40 < row["peak_pct"] < 60


def test_members_are_written_as_short_as_they_can_be() -> None:
    some = [0, 1], [4, 5, 6, 7], [0, 8, 16, 24, 32], [0, 3, 4]
    assert [*map(numbers, some)] == ["0,1", "4-7", "0,8,…,32", "0,3,4"]


def test_a_straggler_begins_where_most_other_groups_wait_even_if_another_loses_more() -> None:
    own = [(0, 0, None, 900), (1, 0, None, 100)]  # the straggler itself holds these up
    waiting = [(2, 1_000, 0, 0), (3, 1_000, 1, 0), (4, 1_000, 1, 0)]  # because another one waits
    columns = ("group", "cost_group_ns", "through", "saved_step_ns")
    groups = pl.DataFrame([*own, *waiting], schema=columns, orient="row")
    groups = groups.with_columns(cost_ns=pl.lit(1_000), cost_step_ns=pl.lit(500))
    assert where_it_starts(groups.head(2), groups)["group"] == 1


Parts = dict[str, list[int]]
"""Of each part of a step, its time in each step."""


def with_steps(each: list[Parts]) -> Ranks:
    """Ranks that have steps, and nothing else."""
    steps: dict[tuple[int, int | None, int], list[Step]] = {
        (number, 10, 0): [(step, 0, 1) for step in range(len(own["step"]))]
        for number, own in enumerate(each)
    }
    digests = []
    for of_rank, own in zip(digests_of([], len(each), steps), each, strict=True):
        parts = {"duration_ns" if part == "step" else f"{part}_ns": ns for part, ns in own.items()}
        times = [pl.Series(name, ns, dtype=pl.Int64) for name, ns in parts.items()]
        digests.append(replace(of_rank, steps=of_rank.steps.with_columns(times)))
    return Ranks.of(digests)


def alike(count: int, **parts: int) -> list[Parts]:
    """Ranks with two steps of 1 ms, of which the last one differs."""
    usual = dict.fromkeys(PARTS, 0) | {"step": 1_000_000, "compute": 800_000, "idle": 200_000}
    return [
        {part: [ns, ns] for part, ns in (usual | (parts if last else {})).items()}
        for last in [False] * (count - 1) + [True]
    ]


STEP = st.fixed_dictionaries({part: st.sampled_from((0, 5, 90, 100, 400)) for part in PARTS})


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(STEP, min_size=1, max_size=3), min_size=1, max_size=6))
def test_outliers_agree_with_the_oracle(steps: list[list[dict[str, int]]]) -> None:
    each = [{part: [step[part] for step in own] for part in PARTS} for own in steps]
    found = with_steps(each).rank_outliers.select("rank", "part", "ns", "median_ns", "z")
    expected = outliers(dict(enumerate(each)), list(PARTS))
    assert found.height == len(expected)
    for row, wanted in zip(found.to_dicts(), expected, strict=True):
        assert row == wanted | {"z": wanted["z"] and pytest.approx(wanted["z"], rel=0, abs=1e-9)}


def test_the_one_rank_that_computes_longer_is_an_outlier_though_all_others_are_equal() -> None:
    found = with_steps(alike(8, compute=900_000, idle=100_000))
    assert found.rank_outliers.select("rank", "part", "ns", "median_ns", "z").rows() == [
        *((7, "compute", 900_000, 800_000, None), (7, "idle", 100_000, 200_000, None))
    ]
    assert (found.outlying, found.typical) == ((7,), 0)


def test_less_than_a_hundredth_of_the_step_makes_no_outlier() -> None:
    assert with_steps(alike(8, compute=809_999)).rank_outliers.is_empty()
    assert not with_steps(alike(8, compute=810_000)).rank_outliers.is_empty()
