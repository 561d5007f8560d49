"""What the host ran while the GPU waited for it, by function."""

from typing import Final

import polars as pl

from nsysflow.analysis.findings.host_functions import code, functions
from nsysflow.analysis.tables.host_stacks import NOT_SAMPLED
from nsysflow.base.units import duration, share
from nsysflow.report.fields import Limits, gpus_together, make_block, more_rows, phase_field
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results

WORTH: Final = 0.3
"""A row has at least its part of this share of the window: a short list names only code that
matters, a long one more."""


def block(results: Results, limits: Limits) -> Block:
    """The code with the most idle time."""
    steps = results.step_count
    table = results.table("host_stacks")
    whole_ns = int(table["idle_ns"].sum())
    window_ns = int(results.table("accounting")["window_ns"].sum())
    ran = functions(table, "phase")
    shown = ran.filter(pl.col("idle_ns") >= WORTH / limits.rows * window_ns).head(limits.rows)
    return make_block(
        "Host code",
        shown.iter_rows(named=True),
        (
            (figure("idle"), lambda row: duration(round(row["idle_ns"] / steps))),
            (figure("share"), lambda row: share(row["idle_ns"], whole_ns)),
            (words("the host ran"), code),
            phase_field(),
        ),
        caption=f"What ran while the GPU waited{_unknown(table)}{results.per_step}"
        f"{gpus_together(results)}",
        rest=more_rows(len(ran) - len(shown), "host_stacks"),
    )


def _unknown(table: pl.DataFrame) -> str:
    """In how much of the time it is not known what ran, for a caption; empty where it always is."""
    rows = table.filter(pl.col("function") == NOT_SAMPLED)
    ns = int(rows["idle_ns"].sum())
    if not ns:
        return ""
    operators = rows["samples"].null_count() == len(rows)  # torch.profiler records no samples
    why = "outside operators" if operators else "not sampled"
    return f"; {share(ns, int(table['idle_ns'].sum()))} {why}"
