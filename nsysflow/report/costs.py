"""What costs most: all idle by cause, place of the host, phase and culprit.

Most of it comes from gap_summary. What a wait, a blocking copy or an allocation cost comes from
syncs instead, which adds up to the same but knows the place of the call: by the time the GPU ran
dry, the host may have been in the next phase.
"""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import STALLS
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.results import Results, or_outside

CAUSE_WORDS: Final = {
    "profiler": "profiler",
    "sync": "waiting in a sync",
    "blocking_copy": "waiting in a copy",
    "alloc": "allocating memory",
    "module_load": "loading GPU code",
    "api": "other CUDA calls",
    "host": "host code",
    "launch": "launch overhead",
    "queue_delay": "start of queued work",
    "dependency": "waiting for GPU work",
    "unknown": "launch not recorded",
}
"""What each cause means, in the words of the reports."""


_LAUNCHED: Final = ("launch", "queue_delay", "dependency", "unknown")
"""Causes that often find the launch already made."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One way in which the GPUs lost time, over all of them together.

    Attributes:
        cause: as in `CAUSES`.
        where: where the host was meanwhile, or made the call; `(outside ranges)` included.
        phase: what had to wait: the phase of the launch that ended the gaps; empty where it is
            outside all ranges, or a call is to blame.
        culprit: the CUDA call to blame; empty where it is no single call, or any launch.
        times: how many gaps have such a part, or how many calls are to blame.
        total_ns: the idle time.
        per_step_ns: the idle time per step; None without steps.
        window_pct: share of the GPUs' windows.
        line: the source line that holds most of the idle; empty where none does, or none is known.
        more_lines: how many other lines hold some of it.
    """

    cause: str
    where: str
    phase: str
    culprit: str
    times: int
    total_ns: int
    per_step_ns: int | None
    window_pct: float
    line: str = ""
    more_lines: int = 0


def where_host_was() -> pl.Expr:
    """The host's place in gap_summary: a path, or `(outside ranges)`.

    It is empty where the launch came before the gap; the host was in the launch's phase then.
    """
    place = pl.col("host_range").fill_null("")
    return pl.when(place == "").then(or_outside("phase")).otherwise(place).alias("where")


def where_host_was_in_gap() -> pl.Expr:
    """The same for gaps, where an empty place can also mean that no range was open."""
    launched = pl.col("cause").cast(pl.String).is_in(_LAUNCHED)
    launching = pl.col("culprit").fill_null("").str.contains("Launch", literal=True)
    outside = (pl.col("host_range").fill_null("") == "") & ~launched & ~launching
    return pl.when(outside).then(pl.lit(OUTSIDE)).otherwise(where_host_was()).alias("where")


def idle_parts(results: Results) -> pl.DataFrame:
    """All idle, each ns once: `report`, `device`, `Cost`'s columns, and where a call is to blame
    its row in `call`: it may have stopped several GPUs."""
    cause = pl.col("cause").cast(pl.String)
    # which launch call it was says little: what costs is that there are so many
    culprit = pl.when(cause != "launch").then("culprit").fill_null("")
    gaps = (
        results.table("gap_summary")
        .filter(~cause.is_in(STALLS))
        .select(
            "report",
            "device",
            pl.lit(None, pl.UInt32).alias("call"),
            cause,
            where_host_was(),
            pl.col("phase").fill_null(""),
            culprit.alias("culprit"),
            pl.col("gaps").alias("times"),
            "total_ns",
            "per_step_ns",
            "source",
        )
    )
    calls = _with_per_step(results.induced(), results).select(
        "report",
        "device",
        "call",
        pl.col("kind").alias("cause"),
        or_outside("phase").alias("where"),
        pl.lit("").alias("phase"),
        pl.col("api").alias("culprit"),
        pl.lit(1, pl.Int64).alias("times"),
        pl.col("induced_idle_ns").alias("total_ns"),
        "per_step_ns",
        "source",
    )
    return pl.concat([gaps, calls])


def line_at(cause: str, culprit: str, line: str) -> str:
    """A source line as people read it. Host code is not at the line that is known but before it:
    that of the launch after it."""
    before = line and cause == "host" and not culprit
    return f"before {without_function(line)}" if before else line


def without_function(line: str) -> str:
    """`train.py:42` of `train.py:42 in step`."""
    return line.rpartition(" in ")[0] or line


def costs(results: Results) -> list[Cost]:
    """Every cost of the run, dearest first."""
    window_ns = int(results.table("accounting")["window_ns"].sum())
    key = ["cause", "where", "phase", "culprit"]
    per_step = pl.col("per_step_ns")
    gap = pl.col("call").is_null()
    n_calls = pl.struct("report", "call").filter(~gap).n_unique()
    parts = idle_parts(results)
    grouped = (
        parts.group_by(key)
        .agg(
            (pl.col("times").filter(gap).sum() + n_calls.cast(pl.Int64)).alias("times"),
            pl.col("total_ns").sum(),
            pl.when(per_step.null_count() < pl.len()).then(per_step.sum()).alias("per_step_ns"),
        )
        .with_columns((100 * pl.col("total_ns") / max(window_ns, 1)).alias("window_pct"))
        .join(_lines(parts, key), on=key)
        .sort("total_ns", *key, descending=[True] + 4 * [False])
    )
    return [Cost(**row) for row in grouped.iter_rows(named=True)]


def _lines(parts: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Per group `line` and `more_lines`; idle without a line counts as a line that is not named."""
    by_line = parts.group_by(*key, "source").agg(pl.col("total_ns").sum())
    dearest_first = by_line.sort("total_ns", "source", descending=[True, False])
    named = pl.col("source").is_not_null()
    return dearest_first.group_by(key).agg(
        pl.col("source").first().fill_null("").alias("line"),
        (named.sum().cast(pl.Int64) - named.first()).alias("more_lines"),
    )


def _with_per_step(calls: pl.DataFrame, results: Results) -> pl.DataFrame:
    """`calls` plus `per_step_ns`: a call's idle divided by the steps on its GPU of all processes
    that make such calls; 0 where it began outside the steps, null where there are none."""
    of = ["report", "process", "device"]
    steps = results.table("steps").select(*of, "step", "start_ns", "end_ns")
    alike = ["report", "device", "kind", "phase", "api"]
    callers = calls.select(*alike, "process").unique()
    counts = (
        callers.join(steps.group_by(of).agg(pl.len().alias("steps")), on=of, how="left")
        .group_by(alike)
        .agg(pl.col("steps").sum())
    )
    began_inside = (pl.col("start_ns") < pl.col("end_ns")).fill_null(value=False)
    per_step = (pl.col("induced_idle_ns") / pl.col("steps")).round().cast(pl.Int64)
    return (
        calls.sort("start_ns")
        .join_asof(steps.sort("start_ns"), on="start_ns", by=of, check_sortedness=False)
        .join(counts, on=alike, how="left", nulls_equal=True)
        .with_columns(
            pl.when(began_inside)
            .then(per_step)
            .when(pl.col("steps") > 0)
            .then(0)
            .alias("per_step_ns")
        )
    )
