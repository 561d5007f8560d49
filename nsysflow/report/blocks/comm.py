"""Communication kernels by operation and phase."""

from collections.abc import Callable

from nsysflow.base.units import duration, percent, size
from nsysflow.report.fields import (
    Field,
    Limits,
    Row,
    gpu_fields,
    make_block,
    mean_count,
    more_rows,
    named_rows,
    phase_field,
    value,
)
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results


def block(results: Results, limits: Limits) -> Block:
    """Communication kernels, those with the most exposed time first; each rank's on their own."""
    table = results.table("comm").sort(
        "exposed_ns", "busy_ns", descending=True, maintain_order=True
    )
    sized = table["bytes"].null_count() < table.height
    steps = results.step_count

    def per(column: str, shown: Callable[[int], str]) -> Callable[[Row], str]:
        return lambda row: "" if row[column] is None else shown(round(row[column] / steps))

    bytes_field: Field[Row] = (figure("bytes"), per("bytes", size))
    return make_block(
        "Communication",
        named_rows(table, limits),
        (
            *gpu_fields(results, table),
            (figure("exposed"), per("exposed_ns", duration)),
            (figure("overlapped"), value("hidden_pct", percent)),
            (figure("busy"), per("busy_ns", duration)),
            (figure("count"), lambda row: mean_count(row["count"], steps)),
            *((bytes_field,) if sized else ()),
            phase_field(),
            (words("operation"), value("operation")),
            (words("kernel", spare=True), value("name")),
        ),
        caption=(
            f"Exposed: without compute at the same time; waiting for ranks too{results.per_step}"
        ),
        rest=more_rows(table.height - limits.rows, "comm"),
    )
