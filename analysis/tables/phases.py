"""What each phase ran, and its idle time, including nested phases (spec §7.9)."""

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.frames.statistics import whole_ns
from nsysflow.analysis.phases.work import with_columns_of
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection import bound as parts
from nsysflow.analysis.selection.bound import PARTS, bounds
from nsysflow.analysis.selection.view import View


def phase_table(view: View) -> pl.DataFrame:
    """The PHASES table, in tree order."""
    causes = [f"{cause}_ns" for cause in CAUSES]
    work = with_columns_of(view.attribution, view.work, view.idle)
    rows = (
        work.join(_steady(view), on=["process", "path"], how="left", maintain_order="left")
        .join(_steady_steps(view), on="process", how="left", maintain_order="left")
        .with_columns(_steady_per_step().alias("steady_per_step_ns"))
        .sort("process", "key")
    )
    of_rows = rows.select("process", "path").join(
        parts.phase_parts(view), on=["process", "path"], how="left", maintain_order="left"
    )
    bound = bounds(of_rows.select(pl.col([f"{part}_ns" for part in PARTS]).fill_null(0)))
    return (
        rows.hstack(bound.get_columns())
        .with_columns(pl.col(causes).fill_null(0))
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            pl.col("joined").alias("path"),
            pl.sum_horizontal(causes).alias("idle_ns"),
        )
    )


def _steady(view: View) -> pl.DataFrame:
    """`process`, `path`, `steady_ns`: the phases' busy and idle time in steady steps."""
    idle_ns = pl.sum_horizontal(f"{cause}_ns" for cause in CAUSES)
    parts = [
        view.steady_busy.select("process", "path", pl.col("busy_ns").alias("steady_ns")),
        view.steady_idle.select("process", "path", idle_ns.alias("steady_ns")),
    ]
    return pl.concat(parts).group_by("process", "path").agg(pl.col("steady_ns").sum())


def _steady_steps(view: View) -> pl.DataFrame:
    """`process`, `steady_steps`: how many ranges are a steady step on some device."""
    steady = view.steps.filter("steady")
    return steady.group_by("process").agg(pl.col("range").n_unique().alias("steady_steps"))


def _steady_per_step() -> pl.Expr:
    """Null where a process has no steady steps."""
    total = pl.col("steady_ns").fill_null(0)
    return pl.when(pl.col("steady_steps") > 0).then(whole_ns(total / pl.col("steady_steps")))
