"""The pairs of samples before and after a remedy, and what they show."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import polars as pl

import nsysflow
from nsysflow.analysis.analyze import Analysis
from tests.reports import SAMPLES


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A bottleneck that shows as idle time, and its remedy.

    Attributes:
        before: the sample.
        after: the sample of the remedy; None if the cause cannot be removed.
        causes: what the GPU waits for before and not after; a blocking copy may count as a sync.
        phase: a pattern for the path of those calls; for launches and host code, for the path of
            the host while the GPU waits for them.
        line: a pattern for their source; None if there is none.
        unheld: why something above is missing or wide.
    """

    before: str
    after: str | None
    causes: tuple[str, ...]
    phase: str
    line: str | None
    unheld: str = ""


NO_LINES: Final = "Triton and cuBLAS launch by cuLaunchKernelEx, of which nsys records no line"
ALL_PHASES: Final = "Python runs before each launch of the step: no phase has half of it"

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
        unheld="recording the lines would blur the labels of the copies",
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
    Pair(
        before="rolloutcopy-torch",
        after=None,
        causes=("launch",),
        phase="step/compute_advantage",
        line=r"advantage\.py:\d+ in advantage_ref",
        unheld="a graphed step is 11 us of work, less than its one launch takes: launches stay",
    ),
    Pair(
        before="rolloutcopy-fused",
        after="rolloutcopy-graph",
        causes=("host",),
        phase=r"step/\w+",
        line=None,
        unheld=f"{ALL_PHASES}; {NO_LINES}",
    ),
    Pair(
        before="trainforward-fused",
        after="trainforward-graph",
        causes=("host",),
        phase=r"step/(forward/\w+|loss|backward)",
        line=None,
        unheld=f"{ALL_PHASES}; {NO_LINES}",
    ),
    Pair(
        before="trainstep-torch",
        after="trainstep-graph",
        causes=("launch",),
        phase="step/(forward/rnn|backward)",
        line=None,
        unheld="the loop over a segment's steps is in both, and autograd's thread has no lines",
    ),
    Pair(
        before="trainstep-fused",
        after="trainstep-graph",
        causes=("host",),
        phase=r"step/(forward/\w+|loss|backward|optimizer)",
        line=None,
        unheld=f"{ALL_PHASES}; {NO_LINES}",
    ),
)

NOT_IDLE: Final = {
    "fusion": "the kernels themselves are what the remedy changes",
    "overlap": "the GPU copies meanwhile: exposed copies",
    "ddp": "the GPU communicates meanwhile: exposed communication",
}
"""Workloads whose bottleneck is not idle time; each has its own test."""


@cache
def trace(name: str) -> nsysflow.Trace:
    """A sample, loaded."""
    return nsysflow.load(SAMPLES / f"{name}.sqlite.xz")


@cache
def analysed(name: str) -> Analysis:
    """The analysis of a whole sample."""
    return nsysflow.analyze(trace(name), nsysflow.Options(step="step"))


@cache
def steady(name: str) -> Analysis:
    """The steady steps: without the first, which includes the profiler's start (docs/facts.md).

    If another is left, also without the last, which no step follows.
    """
    last = max(2, len(analysed(name).steps) - 1)
    return nsysflow.analyze(
        trace(name), nsysflow.Options(step="step", steps=(nsysflow.StepPart(1, last),))
    )


def accounted(name: str) -> dict[str, Any]:
    """Where the GPU's time goes in the steady steps."""
    return steady(name).accounting.row(0, named=True)


def share(name: str, *parts: str) -> float:
    """The share of the steady steps that these parts take."""
    gpu = accounted(name)
    return sum(int(gpu[f"{part}_ns"]) for part in parts) / int(gpu["window_ns"])


def step_ns(name: str) -> float:
    """The mean GPU time of a steady step."""
    return int(accounted(name)["window_ns"]) / len(steady(name).steps)


def phase(name: str, path: str) -> dict[str, Any]:
    """A phase in all steps; `median_ns` is of its span."""
    return analysed(name).phases.row(by_predicate=pl.col("path") == path, named=True)


def per_step(name: str, path: str, column: str) -> float:
    """A phase's mean per step."""
    row = phase(name, path)
    return int(row[column]) / int(row["instances"])


def charged(name: str, causes: tuple[str, ...]) -> pl.DataFrame:
    """The idle of these causes in the steady steps: `phase`, `source` and `ns` of each part."""
    rows = steady(name).gap_summary.filter(pl.col("cause").is_in(causes))
    return rows.select("phase", "source", ns="total_ns")
