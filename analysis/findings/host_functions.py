"""What the host ran while the GPU waited, in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.tables.host_stacks import NOT_SAMPLED
from nsysflow.base.units import whole_percent

_CODE: Final = ("function", "source", "via")
"""The columns of HOST_STACKS that say which code it is."""

FEW: Final = 3
"""So many functions are named in a sentence."""

LEAST_PCT: Final = 5
"""A function that takes less is not named."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """What the host ran while the GPU waited for it in a phase.

    Attributes:
        mostly: the code that takes at least half of that time; empty where none does.
        evidence: what ran, as a sentence; no sentence where no sample says.
    """

    mostly: str = ""
    evidence: tuple[str, ...] = ()


def functions(host_stacks: pl.DataFrame, *by: str) -> pl.DataFrame:
    """The idle time of each function that is known: `function`, `source`, `via`, `by` and
    `idle_ns`, most idle time first. Lines of one caller are one row, with the line that has most.

    Args:
        host_stacks: `HOST_STACKS`.
        by: other columns that differ between rows.
    """
    known = host_stacks.filter(pl.col("function") != NOT_SAMPLED)
    lines = known.group_by(*_CODE, *by).agg(pl.col("idle_ns").sum())
    most_first = lines.sort(-pl.col("idle_ns"), *_CODE, *by)
    caller = pl.coalesce("via", "source").str.replace(r":\d+ in ", " in ").alias("caller")
    summed = most_first.group_by("function", caller, *by, maintain_order=True).agg(
        pl.col("source", "via").first(), pl.col("idle_ns").sum()
    )
    return summed.sort(-pl.col("idle_ns"), *_CODE, *by)


def code(row: Mapping[str, Any]) -> str:
    """`tokenize in collate (train.py:88)`: what ran, and who called it where.

    Args:
        row: of HOST_STACKS. `via` says more than a line that only calls a framework.
    """
    function: str = row["function"]
    place, _, caller = (row["via"] or row["source"] or "").rpartition(" in ")
    if not place:
        return function
    line = f"{caller} ({place})"
    return line if caller == function else f"{function} in {line}"


def running(subject: JudgedReport, phase: str) -> Running:
    """What the host ran in a phase (`OUTSIDE` for no range), not in those inside it."""
    path = "" if phase == OUTSIDE else phase
    stacks = subject.tables.host_stacks.filter(pl.col("phase") == path)
    whole_ns = int(stacks["idle_ns"].sum())
    worth = functions(stacks).filter(100 * pl.col("idle_ns") >= LEAST_PCT * whole_ns).head(FEW)
    if worth.is_empty():
        return Running()
    named = [
        (code(row), whole_percent(row["idle_ns"], whole_ns)) for row in worth.iter_rows(named=True)
    ]
    (first, share), *others = named
    rest = "".join(f", {ran} {share}" for ran, share in others)
    return Running(
        mostly=first if 2 * worth["idle_ns"][0] >= whole_ns else "",
        evidence=(
            f"while the GPU waited for the host there, it ran {first} {share} of the time{rest}",
        ),
    )
