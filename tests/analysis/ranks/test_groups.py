"""Groups of ranks, and who holds the others up."""

from collections.abc import Callable

import polars as pl
import pytest

from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.ranks.stragglers import numbers, where_it_starts
from tests.runs_of_ranks import Simulated

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
SEND_RECV = "ncclDevKernel_SendRecv"
DELAY_NS = 500_000

Delay = Callable[[Simulated, int, int], None]
"""What one rank does in a step before a collective, by the step and the rank."""


def nothing(run: Simulated, step: int, rank: int) -> None:
    """Every rank does the same."""


def tensor_and_data(delay: Delay = nothing, *, stated: bool = True) -> Ranks:
    """Two by two ranks, five steps of four layers: activations are all-reduced in 0,1 and 2,3, and
    gradients scattered in 0,2 and 1,3. Without communicators, layers vary by some us."""
    run = Simulated(4, ahead_ns=(0, 7_000_000, -3_000_000, 40_000))
    for step in range(5):
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
    return Ranks.of(run.digests())


@pytest.mark.parametrize("stated", [True, False])
def test_tensor_and_data_parallel_groups_are_found_with_and_without_communicators(
    stated: bool,
) -> None:
    found = tensor_and_data(stated=stated).rank_groups.sort("group")
    assert found.select("members", "kind").rows() == [
        ("0,1", "TP"),
        ("0,2", "DP"),
        ("1,3", "DP"),
        ("2,3", "TP"),
    ]


def by_reason(run: Simulated, rank: int, reason: str) -> None:
    spend = {"work": run.compute, "copy": run.copy, "host": run.idle}
    spend[reason](rank, DELAY_NS)


@pytest.mark.parametrize("reason", ["work", "copy", "host"])
def test_a_delay_appears_as_lateness_and_cost_with_its_reason(reason: str) -> None:
    def late(run: Simulated, step: int, rank: int) -> None:
        if rank == 1:
            by_reason(run, rank, reason)

    found, usual = tensor_and_data(late), tensor_and_data()
    mine, before = (
        each.rank_groups.filter(members="0,1").row(0, named=True) for each in (found, usual)
    )
    assert (mine["rank"], mine["steps"], mine["steps_last"]) == (1, 5, 5)
    spread_ns = before["waited_ns"]  # what the ranks differ by in any case
    for column in ("cost_ns", "late_ns", f"cost_{reason}_ns"):
        assert mine[column] == pytest.approx(5 * DELAY_NS, abs=spread_ns)
    assert mine["cost_step_ns"] == pytest.approx(DELAY_NS, abs=spread_ns / 5)


def test_who_is_late_because_of_its_other_group_says_so() -> None:
    def late(run: Simulated, step: int, rank: int) -> None:
        if rank == 1:
            run.compute(rank, DELAY_NS)

    found = tensor_and_data(late)
    groups = {row["members"]: row for row in found.rank_groups.to_dicts()}
    held = groups["0,2"]
    assert held["rank"] == 0
    # before the first step its ranks were never in step
    assert held["cost_group_ns"] == pytest.approx(4 * DELAY_NS, rel=0.1)
    assert held["late_ns"] == pytest.approx(5 * DELAY_NS, rel=0.1)
    assert held["through"] == groups["0,1"]["group"]
    guilty = groups["1,3"]
    assert guilty["rank"] == 1
    assert guilty["cost_work_ns"] == pytest.approx(4 * DELAY_NS, rel=0.1)
    # one delay holds up both of its groups at once, and counts once
    cost = found.ranks["cost_ns"][1]
    assert cost == pytest.approx(5 * DELAY_NS, rel=0.1)


def test_a_delay_every_tenth_step_is_last_in_every_tenth_step() -> None:
    run = Simulated(4)
    for step in range(20):
        run.begin_step()
        for rank in range(4):
            run.compute(rank, 1_000_000)
            if rank == 2 and step % 10 == 3:
                run.idle(rank, DELAY_NS)
        run.meet(range(4), ALL_REDUCE)
    found = Ranks.of(run.digests())
    (group,) = found.rank_groups.to_dicts()
    assert group["kind"] == "all"
    assert (group["rank"], group["steps_last"], group["steps"]) == (2, 2, 20)
    assert (group["cost_ns"], group["cost_host_ns"]) == (2 * DELAY_NS, 2 * DELAY_NS)
    assert group["cost_step_ns"] == 2 * DELAY_NS // 20
    steps = found.rank_steps.filter(pl.col("cost_ns") > 0)
    assert steps.select("rank", "step", "late_ns").rows() == [(2, 3, DELAY_NS), (2, 13, DELAY_NS)]


@pytest.mark.parametrize("stated", [True, False])
def test_sends_and_receives_join_a_pipeline(stated: bool) -> None:
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
    found = Ranks.of(run.digests())
    assert found.rank_groups.select("kind", "members").rows() == [("PP", "0-3")]
    assert found.arrivals["ranks"].unique().to_list() == [2]
    # a receive waits for its sender by nature
    assert found.ranks["matched"].to_list() == [0] * 4


def test_sends_and_receives_of_all_ranks_are_expert_parallelism() -> None:
    run = Simulated(4)
    for step in range(4):
        run.begin_step()
        for rank in range(4):
            run.compute(rank, 300_000 + 1_000 * ((rank * step) % 4))
        run.meet(range(4), SEND_RECV, communicator=3)
    found = Ranks.of(run.digests())
    assert found.rank_groups["kind"].to_list() == ["EP"]
    assert found.ranks.select("collectives", "matched").rows() == [(4, 4)] * 4


def test_members_are_written_as_short_as_they_can_be() -> None:
    assert numbers([0, 1]) == "0,1"
    assert numbers([4, 5, 6, 7]) == "4-7"
    assert numbers([0, 8, 16, 24, 32]) == "0,8,…,32"
    assert numbers([0, 3, 4]) == "0,3,4"


def _held_up(group: int, *, saved_step_ns: int) -> dict[str, int | None]:
    """A group that the straggler itself holds up."""
    return {
        "group": group,
        "cost_ns": 1_000,
        "cost_group_ns": 0,
        "through": None,
        "cost_step_ns": 500,
        "saved_step_ns": saved_step_ns,
    }


def _passed_on(group: int, *, through: int) -> dict[str, int | None]:
    """A group that waits because another one does."""
    return {**_held_up(group, saved_step_ns=0), "cost_group_ns": 1_000, "through": through}


def _start(*rows: dict[str, int | None]) -> int:
    groups = pl.DataFrame(rows, schema_overrides={"through": pl.Int64})
    found = where_it_starts(groups.filter(pl.col("cost_group_ns") == 0), groups)
    return int(found["group"])


def test_a_straggler_begins_where_most_other_groups_wait_even_if_another_loses_more() -> None:
    assert (
        _start(
            _held_up(0, saved_step_ns=900),
            _held_up(1, saved_step_ns=100),
            _passed_on(2, through=0),
            _passed_on(3, through=1),
            _passed_on(4, through=1),
        )
        == 1
    )
