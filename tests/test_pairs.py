"""The captured workloads: the tool names what is wrong before, and is quiet after."""

import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.ranks import rank_tables
from nsysflow.analysis.schema import CAUSES
from tests.reports import ROOT, SAMPLES

SCREENS: Final = ROOT / "docs" / "screens.md"
SHOWN: Final = re.compile(r"^```console\n\$ nsysflow (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CAPTURED: Final = re.findall(
    r"^\| `([^`]+)` \|", (SAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A bottleneck that shows as idle time, and its remedy.

    Attributes:
        before, after: the samples.
        causes: what the GPU waits for before and not after; a blocking copy may count as a sync.
        phase: where the host is in those calls, or, for launches, while the GPU waits for them.
        line: what their source must match; None where no lines were recorded.
    """

    before: str
    after: str
    causes: tuple[str, ...]
    phase: str
    line: str | None


PAIRS: Final = (
    Pair(
        before="nan_check-sync",
        after="nan_check-async",
        causes=("sync",),
        phase="step/metrics",
        line=r"nan_check\.py:\d+ in check",
    ),
    Pair(
        before="dataload-sync",
        after="dataload-async",
        causes=("sync",),
        phase="step/metrics",
        line=r"dataload\.py:\d+ in step",
    ),
    Pair(
        before="h2d-pageable",
        after="h2d-pinned",
        causes=("blocking_copy",),
        phase="step/h2d",
        line=None,
    ),
    Pair(
        before="metrics-each_step",
        after="metrics-at_end",
        causes=("blocking_copy", "sync"),
        phase="step/metrics",
        line=r"metrics\.py:\d+ in step",
    ),
    Pair(
        before="launch_bound-eager",
        after="launch_bound-graph",
        causes=("launch",),
        phase="step/forward",
        line=r"launch_bound\.py:\d+ in \w+",
    ),
    Pair(
        before="sum_many-loop",
        after="sum_many-fused",
        causes=("launch",),
        phase="step/metrics",
        line=r"sum_many\.py:\d+ in loop",
    ),
    Pair(
        before="alloc_churn-empty_cache",
        after="alloc_churn-cached",
        causes=("alloc",),
        phase="step/metrics",
        line=r"alloc_churn\.py:\d+ in step",
    ),
    Pair(
        before="graph_break-breaks",
        after="graph_break-fullgraph",
        causes=("sync",),
        phase="step/forward",
        line=r"graph_break\.py:\d+ in \w+",
    ),
)

LABELS: Final = {
    "pageable": "pageable_blocking",
    "pinned_blocking": "pinned_blocking",
    "pageable_non_blocking": "pageable_async",
    "pinned": "pinned_async",
}

each_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.before)


@cache
def trace(name: str) -> nsysflow.Trace:
    if name not in CAPTURED:
        pytest.skip(f"{name} is not among the samples")
    return nsysflow.load(SAMPLES / f"{name}.sqlite.xz")


@cache
def analysed(name: str) -> Analysis:
    return nsysflow.analyze(trace(name), nsysflow.Options(step="step"))


@cache
def steady(name: str) -> Analysis:
    """Without the first step, which holds what starting the profiler costs (docs/facts.md), and,
    if another is left, without the last one, which no step follows."""
    last = max(2, len(analysed(name).steps) - 1)
    return nsysflow.analyze(trace(name), nsysflow.Options(step="step", steps=(1, last)))


def accounted(name: str) -> dict[str, Any]:
    return steady(name).accounting.row(0, named=True)


def share(name: str, *parts: str) -> float:
    """How much of the steady steps these parts take."""
    gpu = accounted(name)
    return sum(int(gpu[f"{part}_ns"]) for part in parts) / int(gpu["window_ns"])


def phase(name: str, path: str) -> dict[str, Any]:
    """A phase in all steps; `median_ns` is of its span."""
    return analysed(name).phases.row(by_predicate=pl.col("path") == path, named=True)


def per_step(name: str, path: str, column: str) -> float:
    """What a phase has in a step, on average."""
    row = phase(name, path)
    return int(row[column]) / int(row["instances"])


def charged(name: str, causes: tuple[str, ...]) -> pl.DataFrame:
    """What these causes cost the steady steps: `phase`, `source` and `ns` of each piece."""
    if "launch" in causes:
        rows = steady(name).gap_summary.filter(pl.col("cause").is_in(causes))
        return rows.select(pl.col("host_range").alias("phase"), "source", ns="total_ns")
    rows = steady(name).syncs.filter(pl.col("kind").is_in(causes))
    return rows.select("phase", "source", ns="induced_idle_ns")


@each_pair
def test_before_the_cause_takes_a_part_of_the_step_and_most_of_its_idle(pair: Pair) -> None:
    assert share(pair.before, *pair.causes) >= 0.05
    gpu = accounted(pair.before)
    parts = sorted((int(gpu[f"{cause}_ns"]), cause) for cause in CAUSES)
    assert parts[-1][1] in pair.causes


@each_pair
def test_before_the_phase_and_the_line_are_named(pair: Pair) -> None:
    costs = charged(pair.before, pair.causes)
    there = pl.col("phase") == pair.phase
    if pair.line is not None:
        there &= pl.col("source").str.contains(f"^{pair.line}$")
    assert 2 * costs.filter(there)["ns"].sum() > costs["ns"].sum()


@each_pair
def test_after_it_the_cause_is_gone(pair: Pair) -> None:
    assert share(pair.after, *pair.causes) < 0.01


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


def test_metrics_wait_in_each_step_and_then_in_none() -> None:
    kinds = pl.col("kind").is_in(["sync", "blocking_copy"])
    before, after = (
        steady(name).syncs.filter(kinds, phase="step/metrics")
        for name in ("metrics-each_step", "metrics-at_end")
    )
    copies = before.filter(kind="blocking_copy")
    assert len(copies) >= len(steady("metrics-each_step").steps)
    assert after.is_empty()
    assert share("metrics-at_end", "idle") < 0.05


def test_sum_many_launches_thousands_of_kernels_and_then_two() -> None:
    kernels = [
        per_step(f"sum_many-{variant}", "step/metrics", "kernels")
        for variant in ("loop", "foreach", "fused")
    ]
    assert kernels[0] >= 4096
    assert kernels[1] < 200
    assert kernels[2] == 2
    assert phase("sum_many-loop", "step/metrics")["median_ns"] > 10_000_000
    assert phase("sum_many-fused", "step/metrics")["median_ns"] < 100_000


@pytest.mark.parametrize("after", ["compile", "fused"])
def test_fusion_makes_one_kernel_of_three_in_half_the_time(after: str) -> None:
    before, fused = (
        {
            column: per_step(f"fusion-{variant}", "step/forward", column)
            for column in ("kernels", "kernel_ns")
        }
        for variant in ("eager", after)
    )
    assert before["kernels"] == 3 * fused["kernels"] == 3 * 16
    assert fused["kernel_ns"] < before["kernel_ns"] / 2


def test_copies_are_exposed_in_turn_and_hidden_on_a_stream_of_their_own() -> None:
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
def test_the_ranks_of_ddp_took_part_in_the_same_and_none_waited_for_a_profiler(
    variant: str,
) -> None:
    ranks = [analysed(f"ddp-{variant}-rank{rank}").collectives for rank in (0, 1)]
    arrivals, found = rank_tables(ranks)
    assert found["matched"].to_list() == [len(rank) for rank in ranks]
    assert (arrivals["spread_ns"] < 500_000).all()


def test_the_waits_of_a_broken_graph_lie_between_triton_s_kernels() -> None:
    waits = steady("graph_break-breaks").gaps.filter(cause="sync")
    assert waits["next_op"].str.starts_with("triton_").all()
    assert len(waits) >= len(steady("graph_break-breaks").steps)
    assert steady("graph_break-fullgraph").syncs.filter(phase="step/forward").is_empty()


@pytest.mark.parametrize(
    ("control", "at_most"), [("benign_sync-sync", 0.05), ("deep_queue-queued", 0.01)]
)
def test_a_control_is_idle_for_next_to_nothing(control: str, at_most: float) -> None:
    gpu = analysed(control).accounting.row(0, named=True)
    assert 0 < gpu["idle_ns"] < at_most * gpu["window_ns"]


@pytest.mark.slow
def test_the_screens_are_what_is_printed() -> None:
    blocks = SHOWN.findall(SCREENS.read_text(encoding="utf-8"))
    assert len(blocks) >= 6
    for words, shown in blocks:
        program = "from nsysflow.cli import main; main(prog_name='nsysflow')"
        argv = [sys.executable, "-P", "-c", program, *words.split()]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
        lines = [line.rstrip() for line in done.stdout.rstrip().split("\n")]
        assert shown.rstrip().split("\n") == lines, words
