"""The lines of the program whose kernels take most time."""

from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import without_function
from nsysflow.base.units import percent
from nsysflow.report.fields import (
    BlockDeclaration,
    Limits,
    Row,
    Rows,
    count_per_step,
    gpu_fields,
    measure,
    measure_per_step,
)
from nsysflow.report.layout import Column, words
from nsysflow.report.results import RunTables

KNOWN_PCT: Final = 50
"""Where less of the kernel time belongs to known lines, they would mislead."""

COMPUTES_PCT: Final = 50
"""A GPU that computes for less of the time has other things to read about."""

ALL_PCT: Final = 95
"""A line that launches more replays a graph, or calls the whole model: that tells nothing."""


def _lines(results: RunTables, _: Limits) -> Rows:
    """The lines, where the GPU mostly computes, and mostly for several lines that are known."""
    table, accounting = results.table("code"), results.table("accounting")
    known = table.filter(pl.any_horizontal(pl.col("source", "via").is_not_null()))
    computes_ns, window_ns = accounting["compute_ns"].sum(), accounting["window_ns"].sum()
    tells = (
        100 * computes_ns >= COMPUTES_PCT * window_ns
        and 100 * known["total_ns"].sum() >= KNOWN_PCT * table["total_ns"].sum()
        and known.filter(pl.col("share_pct") > ALL_PCT).is_empty()
    )
    worth = table if tells else table.clear()
    return Rows(worth, len(worth))


def _line(row: Row) -> str:
    """`model.py:42 in forward`; `train.py:9 in step: backward` where it waits for autograd's
    thread. A line that only calls a framework says less than the line there, so it comes behind:
    `modeling_t5.py:345 in forward, from train.py:9`."""
    source, via = row["source"] or "", (row["via"] or "").rpartition("/")[2]
    shown = f"{via}, from {without_function(source)}" if source and via else source or via
    return f"{shown}: backward" if row["waits"] else shown or "(not known)"


def _mostly(row: Row) -> str:
    """`61 % reduce_kernel`."""
    return f"{percent(row['kernel_pct'])} {row['kernel']}"


CODE: Final = BlockDeclaration(
    table="code",
    title="Code",
    caption="Kernel time by the line of your program that launched it",
    per_step=True,
    rows=_lines,
    fields=(
        gpu_fields,
        measure("share", "share_pct", percent),
        measure_per_step("time", "total_ns"),
        count_per_step("kernels", "kernels"),
        (words("line"), _line),
        (Column(head="pass"), lambda row: "backward" if row["backward"] else ""),
        (words("mostly"), _mostly),
    ),
    hides_empty=True,
)
