"""What is behind a finding: the rows of its table, and the gaps, the largest first."""

from collections.abc import Collection, Iterable
from typing import Any, Final

import polars as pl

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.findings.finding import Finding
from nsysflow.report.fields import left_out
from nsysflow.report.layout import Block
from nsysflow.report.one_table import columns_that_fit, readable

_ROWS: Final = 5
"""A few rows show what it looks like; the table has the others."""

_OF_GAPS: Final = ("start_ns", "duration_ns", "step", "cause", "prev_op", "next_op")

_VIA: Final = ("api", "short_name", "name", "class", "operation", "culprit")
"""The columns in which the call, kernel or class of a finding may stand."""


def gaps_behind(finding: Finding, tables: Any, causes: Collection[str]) -> Iterable[Block]:
    """The largest gaps of a finding's place and causes, a slice of all gaps at a time.

    Args:
        finding: which one.
        tables: those of the judged part, as attributes.
        causes: of the gaps; none where the finding is about a busy GPU.
    """
    if not causes:
        return
    wanted = pl.col("cause").is_in([*causes])
    largest, count = [], 0
    for gaps in tables.gap_slices():
        mine = at_its_place(finding, gaps.filter(wanted))
        count += len(mine)
        largest.append(mine.top_k(_ROWS, by="duration_ns"))
    rows = pl.concat(largest).top_k(_ROWS, by="duration_ns").sort("duration_ns", descending=True)
    if rows.is_empty():
        return
    shown = readable(rows.select(_OF_GAPS), "Largest gaps behind it")
    yield _with_more(shown, count - len(rows), "gaps")


def rows_behind(
    finding: Finding,
    tables: Any,
    causes: Collection[str],
    width: int,
) -> Iterable[Block]:
    """The largest rows of a finding's own table that are of its place, call or kernels.

    Args:
        finding: which one.
        tables: those of the judged part, as attributes.
        causes: those that the rows are of, where they have one; none for all.
        width: columns of a line.
    """
    declared = TABLES[finding.table]
    if declared.in_slices or declared.of == "run":
        return
    table: pl.DataFrame = getattr(tables, finding.table)
    shown = declared.shown.split() or table.columns
    weight = declared.ranked_by or next(name for name in shown if name.endswith(("_ns", "_pct")))
    rows = _about(finding, at_its_place(finding, table)).filter(pl.col(weight) > 0)
    if causes and "cause" in rows.columns:
        rows = rows.filter(pl.col("cause").is_in([*causes]))
    largest = rows.top_k(_ROWS, by=weight).sort(weight, descending=True)
    if largest.is_empty():
        return
    block = readable(
        largest.select(columns_that_fit(largest, shown, width)), f"Largest in {finding.table}"
    )
    yield _with_more(block, len(rows) - len(largest), finding.table)


def _with_more(block: Block, count: int, table: str) -> Block:
    return Block(
        title=block.title, columns=block.columns, rows=block.rows, rest=left_out(count, table)
    )


def at_its_place(finding: Finding, table: pl.DataFrame) -> pl.DataFrame:
    """The rows of the finding's process, device and line; without a line, of its phase."""
    wanted = [
        pl.col(name) == value
        for name, value in (("process", finding.process), ("device", finding.device))
        if value is not None and name in table.columns
    ]
    if (finding.source or finding.via) and "source" in table.columns:
        lines = (("source", finding.source), ("via", finding.via))
        wanted += [pl.col(name).fill_null("") == value for name, value in lines]
    elif finding.phase and (path := _path_column(table)):
        inside = pl.col(path).cast(pl.String)
        wanted.append((inside == finding.phase) | inside.str.starts_with(f"{finding.phase}/"))
    return table.filter(wanted) if wanted else table


def _path_column(table: pl.DataFrame) -> str | None:
    return next((name for name in ("phase", "path") if name in table.columns), None)


def _about(finding: Finding, table: pl.DataFrame) -> pl.DataFrame:
    """The rows of the kernels that the finding would change, or of its call, kernel or class. At a
    line all calls count, as they do for the finding."""
    if (finding.source or finding.via) and "source" in table.columns:
        return table
    scaled = [] if finding.changes is None else [name for name, _ in finding.changes.scaled]
    names = scaled or [finding.culprit] * bool(finding.culprit)
    columns = [name for name in _VIA if name in table.columns]
    if not names or not columns:
        return table
    named = [pl.col(name).cast(pl.String).is_in(names) for name in columns]
    return table.filter(pl.any_horizontal(named))
