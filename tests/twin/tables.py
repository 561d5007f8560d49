"""All tables of the twin by the names that `schema.TABLES` gives them."""

from collections.abc import Callable

from tests.twin.account_table import accounting
from tests.twin.comm import comm
from tests.twin.copies import copies, syncs
from tests.twin.gap_tables import gap_histogram, gap_summary, gaps
from tests.twin.gpu_metrics import gpu_metrics
from tests.twin.kernels import kernels
from tests.twin.launches import launches, starved
from tests.twin.mfu import mfu
from tests.twin.phase_table import phases
from tests.twin.report import Report, Row
from tests.twin.steps import steps

TABLES: dict[str, Callable[[Report], list[Row]]] = {
    "accounting": accounting,
    "gaps": gaps,
    "gap_summary": gap_summary,
    "gap_histogram": gap_histogram,
    "phases": phases,
    "syncs": syncs,
    "launches": launches,
    "starved": starved,
    "kernels": kernels,
    "copies": copies,
    "comm": comm,
    "steps": steps,
    "gpu_metrics": gpu_metrics,
    "mfu": mfu,
}
"""Lists of plain dicts with the schema's columns; `integrity` is counts, its words are free."""


def twin_tables(report: Report) -> dict[str, list[Row]]:
    """All of them."""
    return {name: made(report) for name, made in TABLES.items()}
