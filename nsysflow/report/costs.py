"""What costs most: the parts of all gaps, grouped by cause, place of the host, phase, culprit."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.report.results import OUTSIDE, Results

CAUSE_WORDS: Final = {
    "profiler": "the profiler's own work",
    "sync": "host waited in a sync",
    "blocking_copy": "host waited in a copy",
    "alloc": "memory was allocated or freed",
    "module_load": "GPU code was loaded",
    "api": "other CUDA calls",
    "host": "host code outside CUDA",
    "launch": "launch overhead",
    "dispatch": "start of queued work",
    "dependency": "queued work waited for other work",
    "unknown": "no launch in the report",
}
"""What each cause means, in the words of the reports."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One way in which the GPUs lost time, over all of them together.

    Attributes:
        cause: as in `schema.CAUSES`.
        where: where the host was meanwhile, `(outside ranges)` included.
        phase: what had to wait: the phase of the launch that ended the gaps; empty outside.
        culprit: the CUDA call to blame; empty where it is no single call.
        gaps: how many gaps have such a part.
        total_ns: the idle time.
        per_step_ns: the idle time per step; None without steps.
        window_pct: share of the GPUs' windows.
    """

    cause: str
    where: str
    phase: str
    culprit: str
    gaps: int
    total_ns: int
    per_step_ns: int | None
    window_pct: float


_LAUNCHED: Final = ("launch", "dispatch", "dependency", "unknown")
"""Causes that often find the launch already made: the host's place is then the launch's own."""


def where_host_was() -> pl.Expr:
    """The host's place in gaps or parts of gaps: a path, or `(outside ranges)`."""
    place = pl.col("host_range").fill_null("").replace("", OUTSIDE)
    phase = pl.col("phase").fill_null("").replace("", OUTSIDE)
    launched = pl.col("cause").cast(pl.String).is_in(_LAUNCHED)
    return pl.when((place == OUTSIDE) & launched).then(phase).otherwise(place).alias("where")


def idle_by_place(results: Results) -> pl.DataFrame:
    """Idle per cause and place of the host, dearest first: `cause`, `where`, `total_ns`."""
    return (
        results.table("gap_summary")
        .group_by(pl.col("cause").cast(pl.String), where_host_was())
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", "cause", "where", descending=[True, False, False])
    )


def costs(results: Results) -> list[Cost]:
    """Every cost of the run, dearest first."""
    window_ns = int(results.table("accounting")["window_ns"].sum())
    per_step = pl.col("per_step_ns")
    grouped = (
        results.table("gap_summary")
        .group_by(
            pl.col("cause").cast(pl.String),
            where_host_was(),
            pl.col("phase").fill_null(""),
            pl.col("culprit").fill_null(""),
        )
        .agg(
            pl.col("gaps").sum(),
            pl.col("total_ns").sum(),
            pl.when(per_step.null_count() < pl.len()).then(per_step.sum()).alias("per_step_ns"),
        )
        .with_columns((100 * pl.col("total_ns") / max(window_ns, 1)).alias("window_pct"))
        .sort("total_ns", "cause", "where", "phase", "culprit", descending=[True] + 4 * [False])
    )
    return [Cost(**row) for row in grouped.iter_rows(named=True)]
