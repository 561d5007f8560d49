"""Sampled counters: how much of the GPU is in use while it is busy."""

from typing import Final

import polars as pl

from nsysflow.base.units import duration, percent
from nsysflow.report.fields import (
    Field,
    Limits,
    Row,
    gpu_fields,
    make_block,
    more_rows,
    named_rows,
    value,
)
from nsysflow.report.layout import Block, Column, figure, without_empty_columns, words
from nsysflow.report.results import Results

FEW_SMS: Final = "few SMs active"
"""The GPU is busy all the time, and most SMs have nothing to do: too few or too small blocks."""

FEW_SMS_PCT: Final = 30
"""Fewer active SMs than this are few (spec §10)."""


def block(results: Results, limits: Limits) -> Block:
    """Phases and kernel classes with their counters: first those with few SMs active, then by
    time."""
    table = results.table("gpu_metrics").filter(pl.col("samples") > 0)
    ranked = table.with_columns(few_sms().fill_null(value=False).alias("few_sms")).sort(
        "few_sms", "busy_ns", descending=True, maintain_order=True
    )
    fields: tuple[Field[Row], ...] = (
        *gpu_fields(results, table),
        (Column(head="of"), value("group")),
        (words("name"), value("name")),
        (figure("busy"), value("busy_ns", duration)),
        (figure("SMs active"), value("sm_active_pct", percent)),
        (figure("issue"), value("sm_issue_pct", percent)),
        (figure("tensor"), value("tensor_active_pct", percent)),
        (figure("memory"), _memory),
        (Column(head="bound"), value("bound")),
        (Column(head="note"), lambda row: FEW_SMS if row["few_sms"] else ""),
    )
    metrics = make_block(
        "GPU counters while busy",
        named_rows(ranked, limits),
        fields,
        caption="Sampled, in percent of the hardware's maximum",
        rest=more_rows(table.height - limits.rows, "gpu_metrics"),
    )
    return without_empty_columns(metrics)


def few_sms() -> pl.Expr:
    """Whether few SMs are active although a kernel runs. Between operations the GPU idles, so few
    active SMs say nothing where overhead is the bound."""
    few = pl.col("sm_active_pct") < FEW_SMS_PCT
    return few & (pl.col("bound").cast(pl.String) != "overhead").fill_null(value=True)


def _memory(row: Row) -> str:
    """Reads and writes share the memory's bandwidth."""
    known = [row[each] for each in ("dram_read_pct", "dram_write_pct") if row[each] is not None]
    return percent(sum(known)) if known else ""
