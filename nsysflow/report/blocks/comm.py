"""Communication kernels by operation and phase."""

from nsysflow.report.fields import (
    Field,
    Limits,
    Row,
    filled,
    gpu_fields,
    left_out,
    named_rows,
    phase_field,
    value,
)
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results
from nsysflow.units import duration, number, percent, size


def block(results: Results, limits: Limits) -> Block:
    """Communication kernels, those with the most exposed time first; each rank's on their own."""
    table = results.table("comm").sort(
        "exposed_ns", "busy_ns", descending=True, maintain_order=True
    )
    sized = table["bytes"].null_count() < table.height
    bytes_field: Field[Row] = (figure("bytes"), value("bytes", size))
    return filled(
        "Communication",
        named_rows(table, limits),
        (
            *gpu_fields(results, table),
            (figure("exposed"), value("exposed_ns", duration)),
            (figure("overlapped"), value("hidden_pct", percent)),
            (figure("busy"), value("busy_ns", duration)),
            (figure("count"), value("count", number)),
            *((bytes_field,) if sized else ()),
            phase_field(),
            (words("operation"), value("operation")),
            (words("kernel", spare=True), value("name")),
        ),
        caption="Exposed: without compute at the same time; includes waiting for other ranks",
        more=left_out(table.height - limits.rows, "comm"),
    )
