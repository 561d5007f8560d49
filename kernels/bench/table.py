"""Rows as a table for people, and notes about them."""

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from rich.table import Table

from nsysflow.base.peaks import peak_flops
from nsysflow.kernels.bench.rows import MEASURES, Row, flat, shown

HEADS: Final = {
    "device": "device",
    "span_cold": "span cold",
    "span_warm": "span warm",
    "graph_cold": "graph cold",
    "graph_warm": "graph warm",
}


def table_of(rows: Sequence[Row]) -> Table:
    """The rows of one kernel: whether they are correct and, if timed, medians in us."""
    timed = any(row.measured for row in rows)
    title = f"{rows[0].kernel}  medians in us" if timed else rows[0].kernel
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("shape", "dtype", "direction", "variant"):
        table.add_column(head, no_wrap=True)
    for head in ("error / tolerance", *_heads(timed=timed)):
        table.add_column(head, justify="right")
    for row in rows:
        cells = [shown(row.shape), row.dtype, row.direction, row.variant, _verdict(row)]
        table.add_row(*cells, *(_times(row) if timed else ()))
    return table


def _heads(*, timed: bool) -> tuple[str, ...]:
    rates = ("least host", "spread %", "GB/s", "% of copy", "TFLOP/s", "% of peak", "peak MB")
    return (*HEADS.values(), *rates) if timed else ()


def _verdict(row: Row) -> str:
    if row.error is None:
        return "[red]failed[/]"
    share = f"{100 * row.error:.3g} %"
    return share if row.outcome == "right" else f"[red]{share} WRONG[/]"


def _times(row: Row) -> list[str]:
    if row.measured is None:
        return []
    columns: dict[str, Any] = flat(row, peak_flops(row.machine.gpu, row.unit))
    medians = [_number(columns[f"{name}_median_ns"], 1e-3) for name in MEASURES]
    return [
        *medians,
        _number(columns["host_min_ns"], 1e-3),
        f"{row.measured.device.spread_pct:.1f}",
        _number(columns["bytes_per_s"], 1e-9),
        _number(columns["copy_pct"], 1),
        _number(columns["flops_per_s"], 1e-12),
        _number(columns["peak_pct"], 1),
        _number(columns["peak_memory_bytes"], 1e-6),
    ]


def _number(value: float | None, scale: float) -> str:
    """A number with three digits, or more if it is larger than 999."""
    if value is None:
        return ""
    scaled = value * scale
    return f"{scaled:.0f}" if abs(scaled) >= 100 else f"{scaled:.3g}"


def notes_of(rows: Sequence[Row]) -> list[str]:
    """One line per row that is wrong, failed or incomplete."""
    return [f"{row.case}: {row.outcome}: {row.note}" for row in rows if row.note]


def spread_of(rows: Sequence[Row]) -> str | None:
    """How far two runs of the same measurement differ; None if nothing was timed."""
    spreads = {
        (name, row.case): stats.spread_pct
        for row in rows
        for name in ("device", "graph_warm")
        if (stats := getattr(row.measured, name, None)) is not None
    }
    if not spreads:
        return None
    name, case = max(spreads, key=lambda each: spreads[each])
    return (
        f"run-to-run spread of the medians (device, graph warm): median"
        f" {median(spreads.values()):.2f} %, largest {spreads[name, case]:.2f} %"
        f" ({HEADS[name]}, {case})"
    )
