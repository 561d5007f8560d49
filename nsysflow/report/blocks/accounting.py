"""Where each GPU's time goes."""

from collections.abc import Callable
from typing import Final

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.units import duration
from nsysflow.report.fields import (
    Field,
    Limits,
    Row,
    gpu_field,
    make_block,
    more_rows,
    named_rows,
    time_and_share,
)
from nsysflow.report.layout import BAR_LETTERS, Block, Column, bar, figure
from nsysflow.report.results import RunTables

PARTS: Final = (
    ("compute_ns", "compute"),
    ("comm_exposed_ns", "comm"),
    ("copy_exposed_ns", "copy"),
    ("idle_ns", "idle"),
)
"""The parts of a window in the order of the accounting."""

_CAUSES: Final = 3
"""So many causes of idle time fit on a line."""


def block(results: RunTables, limits: Limits) -> Block:
    """A row per GPU: its window, and the parts of it with a bar."""
    table = results.table("accounting")
    # several GPUs have longer names and smaller parts
    width = 30 if table.height == 1 else 15
    drawn = Column(head="", spare=True, drawn=True)
    return make_block(
        "GPU time",
        named_rows(table, limits),
        (
            gpu_field(results),
            (figure("step" if results.of_steps else "window"), _per_step(results, "window_ns")),
            (drawn, lambda row: bar([row[column] for column, _ in PARTS], width)),
            *(
                _part(results, *part, letter)
                for part, letter in zip(PARTS, BAR_LETTERS, strict=False)
            ),
        ),
        caption=f"Communication and copies: the part not overlapped by compute{results.per_step}",
        more=_idle_by_cause(results),
        rest=more_rows(table.height - limits.rows, "accounting"),
    )


def _per_step(results: RunTables, column: str) -> Callable[[Row], str]:
    return lambda row: duration(round(row[column] / _steps(results, row)))


def _steps(results: RunTables, row: Row) -> int:
    return results.steps_on(row["report"], row["device"])


def _part(results: RunTables, column: str, head: str, letter: str) -> Field[Row]:
    def cell(row: Row) -> str:
        steps = _steps(results, row)
        return time_and_share(round(row[column] / steps), round(row["window_ns"] / steps))

    return Column(head=head, right=True, letter=letter), cell


def _idle_by_cause(results: RunTables) -> tuple[str, ...]:
    """`idle: host code 105 ms 34 %, …`, largest first; nothing without idle time."""
    accounting = results.table("accounting")
    window_ns = int(accounting["window_ns"].sum())
    steps = max(1, *(_steps(results, row) for row in accounting.iter_rows(named=True)), 1)
    sums = {cause.label: int(accounting[f"{name}_ns"].sum()) for name, cause in CAUSES.items()}
    ranked = sorted((item for item in sums.items() if item[1]), key=lambda item: -item[1])
    parts = [
        f"{label} {time_and_share(round(ns / steps), round(window_ns / steps))}"
        for label, ns in ranked[:_CAUSES]
    ]
    parts += ["…"] if len(ranked) > _CAUSES else []
    return (f"idle: {', '.join(parts)}",) if parts else ()
