"""How full the GPU is while it is busy: what sampled counters say of phases and classes."""

from typing import Final

import polars as pl

from nsysflow.report.layout import Block, Column, figure, words
from nsysflow.report.results import Results, gpu_name
from nsysflow.report.sections import more
from nsysflow.report.units import duration, percent

FULL_BAR: Final = "full bar, idle chip"
"""Busy all the while, and most of the chip has nothing to do: too few or too small blocks."""

FEW_SMS_PCT: Final = 30
"""Fewer active SMs than that, and the chip idles although something runs on it (spec §10)."""

_SHOWN: Final = ("sm_active_pct", "sm_issue_pct", "tensor_active_pct")


def idle_chip() -> pl.Expr:
    """Phases and classes that are busy on a chip that is mostly not: where the GPU idles between
    operations, that is the matter, and few SMs are no wonder."""
    few = pl.col("sm_active_pct") < FEW_SMS_PCT
    return few & (pl.col("bound").cast(pl.String) != "overhead").fill_null(value=True)


def fullness(results: Results, limit: int) -> Block:
    """Phases and classes of kernels with what the counters say of them: those that leave the chip
    idle before the others, the longest first."""
    table = results.table("gpu_metrics").filter(pl.col("samples") > 0)
    flagged = idle_chip().fill_null(value=False)
    ranked = table.with_columns(flagged.alias("flagged")).sort(
        "flagged", "busy_ns", descending=True, maintain_order=True
    )
    several = table.select("report", "device").n_unique() > 1
    many = len(results.reports) > 1
    rows = tuple(
        (
            *((gpu_name(row["report"], row["device"], several=many),) if several else ()),
            row["group"],
            row["name"],
            duration(row["busy_ns"]),
            *(percent(row[name]) for name in _SHOWN),
            percent(_moved(row["dram_read_pct"], row["dram_write_pct"])),
            row["bound"] or "",
            FULL_BAR if row["flagged"] else "",
        )
        for row in ranked.head(limit).iter_rows(named=True)
    )
    noted = any(row[-1] for row in rows)
    return Block(
        title="How full the GPU is while busy",
        caption="Sampled counters, in percent of what the chip can do at most",
        columns=(
            *((Column(head="GPU"),) if several else ()),
            Column(head="of"),
            words("name"),
            *map(figure, ("busy", "SMs active", "issue", "tensor", "memory")),
            Column(head="bound"),
            *((Column(head=""),) if noted else ()),
        ),
        rows=rows if noted else tuple(row[:-1] for row in rows),
        more=more(table.height - limit, "gpu_metrics"),
    )


def _moved(read_pct: float | None, write_pct: float | None) -> float | None:
    """Both directions share the memory's bandwidth."""
    known = [pct for pct in (read_pct, write_pct) if pct is not None]
    return sum(known) if known else None
