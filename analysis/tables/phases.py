"""What each phase ran, and its idle time, including nested phases (spec §7.9)."""

import polars as pl

from nsysflow.analysis.bound import parts
from nsysflow.analysis.bound.rule import PARTS, bounds
from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.frames.nsys_ids import os_pid
from nsysflow.analysis.phases.work import beside
from nsysflow.analysis.view.view import View


def phase_table(view: View) -> pl.DataFrame:
    """The PHASES table, in tree order."""
    causes = [f"{cause}_ns" for cause in CAUSES]
    rows = beside(view.attribution, view.work, view.idle).sort("process", "key")
    of_rows = rows.select("process", "path").join(
        parts.of_phases(view), on=["process", "path"], how="left", maintain_order="left"
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
