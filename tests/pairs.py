"""The pairs of samples before and after a remedy, and what they show."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import polars as pl

import nsysflow
from nsysflow.analysis.analyze import Analysis
from tests.reports import SAMPLES
from tests.tiny import AS_RECORDED


@dataclass(frozen=True)
class Pair:
    """A bottleneck that shows as idle time, and its remedy.

    Attributes:
        workload: whose samples they are.
        bottleneck: the variant before the remedy.
        remedy: the variant after it; None if the cause cannot be removed.
        causes: what the GPU waits for before and not after; a blocking copy may count as a sync.
        phase: a pattern for the path of those calls; for launches and host code, for the path of
            the host while the GPU waits for them.
        line: a pattern for their source; None if there is none, for a reason in `UNHELD`.
    """

    workload: str
    bottleneck: str
    remedy: str | None
    causes: tuple[str, ...]
    phase: str
    line: str | None

    @property
    def before(self) -> str:
        """The sample before."""
        return f"{self.workload}-{self.bottleneck}"

    @property
    def after(self) -> str | None:
        """The sample of the remedy."""
        return None if self.remedy is None else f"{self.workload}-{self.remedy}"


SYNC: Final = ("sync",)
COPY: Final = ("blocking_copy",)
ALLOC: Final = ("alloc",)
LAUNCH: Final = ("launch",)
HOST: Final = ("host",)
METRICS: Final = "step/metrics"
ADVANTAGE: Final = r"advantage\.py:\d+ in advantage_ref"

PAIRS: Final = (
    Pair("nan_check", "sync", "async", SYNC, METRICS, r"nan_check\.py:\d+ in check"),
    Pair("dataload", "sync", "async", SYNC, METRICS, r"dataload\.py:\d+ in step"),
    Pair("h2d", "pageable", "pinned", COPY, "step/h2d", None),
    Pair("metrics", "each_step", "at_end", COPY + SYNC, METRICS, r"metrics\.py:\d+ in step"),
    Pair("launch_bound", "eager", "graph", LAUNCH, "step/forward", r"launch_bound\.py:\d+ in \w+"),
    Pair("sum_many", "loop", "fused", LAUNCH, METRICS, r"sum_many\.py:\d+ in loop"),
    Pair("alloc_churn", "empty_cache", "cached", ALLOC, METRICS, r"alloc_churn\.py:\d+ in step"),
    Pair("graph_break", "breaks", "fullgraph", SYNC, "step/forward", r"graph_break\.py:\d+ in \w+"),
    Pair("rolloutcopy", "torch", None, LAUNCH, "step/compute_advantage", ADVANTAGE),
    Pair("rolloutcopy", "fused", "graph", HOST, r"step/\w+", None),
    Pair("trainforward", "fused", "graph", HOST, r"step/(forward/\w+|loss|backward)", None),
    Pair("trainstep", "torch", "graph", LAUNCH, "step/(forward/rnn|backward)", None),
    Pair("trainstep", "fused", "graph", HOST, r"step/(forward/\w+|loss|backward|optimizer)", None),
)

_ALL_PHASES: Final = (
    "Python runs before each launch of the step: no phase has half of it; Triton and cuBLAS launch"
    " by cuLaunchKernelEx, of which nsys records no line"
)
UNHELD: Final = {
    "h2d-pageable": "recording the lines would blur the labels of the copies",
    "rolloutcopy-torch": "a graphed step is 11 us, less than its one launch takes: launches stay",
    "rolloutcopy-fused": _ALL_PHASES,
    "trainforward-fused": _ALL_PHASES,
    "trainstep-torch": "both loop over a segment's steps, and autograd's thread has no lines",
    "trainstep-fused": _ALL_PHASES,
}
"""Why something of a pair is missing or wide, by its sample before."""

NOT_IDLE: Final = {
    "fusion": "the kernels themselves are what the remedy changes",
    "overlap": "the GPU copies meanwhile: exposed copies",
    "ddp": "the GPU communicates meanwhile: exposed communication",
}
"""Workloads whose bottleneck is not idle time: findings/rules/test_real_reports.py has them."""


@cache
def trace(name: str) -> nsysflow.Trace:
    """A sample, loaded."""
    return nsysflow.load(SAMPLES / f"{name}.sqlite.xz")


@cache
def steady(name: str) -> Analysis:
    """The steady steps as recorded: without the first, which includes the profiler's start
    (docs/facts.md).

    If another is left, also without the last, which no step follows.
    """
    last = max(2, trace(name).ranges.filter(name="step").height - 1)
    return nsysflow.analyze(
        trace(name), replace(AS_RECORDED, step="step", steps=(nsysflow.StepPart(1, last),))
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


def charged(name: str, causes: tuple[str, ...]) -> pl.DataFrame:
    """The idle of these causes in the steady steps: `phase`, `source` and `ns` of each part."""
    rows = steady(name).gap_summary.filter(pl.col("cause").is_in(causes))
    return rows.select("phase", "source", ns="total_ns")
