"""Kernels by name, and their classes."""

from typing import Final

import polars as pl

from nsysflow.analysis.tables.kernel_classes import OTHER
from nsysflow.base.units import duration, percent, share
from nsysflow.report.fields import (
    Limits,
    gpu_fields,
    make_block,
    mean_count,
    more_rows,
    named_rows,
    value,
)
from nsysflow.report.layout import Block, bar, figure, words
from nsysflow.report.results import Results

_CLASSES: Final = 4
"""So many classes fit on a line beside their bar, the last of which is all others."""

_BAR: Final = 20


def block(results: Results, limits: Limits) -> Block:
    """The kernels with the most time, and below them all kernel time by class."""
    table = results.table("kernels").sort("total_ns", descending=True, maintain_order=True)
    steps = results.step_count
    return make_block(
        "Kernels",
        named_rows(table, limits),
        (
            *gpu_fields(results, table),
            (figure("share"), value("share_pct", percent)),
            (figure("time"), lambda row: duration(round(row["total_ns"] / steps))),
            (figure("count"), lambda row: mean_count(row["count"], steps)),
            (figure("median"), value("median_ns", duration)),
            (words("class"), value("class")),
            (words("kernel"), value("short_name")),
        ),
        caption=f"Share of all kernel time on its GPU{results.per_step}",
        more=_by_class(table),
        rest=more_rows(table.height - limits.rows, "kernels"),
    )


def _by_class(kernels: pl.DataFrame) -> tuple[str, ...]:
    """`by class ██████▓▓▓▒▒░ matmul 61 %, elementwise 20 %, …`; nothing without kernel time."""
    sums = kernels.group_by("class").agg(pl.col("total_ns").sum())
    ranked = sums.filter(pl.col("total_ns") > 0).sort("total_ns", "class", descending=[True, False])
    if ranked.is_empty():
        return ()
    total = int(ranked["total_ns"].sum())
    named = ranked.filter(pl.col("class") != OTHER).head(_CLASSES - 1).rows()
    rest = total - sum(ns for _, ns in named)
    parts = [*named, *([(OTHER, rest)] if rest else [])]
    drawn = bar([ns for _, ns in parts], _BAR)
    listed = ", ".join(f"{name} {share(ns, total)}" for name, ns in parts)
    return (f"by class: {drawn} {listed}",)
