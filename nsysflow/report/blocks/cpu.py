"""How long launching threads waited for a CPU, and who used the CPUs."""

from typing import Final

import polars as pl

from nsysflow.base.units import cpus, duration, number, percent
from nsysflow.report.fields import BlockDeclaration, Limits, Row, Rows, measure
from nsysflow.report.layout import figure, words
from nsysflow.report.results import RunTables

WAIT_WORTH_PCT: Final = 1
"""A page shows the waits if a thread waited for so much of the time, or a limit held it up."""


def _waits(results: RunTables, _: Limits) -> Rows:
    """The threads that waited, those first that waited longest."""
    waited = pl.col("waited_pct") >= WAIT_WORTH_PCT
    throttled = (pl.col("throttled_ns") > 0).fill_null(value=False)
    rows = results.table("cpu").filter(waited | throttled)
    return Rows(rows.sort("waited_ns", descending=True, maintain_order=True), len(rows))


def _in_words(results: RunTables) -> str:
    """`The launching thread waited 412 ms (9 %) for a CPU; of 4 CPUs its process used 3.9`."""
    rows = _waits(results, Limits(rows=1)).frame
    if rows.is_empty():
        return ""
    most = rows.row(0, named=True)
    parts = [
        f"The launching thread waited {duration(most['waited_ns'])}"
        f" ({percent(most['waited_pct'])}) for a CPU"
    ]
    if most["used_cores"] is not None:
        parts.append(f"of {cpus(most['cores'])} its process used {most['used_cores']:.1f}")
    if most["throttled_ns"]:
        limit = f"{most['limit_cores']:g}"
        parts.append(f"held up for {_throttled(most)} by a limit of {limit} CPUs")
    return "; ".join(parts)


def _throttled(row: Row) -> str:
    return duration(row["throttled_ns"] or None)


def _used(cores: float) -> str:
    return f"{cores:.1f}"


CPU: Final = BlockDeclaration(
    table="cpu",
    title="Waits for a CPU",
    caption=_in_words,
    rows=_waits,
    fields=(
        (words("process"), lambda row: str(row["process"])),
        measure("waited", "waited_ns", duration),
        measure("of time", "waited_pct", percent),
        measure("GPU idle", "descheduled_ns", duration),
        measure("CPUs", "cores", number),
        measure("used", "used_cores", _used),
        (figure("by its processes"), lambda row: _used(row["started_cores"] or 0)),
        measure("by others", "others_cores", _used),
        measure("limit", "limit_cores", _used),
        (figure("held up"), _throttled),
    ),
    hides_empty=True,
)
