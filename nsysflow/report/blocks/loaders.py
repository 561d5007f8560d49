"""DataLoaders and their workers."""

from typing import Final

import polars as pl

from nsysflow.base.units import duration, percent
from nsysflow.report.fields import BlockDeclaration, Limits, Row, Rows, measure
from nsysflow.report.layout import figure, words
from nsysflow.report.results import RunTables

WORTH_PCT: Final = 2
"""A page shows the loaders for which a loop waits for so much of its time."""


def _loaders(results: RunTables, _: Limits) -> Rows:
    """Each loader for which its loop waits."""
    waited = 100 * pl.col("waited_ns") >= WORTH_PCT * pl.col("span_ns")
    rows = (
        results.table("loader_workers")
        .filter(pl.col("worker").is_null() & waited)
        .with_columns((100 * pl.col("waited_ns") / pl.col("span_ns")).alias("waited_pct"))
        .sort("waited_ns", descending=True)
    )
    return Rows(rows, len(rows))


def _loader(row: Row) -> str:
    """`3 workers (fork)`."""
    workers, starts = row["workers"], row["start_method"]
    if not workers:
        return "in the loop's own process"
    return f"{workers} worker{'s' * (workers > 1)}" + (f" ({starts})" if starts else "")


def _rate(per_s: float) -> str:
    return f"{per_s:,.1f} /s"


LOADERS: Final = BlockDeclaration(
    table="loader_workers",
    title="Data loaders",
    caption="Busy: of the time of all workers; waited: the loop for its batches, of its time",
    rows=_loaders,
    fields=(
        (words("loader"), _loader),
        measure("busy", "busy_pct", percent),
        measure("batch median", "fetch_median_ns", duration),
        measure("95 %", "fetch_p95_ns", duration),
        measure("batches", "batches_per_s", _rate),
        measure("waited", "waited_pct", percent),
        (words("pinned"), lambda row: "yes" if row["pin_memory"] else "no"),
        (figure("cores"), lambda row: "" if row["cores"] is None else f"{row['cores']}"),
        (figure("pid"), lambda row: f"{row['process']}"),
    ),
    hides_empty=True,
)
