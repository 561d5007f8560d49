"""The GPU memory of phases: the most of it, and what stays from step to step."""

from collections.abc import Callable
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import line, without_function
from nsysflow.base.units import number, percent, size
from nsysflow.report.fields import (
    BlockDeclaration,
    Field,
    Limits,
    Row,
    Rows,
    gpu_fields,
    measure,
    phase_field,
    text,
)
from nsysflow.report.layout import Column, figure, words
from nsysflow.report.results import RunTables

_MOST_MEMORY: Final = pl.coalesce("peak_bytes", "peak_reserved_bytes")


def _by_memory(results: RunTables, _: Limits) -> Rows:
    """Phases by their peak; of equal ones the outer one first. All together is a row only where
    no phase has its peak."""
    table = results.table("memory")
    of_phase = _MOST_MEMORY.filter(pl.col("phase") != "").max().over("report", "process", "device")
    rows = table.filter((pl.col("phase") != "") | (of_phase != _MOST_MEMORY).fill_null(value=True))
    return Rows(rows.sort(_MOST_MEMORY, descending=True, maintain_order=True), len(rows))


def _peak(results: RunTables) -> str:
    """`Peak 61.2 GB in forward/attention (model.py:88); reserved 70.1 GB`, of the process and GPU
    with most; nothing where nothing is known."""
    of_all = results.table("memory").filter(phase="").drop_nulls("peak_ns")
    if of_all.is_empty():
        return ""
    most = of_all.sort(_MOST_MEMORY, descending=True, maintain_order=True).row(0, named=True)
    source = _line(most)
    phase = f" in {most['peak_phase']}" if most["peak_phase"] else ""
    place = phase + (f" ({source})" if source else "")
    reserved = f"{size(most['peak_reserved_bytes'])} reserved"
    if most["peak_bytes"] is None:
        return f"Peak {reserved}{place}, as CUDA says"
    known = most["peak_reserved_bytes"] is not None
    return f"Peak {size(most['peak_bytes'])}{place}{f'; {reserved}' if known else ''}"


def _line(row: Row) -> str:
    """`model.py:88`, of the program."""
    return without_function(row["source"] or "")


def _peak_elsewhere(row: Row) -> str:
    """The phase of the peak, where it is not the row's own."""
    return "" if row["peak_phase"] == row["phase"] else row["peak_phase"] or ""


def _code(row: Row) -> str:
    """`model.py:88 in attend`; nothing where that is not known."""
    return line(row["source"] or "", row["via"] or "")


def _allocated_at(row: Row) -> str:
    """Where memory was allocated, as far as that is known."""
    if _code(row) or row["operator"]:
        return _code(row)
    return "(not recorded)" if row["allocations"] else "(before the recording)"


def _place(where: Callable[[Row], str]) -> tuple[Field[Row], ...]:
    """The columns of where memory was asked for."""
    phase = words("phase"), lambda row: row["phase"]
    return (phase, (Column(head="line"), where), text("operator", spare=True))


MEMORY: Final = (
    BlockDeclaration(
        table="memory",
        title="GPU memory",
        caption=_peak,
        rows=_by_memory,
        fields=(
            gpu_fields,
            measure("peak", "peak_bytes", size),
            measure("reserved", "peak_reserved_bytes", size),
            measure("at begin", "begin_bytes", size),
            measure("at end", "end_bytes", size),
            (figure("growth"), lambda row: size(row["growth_bytes"] or None)),
            (words("phase"), lambda row: row["phase"] or "all"),
            (words("peak in"), _peak_elsewhere),
            (Column(head="line"), _line),
            text("operator", spare=True),
        ),
        hides_empty=True,
    ),
    BlockDeclaration(
        table="out_of_memory",
        title="Out of GPU memory",
        caption="What there was when an allocation failed",
        fields=(
            gpu_fields,
            measure("asked for", "asked_bytes", size),
            measure("allocated", "allocated_bytes", size),
            measure("reserved", "reserved_bytes", size),
            measure("free", "free_bytes", size),
            *_place(_code),
        ),
        hides_empty=True,
    ),
    BlockDeclaration(
        table="peak_memory",
        title="GPU memory at the peak",
        caption="What was allocated then, by the place of allocation",
        sort=("bytes",),
        fields=(
            gpu_fields,
            measure("share", "share_pct", percent),
            measure("bytes", "bytes", size),
            (
                figure("allocations"),
                lambda row: number(row["allocations"]) if row["allocations"] else "",
            ),
            *_place(_allocated_at),
        ),
        hides_empty=True,
    ),
    BlockDeclaration(
        table="kept_memory",
        title="GPU memory kept",
        caption="Allocated in a step, and still there at the end of the next",
        sort=("bytes",),
        fields=(
            gpu_fields,
            (figure("a step"), lambda row: size(round(row["bytes"] / row["of_steps"]))),
            (figure("in steps"), lambda row: f"{row['steps']:,} of {row['of_steps']:,}"),
            phase_field(),
            (Column(head="line"), _code),
            text("operator"),
        ),
        hides_empty=True,
    ),
)
