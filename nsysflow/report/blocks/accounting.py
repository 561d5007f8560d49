"""Where each GPU's time goes."""

from typing import Final

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.report.fields import (
    Field,
    Limits,
    Row,
    filled,
    gpu_field,
    left_out,
    named_rows,
    time_and_share,
    value,
)
from nsysflow.report.layout import Block, Column
from nsysflow.report.results import Results
from nsysflow.units import duration

PARTS: Final = (
    ("compute_ns", "compute", "█"),
    ("comm_exposed_ns", "comm", "▓"),
    ("copy_exposed_ns", "copy", "▒"),
    ("idle_ns", "idle", "░"),
)
"""The parts of a window in the order of the accounting, with letters that differ without colour."""


def block(results: Results, limits: Limits) -> Block:
    """A row per GPU: its window, and the parts of it with a bar."""
    table = results.table("accounting")
    # several GPUs have longer names and smaller parts
    width = 30 if table.height == 1 else 15
    bar = Column(head="", spare=True, drawn=True)
    return filled(
        "GPU time",
        named_rows(table, limits),
        (
            gpu_field(results),
            (Column(head="window", right=True), value("window_ns", duration)),
            (bar, lambda row: _bar([row[column] for column, _, _ in PARTS], width)),
            *(_part(*part) for part in PARTS),
        ),
        caption="Communication and copies: the part not overlapped by compute",
        more=(*_idle_by_cause(results), *left_out(table.height - limits.rows, "accounting")),
    )


def _part(column: str, head: str, letter: str) -> Field[Row]:
    titled = Column(head=head, right=True, letter=letter)
    return titled, lambda row: time_and_share(row[column], row["window_ns"])


def _idle_by_cause(results: Results) -> tuple[str, ...]:
    """`idle by cause: host code 105 ms 34 %, …`, largest first; nothing without idle time."""
    accounting = results.table("accounting")
    window_ns = int(accounting["window_ns"].sum())
    sums = {cause.label: int(accounting[f"{name}_ns"].sum()) for name, cause in CAUSES.items()}
    ranked = sorted((item for item in sums.items() if item[1]), key=lambda item: -item[1])
    parts = [f"{label} {time_and_share(ns, window_ns)}" for label, ns in ranked]
    return (f"idle by cause: {', '.join(parts)}",) if parts else ()


def _bar(parts: list[int], width: int) -> str:
    """The parts in proportion; rounding their running sum keeps the width."""
    total = sum(parts)
    edges = [round(width * sum(parts[: index + 1]) / total) if total else 0 for index in range(4)]
    cells = [edge - before for edge, before in zip(edges, [0, *edges[:-1]], strict=True)]
    return "".join(letter * count for (_, _, letter), count in zip(PARTS, cells, strict=True))
