"""Host code that keeps the GPU waiting: what it runs, and which thread holds Python's lock."""

from typing import Final

import polars as pl

from nsysflow.analysis.findings.host_functions import code, functions
from nsysflow.analysis.tables.host_stacks import NOT_SAMPLED
from nsysflow.base.units import percent, share
from nsysflow.report.fields import (
    BlockDeclaration,
    Fields,
    Limits,
    Row,
    Rows,
    gpus_together,
    measure,
    measure_per_step,
    phase_field,
)
from nsysflow.report.layout import figure, words
from nsysflow.report.results import RunTables

WORTH_OF_HOST_CODE: Final = 0.3
"""A row has at least its part of this share of the window: a short list names only code that
matters, a long one more."""


def _host_code(results: RunTables, limits: Limits) -> Rows:
    """The code with the most idle time."""
    window_ns = int(results.table("accounting")["window_ns"].sum())
    ran = functions(results.table("host_stacks"), "phase")
    worth = ran.filter(pl.col("idle_ns") >= WORTH_OF_HOST_CODE / limits.rows * window_ns)
    return Rows(worth, len(ran))


def _share_of_host_code(results: RunTables, _: pl.DataFrame) -> Fields:
    whole_ns = int(results.table("host_stacks")["idle_ns"].sum())
    return ((figure("share"), lambda row: share(row["idle_ns"], whole_ns)),)


def _what_ran(results: RunTables) -> str:
    """With the part of the time for which that is not known, if there is any."""
    table = results.table("host_stacks")
    rows = table.filter(pl.col("function") == NOT_SAMPLED)
    unknown = ""
    if ns := int(rows["idle_ns"].sum()):
        operators = rows["samples"].null_count() == len(rows)  # torch.profiler records no samples
        why = "outside operators" if operators else "not sampled"
        unknown = f"; {share(ns, int(table['idle_ns'].sum()))} {why}"
    return f"What ran while the GPU waited{unknown}{results.per_step}{gpus_together(results)}"


WORTH_OF_ESTIMATE_PCT: Final = 15.0
"""An estimate of waits for the lock is as much of host code and launches, divided by the number of
rows: a short page has 5 %, as it may be wrong by some per cent."""


def _lock_waits(results: RunTables, limits: Limits) -> Rows:
    """All rows, but for an estimate of next to nothing."""
    table = results.table("gil")
    whole_pct, least_pct = table["share_pct"].sum(), WORTH_OF_ESTIMATE_PCT / limits.rows
    worth = table if whole_pct >= least_pct or not table["estimated"].any() else table.clear()
    return Rows(worth, len(worth))


def _waits(results: RunTables) -> str:
    """With the share of all idle time in which the host was due."""
    table = results.table("gil")
    estimated, whole_pct = bool(table["estimated"].any()), float(table["share_pct"].sum())
    waits = "seems to wait" if estimated else "waits"
    how = "; estimated, profile --gil measures it" if estimated else ""
    return (
        f"The launching thread {waits} for Python's lock in {percent(whole_pct)} of the idle time"
        f" of host code and launches{results.per_step}{gpus_together(results)}{how}"
    )


def _holder(row: Row) -> str:
    """`feeder 4250`: names of threads are often alike."""
    return f"{row['holder_name'] or ''} {row['holder']}".lstrip()


def _held_in(row: Row) -> str:
    """`decode (feed.py:88)`."""
    return "" if row["function"] is None else code({**row, "via": None})


HOST_CODE: Final = (
    BlockDeclaration(
        table="host_stacks",
        title="Host code",
        caption=_what_ran,
        rows=_host_code,
        fields=(
            measure_per_step("idle", "idle_ns"),
            _share_of_host_code,
            (words("the host ran"), code),
            phase_field(),
        ),
    ),
    BlockDeclaration(
        table="gil",
        title="Python's lock (GIL)",
        caption=_waits,
        rows=_lock_waits,
        fields=(
            measure_per_step("waits", "gil_ns"),
            measure("share", "share_pct", percent),
            (words("held by thread"), _holder),
            (words("which ran"), _held_in),
            phase_field(),
        ),
        hides_empty=True,
    ),
)
