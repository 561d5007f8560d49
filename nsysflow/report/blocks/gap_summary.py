"""All idle time by cause, place of the host, waiting phase and culprit."""

from dataclasses import dataclass

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES, STALLS
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.report.blocks.starved import starved_line
from nsysflow.report.fields import Limits, filled, left_out, together
from nsysflow.report.idle_parts import idle_parts, line_at, without_function
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results
from nsysflow.units import duration, number, percent


@dataclass(frozen=True, kw_only=True)
class IdleCost:
    """Idle time of one cause at one place, over all GPUs.

    Attributes:
        cause: as in `CAUSES`.
        where: where the host was meanwhile, or made the call; `(outside ranges)` included.
        phase: the phase that had to wait, which launched the work after the gaps; empty where it is
            outside all ranges, or a call is to blame.
        culprit: the CUDA call to blame; empty where it is no single call, or any launch.
        times: how many gaps have such a part, or how many calls are to blame.
        total_ns: the idle time.
        per_step_ns: the idle time per step; None without steps.
        window_pct: share of the GPUs' windows.
        line: the source line with most of the idle time; empty where none is known.
        more_lines: how many other lines have some of it.
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


def block(results: Results, limits: Limits) -> Block:
    """The idle time, largest first, with what it is and where."""
    costs = idle_costs(results)
    summary = filled(
        "Idle time",
        costs[: limits.rows],
        (
            (figure("idle"), lambda cost: duration(cost.total_ns)),
            (figure("share"), lambda cost: percent(cost.window_pct)),
            (figure("per step"), lambda cost: duration(cost.per_step_ns)),
            (figure("count"), lambda cost: number(cost.times)),
            (Column(head="cause"), lambda cost: CAUSES[cost.cause].label),
            (words("where the host was"), lambda cost: cost.where),
            (words("culprit"), lambda cost: cost.culprit),
            (Column(head="line"), _line),
            (words("waiting phase", spare=True), _waiting_phase),
        ),
        caption=f"By cause, and by where the host was meanwhile{together(results)}",
        more=(*left_out(len(costs) - limits.rows, "gap_summary"), *starved_line(results)),
    )
    return without_empty_columns(summary)


def idle_costs(results: Results) -> list[IdleCost]:
    """All idle time of the run in rows, largest first."""
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
    return [IdleCost(**row) for row in grouped.iter_rows(named=True)]


def _lines(parts: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Per group `line` and `more_lines`; idle time without a line counts as one unnamed line."""
    by_line = parts.group_by(*key, "source").agg(pl.col("total_ns").sum())
    largest_first = by_line.sort("total_ns", "source", descending=[True, False])
    named = pl.col("source").is_not_null()
    return largest_first.group_by(key).agg(
        pl.col("source").first().fill_null("").alias("line"),
        (named.sum().cast(pl.Int64) - named.first()).alias("more_lines"),
    )


def _line(cost: IdleCost) -> str:
    """The line with most of it, and how many others there are."""
    line = line_at(cost.cause, cost.culprit, cost.line)
    if not cost.line or not cost.more_lines:
        return line
    plural = "s" if cost.more_lines > 1 else ""
    return f"{without_function(line)} +{cost.more_lines} more line{plural}"


def _waiting_phase(cost: IdleCost) -> str:
    """The phase that had to wait, unless the host was in it."""
    if cost.cause in STALLS:
        return ""
    phase = cost.phase or OUTSIDE
    return "" if phase == cost.where else phase
