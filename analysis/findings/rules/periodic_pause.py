"""`periodic-pause` and `longer-steps`: steps that take much longer than those around them.

Garbage collection, a checkpoint, an evaluation or a log that is written: what they cost is spread
over all steps, and no mean of the typical ones shows it.
"""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.recompile import recompiling
from nsysflow.base.units import duration, number

CHANGE: Final = (
    "if Python collects garbage: gc.freeze() after start-up, gc.disable() and gc.collect() rarely",
    "write checkpoints from another thread (torch.distributed.checkpoint.async_save), or rarely",
    "copy what is logged to pinned memory with non_blocking=True, and write it some steps later",
)

LONGER_PCT: Final = 5
"""Steps that take longer without a rhythm are chance, unless together they take so much of the time
after start-up. A single one says nothing about a long run."""

OF_RUN: Final = ("typical", "recurring", "longer")


def periodic_pause(subject: JudgedReport) -> Iterator[Finding]:
    """One finding for each kind of slow step that comes back, and one for all that do not.

    Its cost is spread over all steps after start-up, as it may come back in a part of them only.
    """
    part = pl.col("part").cast(pl.String)
    steps = subject.whole.run.filter(part.is_in(OF_RUN)).with_columns(
        pl.col("count").sum().over("process", "device").alias("all_steps"),
        pl.col("time_ns").sum().over("process", "device").alias("all_ns"),
    )
    recompiled_ns = sum(int(one.compiling["excess_ns"].sum()) for one in recompiling(subject))
    for row in steps.filter(part != "typical").drop_nulls("excess_ns").iter_rows(named=True):
        if row["part"] == "recurring":
            yield _finding(subject, row, "periodic-pause", _recurring(row))
        elif 2 * recompiled_ns >= row["excess_ns"]:
            continue  # `recompile` says why these are longer
        elif row["count"] > 1 and 100 * row["excess_ns"] >= LONGER_PCT * row["all_ns"]:
            yield _finding(subject, row, "longer-steps", _longer(row))


def _where(row: dict[str, Any]) -> str:
    culprit = row["culprit"] or (CAUSES[row["cause"]].label if row["cause"] else "GPU work")
    return f"{culprit}{place(row['phase'] or '', line(row['source'] or '', row['via'] or ''))}"


def _recurring(row: dict[str, Any]) -> str:
    return f"every {number(row['every'])} steps one takes longer: {_where(row)}"


def _longer(row: dict[str, Any]) -> str:
    count, all_steps = number(row["count"]), number(row["all_steps"])
    return f"{count} of {all_steps} steps take {duration(row['excess_ns'])} longer: {_where(row)}"


def _finding(subject: JudgedReport, row: dict[str, Any], rule: str, title: str) -> Finding:
    spread_ns = round(row["excess_ns"] / row["all_steps"])
    mean_ns = row["excess_ns"] // row["count"]
    idle = f"{duration(row['cause_ns'])} of {duration(row['time_ns'])}" if row["cause"] else ""
    return Finding(
        rule=rule,
        title=title,
        change=CHANGE,
        evidence=(
            f"steps {row['steps']} take {duration(mean_ns)} longer than those around them",
            *([f"most of their idle time is {CAUSES[row['cause']].label}: {idle}"] if idle else []),
        ),
        table="run",
        size_ns=spread_ns,
        steps=row["count"],
        at_most_ns=spread_ns,
        beside=True,
        process=row["process"],
        device=row["device"],
        phase=row["phase"] or "",
        source=row["source"] or "",
        via=row["via"] or "",
        culprit=row["culprit"] or "",
    )
