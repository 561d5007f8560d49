"""All idle time by cause, place of the host, waiting phase and culprit.

Most of it comes from gap_summary. The idle time behind waits, blocking copies and allocations comes
from syncs, which adds up to the same but knows the place of the call: when the GPU ran out of work,
the host may have been in the next phase.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import DECLARED, STALLS
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.results import Results, or_outside

_LAUNCHED: Final = (
    "launch",
    *(cause.name for cause in DECLARED if cause.kind in ("queue", "unknown")),
)
"""The causes of gaps whose launch often came before them."""


def where_host_was() -> pl.Expr:
    """The host's place in gap_summary: a path, or `(outside ranges)`.

    The column is empty where the launch came before the gap. Then it is the launch's phase.
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
    """All idle time, each ns once: `report`, `device`, `call`, `cause`, `where`, `phase`,
    `culprit`, `times`, `total_ns`, `per_step_ns`, `source`.

    `call` is the row of the call to blame, which may have stopped several GPUs; else null.
    """
    return pl.concat([_of_gaps(results), _of_calls(results)])


def _of_gaps(results: Results) -> pl.DataFrame:
    """The idle time that no wait, blocking copy or allocation is to blame for."""
    cause = pl.col("cause").cast(pl.String)
    # which call launched says little: what takes time is the number of launches
    culprit = pl.when(cause != "launch").then("culprit").fill_null("")
    gaps = results.table("gap_summary").filter(~cause.is_in(STALLS))
    return gaps.select(
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


def _of_calls(results: Results) -> pl.DataFrame:
    """The idle time behind waits, blocking copies and allocations."""
    return _with_per_step(results.induced(), results).select(
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


def line_at(cause: str, culprit: str, line: str) -> str:
    """A source line as people read it. The line known of host code is that of the launch after it,
    so the code is before that line."""
    before = line and cause == "host" and not culprit
    return f"before {without_function(line)}" if before else line


def without_function(line: str) -> str:
    """`train.py:42` of `train.py:42 in step`."""
    return line.rpartition(" in ")[0] or line


def _with_per_step(calls: pl.DataFrame, results: Results) -> pl.DataFrame:
    """`calls` plus `per_step_ns`: the idle time behind a call, divided by the steps on its GPU of
    all processes that make such calls; 0 where it began outside the steps, null without steps."""
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
