"""Which function of the program a rank that comes late runs longer than the other ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.events.source_lines import OWN, without_line
from nsysflow.analysis.findings.host_functions import code_of, frames_of_code
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.intervals import Cover, merge
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.idle.samples import cells

LEAST_SHARE: Final = 0.2
"""A function with less of the delay is not named."""

ABOUT_ALL: Final = 0.9
"""Of a function and one that it calls, the inner one is named if it has so much of the longer time
of both."""


@dataclass(frozen=True, kw_only=True)
class LongerFunction:
    """A function of the program that a late rank runs longer than the others do.

    Attributes:
        source: where, such as `train.py:53 in augment`.
        own_ns: per step, in it and in what it calls.
        others_ns: the same on the other ranks, their mean.
    """

    source: str
    own_ns: int
    others_ns: int

    @property
    def code(self) -> str:
        """`augment (train.py:53)`."""
        return code_of(self.source)


def longer_function(
    late: JudgedReport, others: Sequence[JudgedReport], cost_ns: int
) -> LongerFunction | None:
    """The innermost function in which the launching threads of the late rank spend more time per
    judged step than those of the others; None where no function has enough of the delay, or where
    no samples of Python tell.

    All ranks take the same time for a step. So the loop itself differs little, and functions in
    which the others wait for this rank have less of its time.

    Args:
        late: the report of the rank that comes late.
        others: those of the other ranks.
        cost_ns: what it costs the others per step.
    """
    own = _time_by_function(late)
    known = [times for other in others if len(times := _time_by_function(other))]
    if own.is_empty() or not known:
        return None
    elsewhere = pl.concat(known).group_by("function").agg(pl.col("ns").sum() / len(known))
    longer = own.join(elsewhere, on="function", how="left", suffix="_others").with_columns(
        pl.col("ns_others").fill_null(0)
    )
    more = pl.col("ns") - pl.col("ns_others")
    longer = longer.with_columns(more.alias("more")).filter(
        pl.col("more") >= max(1, LEAST_SHARE * cost_ns),
        pl.col("more") >= ABOUT_ALL * pl.col("more").max(),
    )
    if longer.is_empty():
        return None
    row = longer.sort("depth", "function").row(0, named=True)
    return LongerFunction(
        source=row["line"], own_ns=round(row["ns"]), others_ns=round(row["ns_others"])
    )


def _time_by_function(subject: JudgedReport) -> pl.DataFrame:
    """`function` (`train.py in augment`), `line` (where it has most, `train.py:53 in augment`),
    `depth` (the least; 0 is the innermost) and `ns` per judged step, of the program's own."""
    spent = _time_by_stack(subject)
    rows = (
        frames_of_code(subject)
        .filter(pl.col("kind") == OWN)
        .with_columns(without_line(pl.col("line")).alias("function"))
        .unique(["stack", "function"], keep="first", maintain_order=True)
        .join(spent, on="stack")
    )
    lines = rows.group_by("function", "line").agg(pl.col("depth").min(), pl.col("ns").sum())
    return (
        lines.sort("ns", "line", descending=[True, False])
        .group_by("function", maintain_order=True)
        .agg(pl.col("line").first(), pl.col("depth").min(), pl.col("ns").sum())
        .with_columns(pl.col("ns") / subject.steps)
    )


def _time_by_stack(subject: JudgedReport) -> pl.DataFrame:
    """`stack` and `ns`: the time in the judged steps for which it stands, on all threads that
    launch work in them."""
    events, view = subject.timeline.events, subject.view
    known = kept_with(subject, "cells", lambda: cells(events)).drop_nulls("stack")
    threads = events.calls["thread_no"][view.launching["call"]].unique()
    windows = view.windows[["start_ns", "end_ns"]].join(threads.to_frame(), how="cross")
    judged = windows.select(
        events.axis.at(pl.col("thread_no"), pl.col("start_ns")).alias("start"),
        events.axis.at(pl.col("thread_no"), pl.col("end_ns")).alias("end"),
    )
    ns = Cover(merge(judged)).between(known["start"], known["end"])
    return known.select("stack", ns.alias("ns")).group_by("stack").agg(pl.col("ns").sum())
