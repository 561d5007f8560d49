"""Captured workloads: the bottleneck is named before the remedy and gone after it."""

from typing import Final

import polars as pl
import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.catalog.catalog import workloads
from tests.pairs import (
    NOT_IDLE,
    PAIRS,
    UNHELD,
    Pair,
    accounted,
    analysed,
    charged,
    per_step,
    phase,
    share,
    steady,
)

pytestmark = pytest.mark.xdist_group("pairs")

LABELS: Final = {
    "pageable": "pageable_blocking",
    "pinned_blocking": "pinned_blocking",
    "pageable_non_blocking": "pageable_async",
    "pinned": "pinned_async",
}

each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.before)


def test_every_workload_is_a_pair_or_a_control_or_not_about_idle_time() -> None:
    paired = {pair.before.partition("-")[0] for pair in PAIRS}
    controls = {workload.name for workload in workloads() if workload.control}
    assert sorted([*paired, *NOT_IDLE, *controls]) == sorted(one.name for one in workloads())


@each_pair
def test_before_the_remedy_its_cause_is_the_largest_with_phase_and_line(pair: Pair) -> None:
    assert share(pair.before, *pair.causes) >= 0.05
    gpu = accounted(pair.before)
    assert max(CAUSES, key=lambda cause: int(gpu[f"{cause}_ns"])) in pair.causes
    costs = charged(pair.before, pair.causes)
    there = pl.col("phase").str.contains(f"^{pair.phase}$")
    if pair.line is None:
        assert pair.before in UNHELD
    else:
        there &= pl.col("source").str.contains(f"^{pair.line}$")
    assert 2 * costs.filter(there)["ns"].sum() > costs["ns"].sum()


@each_pair
def test_after_the_remedy_the_cause_is_gone(pair: Pair) -> None:
    assert pair.before in UNHELD if pair.after is None else share(pair.after, *pair.causes) < 0.01


def test_each_way_to_copy_has_its_label() -> None:
    for variant, label in LABELS.items():
        copies = analysed(f"h2d-{variant}").copies.filter(pl.col("phase") == "step/h2d")
        assert copies["copy_label"].to_list() == [label], variant


@pytest.mark.parametrize("lines", ["", "-plain"])
def test_a_starved_window_is_found_with_lines_and_without(lines: str) -> None:
    before = analysed(f"launch_bound-eager{lines}")
    assert before.starved["phase"].unique().to_list() == ["step/forward"]
    assert analysed("launch_bound-graph").starved.is_empty()


def test_the_graph_takes_what_was_estimated_within_a_quarter() -> None:
    estimate = per_step("launch_bound-eager-plain", "step/forward", "graph_estimate_ns")
    measured = phase("launch_bound-graph", "step/forward")["median_ns"]
    assert 0.75 * measured <= estimate <= 1.25 * measured


def kernels_of(*names: str, phase: str) -> list[float]:
    """How many kernels a step has in that phase, of each sample."""
    return [per_step(name, f"step/{phase}", "kernels") for name in names]


@pytest.mark.parametrize("after", ["fusion-compile", "fusion-fused"])
def test_fusion_makes_one_kernel_of_three_in_half_the_time(after: str) -> None:
    assert kernels_of("fusion-eager", after, phase="forward") == [3 * 16, 16]
    before_ns, after_ns = (
        per_step(name, "step/forward", "kernel_ns") for name in ("fusion-eager", after)
    )
    assert after_ns < before_ns / 2


def test_copies_are_exposed_in_turn_and_hidden_on_their_own_stream() -> None:
    before, after = accounted("overlap-in_turn"), accounted("overlap-side_stream")
    copies = steady("overlap-in_turn").copies.filter(phase="step/h2d")
    assert copies["exposed_ns"].sum() >= 0.05 * before["window_ns"]
    assert copies["exposed_ns"].sum() > before["idle_ns"]
    assert before["copy_hidden_pct"] < 1
    assert after["copy_hidden_pct"] > 80
    assert share("overlap-side_stream", "copy_exposed") < 0.01


@pytest.mark.parametrize("rank", [0, 1])
def test_gradients_are_exposed_after_backward_and_hidden_during_it(rank: int) -> None:
    before, after = f"ddp-no_overlap-rank{rank}", f"ddp-bucketed-rank{rank}"
    assert accounted(before)["comm_hidden_pct"] < 1
    assert accounted(after)["comm_hidden_pct"] > 80
    assert share(before, "comm_exposed") > 0.05
    assert share(after, "comm_exposed") < share(before, "comm_exposed") / 4
    largest = max(accounted(before)[f"{cause}_ns"] for cause in CAUSES)
    assert accounted(before)["comm_exposed_ns"] > largest
    for name in (before, after):
        (kind,) = steady(name).comm.to_dicts()
        assert (kind["phase"], kind["operation"]) == ("step/backward", "ncclAllReduce")


@pytest.mark.parametrize("variant", ["no_overlap", "bucketed"])
def test_ranks_of_ddp_share_all_collectives_and_none_waited_for_nsys(variant: str) -> None:
    analyses = [analysed(f"ddp-{variant}-rank{rank}") for rank in (0, 1)]
    found = Ranks.of([digest(each) for each in analyses])
    assert found.ranks["matched"].to_list() == [len(each.collectives) for each in analyses]
    assert (found.arrivals["spread_ns"] < 500_000).all()


def test_the_waits_of_a_broken_graph_lie_between_triton_kernels() -> None:
    waits = steady("graph_break-breaks").gaps.filter(cause="sync")
    assert waits["next_op"].str.starts_with("triton_").all()
    assert len(waits) >= len(steady("graph_break-breaks").steps)
    assert steady("graph_break-fullgraph").syncs.filter(phase="step/forward").is_empty()


@pytest.mark.parametrize(
    ("control", "at_most"), [("benign_sync-sync", 0.05), ("deep_queue-queued", 0.01)]
)
def test_a_control_is_hardly_idle(control: str, at_most: float) -> None:
    gpu = analysed(control).accounting.row(0, named=True)
    assert 0 < gpu["idle_ns"] < at_most * gpu["window_ns"]
