"""NCCL's bandwidth, and slow links."""

import pytest

from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from tests.analyses import analysed
from tests.runs_of_ranks import Simulated

SHARDED = "ncclDevKernel_AllGather_RING_LL"
REDUCED = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def pairs(slow: tuple[int, int] = (-1, -1), *, count: int = 4) -> Ranks:
    """Pairs of ranks that reduce in each of ten steps: 100 us, but 150 us in one pair and from one
    step on."""
    run = Simulated(2 * count)
    for step in range(10):
        run.begin_step()
        for pair in range(count):
            ranks = (2 * pair, 2 * pair + 1)
            for rank in ranks:
                run.compute(rank, 500_000)
            late = pair == slow[0] and step >= slow[1]
            run.meet(ranks, REDUCED, ns=150_000 if late else 100_000, communicator=1 + pair)
    return Ranks.of(run.digests())


def test_bandwidth_of_the_bus_is_by_nccl_s_factors() -> None:
    run = Simulated(4)
    for _ in range(3):
        for rank in range(4):
            run.compute(rank, 200_000)
        run.meet(range(4), REDUCED, ns=100_000, communicator=1, size=4_000_000)
        run.meet(range(4), SHARDED, ns=200_000, communicator=1, size=1_000_000)
    found = {row["operation"]: row for row in Ranks.of(run.digests()).bandwidth.to_dicts()}
    reduced, gathered = found["ncclAllReduce"], found["ncclAllGather"]
    assert (reduced["size_bytes"], gathered["size_bytes"]) == (2**21, 2**19)
    assert reduced["algorithm_bytes_per_s"] == pytest.approx(40e9)
    assert reduced["bus_bytes_per_s"] == pytest.approx(60e9)
    # each of four ranks has one message of the whole
    assert gathered["bytes"] == 4_000_000
    assert gathered["algorithm_bytes_per_s"] == pytest.approx(20e9)
    assert gathered["bus_bytes_per_s"] == pytest.approx(15e9)


def test_a_real_run_reaches_half_of_nvlink_s_peak() -> None:
    run = Ranks.of([digest(analysed(f"ddp-bucketed-rank{rank}")) for rank in (0, 1)])
    (row,) = run.bandwidth.to_dicts()
    assert row["peak_bytes_per_s"] == 450e9
    assert 40 < row["peak_pct"] < 60
    assert (row["operation"], row["count"], row["ranks"]) == ("ncclAllReduce", 50, 2)


def test_kernels_of_a_single_rank_count_with_their_duration() -> None:
    run = Ranks.of([digest(analysed("ddp-bucketed-rank0"))])
    (row,) = run.bandwidth.to_dicts()
    assert (row["group"], row["count"]) == (None, 50)
    assert row["bus_bytes_per_s"] is None
    assert row["algorithm_bytes_per_s"] > 0


def test_the_slow_link_of_one_group_is_named_with_what_it_cost() -> None:
    assert pairs().bandwidth["slow_ns"].null_count() == 4
    found = pairs(slow=(2, 0)).bandwidth
    assert found["slow_ns"].to_list() == [None, None, 10 * 50_000, None]


def test_in_a_single_group_the_slow_steps_are_told_from_the_others() -> None:
    (cost_ns,) = pairs(slow=(0, 8), count=1).bandwidth["slow_ns"]
    assert cost_ns == 2 * 50_000
