"""What a rank that comes late does longer than the other ranks, if anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.events.source_lines import OWN, without_line
from nsysflow.analysis.findings.host_functions import code_of, frames_of_code
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.launches import launches_with_code
from nsysflow.analysis.frames.intervals import Cover, merge
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.idle.samples import cells
from nsysflow.base.names import OUTSIDE

LEAST_SHARE: Final = 0.2
"""A function or a phase with less of the delay does not explain it."""

ABOUT_ALL: Final = 0.9
"""Of a function and one that it calls, the inner one is named if it has so much of the longer time
of both."""


@dataclass(frozen=True, kw_only=True)
class LongerCode:
    """What the host of a late rank runs longer than those of the others do.

    Attributes:
        source: the function, such as `train.py:53 in augment`; empty where only a phase is known.
        phase: the phase; empty where the function is known.
        own_ns: per step, in it and in what it calls.
        others_ns: the same on the other ranks, their mean.
    """

    source: str = ""
    phase: str = ""
    own_ns: int
    others_ns: int

    @property
    def code(self) -> str:
        """`augment (train.py:53)`; `backward` where only a phase is known."""
        return code_of(self.source) or self.phase


def longer_function(
    late: JudgedReport, others: Sequence[JudgedReport], cost_ns: int
) -> LongerCode | None:
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
    return LongerCode(
        source=row["line"], own_ns=round(row["ns"]), others_ns=round(row["ns_others"])
    )


MORE_KERNELS: Final = 1.02
"""A rank that runs so many more kernels a step has more to do."""

LAUNCHING: Final = 0.1
"""Phases with less of the launches do not tell how much slower a host is: they are short."""


def does_nothing_more(late: JudgedReport, others: Sequence[JudgedReport], cost_ns: int) -> bool:
    """Whether the late rank runs as many kernels as the others, and neither code nor waits of a
    phase, or outside of them, have more of the delay than a host that is slower as a whole
    explains. False where no phase tells.

    Args:
        late: the report of the rank that comes late; it has no other rank.
        others: those of the other ranks.
        cost_ns: what it costs the others per step.
    """
    kernels = sum(map(_kernels_a_step, others)) / max(1, len(others))
    longer = _longer_phases(late, others)
    if longer.is_empty() or _kernels_a_step(late) > MORE_KERNELS * kernels:
        return False
    return float(longer.select(pl.col("more_ns").max()).item()) < max(1, LEAST_SHARE * cost_ns)


def longer_phase(
    late: JudgedReport, others: Sequence[JudgedReport], cost_ns: int
) -> LongerCode | None:
    """The phase whose code takes the host of the late rank longest beyond those of the others; None
    where none has enough of the delay, and where that is outside of all phases.

    Args:
        late: the report of the rank that comes late.
        others: those of the other ranks.
        cost_ns: what it costs the others per step.
    """
    longer = _longer_phases(late, others)
    if longer.is_empty():
        return None
    row = longer.filter(~pl.col("waits")).sort("more_ns", "phase").row(-1, named=True)
    if row["phase"] == OUTSIDE or row["more_ns"] < max(1, LEAST_SHARE * cost_ns):
        return None
    own_ns, others_ns = round(row["ns"]), round(row["ns_others"])
    return LongerCode(phase=row["phase"], own_ns=own_ns, others_ns=others_ns)


def _longer_phases(late: JudgedReport, others: Sequence[JudgedReport]) -> pl.DataFrame:
    """The rows of `_time_by_phase` of the late rank, plus `ns_others` and `more_ns`: what they take
    beyond those of the others, where these are as slow as its host is. Empty where no phase tells,
    or its report has other ranks, too.

    A slower host takes longer before most launches of a phase. What only this rank does stands
    before a few of them, so the median tells how slow the host is. Phases with few launches take
    the least factor of the others; where nothing is launched, all of the difference counts. (One of
    two equal ranks took 1.6 times as long before its launches in backward: H200s, 2026-11-28.)
    """
    own, known = _time_by_phase(late), [_time_by_phase(other) for other in others]
    if late.has_ranks or own.is_empty() or not known or any(of.is_empty() for of in known):
        return pl.DataFrame()
    key = ["phase", "waits"]
    elsewhere = (
        pl.concat(known)
        .group_by(key)
        .agg(pl.col("ns").sum() / len(known), pl.col("usual_ns").mean())
    )
    both = own.join(elsewhere, on=key, how="left", suffix="_others").with_columns(
        pl.col("ns_others").fill_null(0)
    )
    tells = pl.col("launches") >= LAUNCHING * pl.col("launches").sum()
    slower = pl.when(tells, pl.col("usual_ns_others") > 0).then(
        (pl.col("usual_ns") / pl.col("usual_ns_others")).clip(1)
    )
    launches = pl.col("launches") > 0
    factor = pl.when(launches).then(slower.fill_null(slower.min())).fill_null(1.0)
    return both.with_columns((pl.col("ns") - factor * pl.col("ns_others")).alias("more_ns"))


def _kernels_a_step(subject: JudgedReport) -> float:
    return len(subject.kernels) / subject.steps


def _time_by_phase(subject: JudgedReport) -> pl.DataFrame:
    """`phase`, `waits`, `ns`, `launches`, `usual_ns` per judged step of the outermost ranges inside
    steps, and of the rest of the step (`OUTSIDE`): how long the host runs code there, neither
    launching nor waiting in a call, and in the median before a launch; and a row how long it waits
    in calls. Empty where no such range launches."""
    steps = subject.step_paths
    phases = subject.tables.phases.filter(~pl.col("path").is_in(steps))
    phases = phases.filter(pl.col("depth") == pl.col("depth").min())
    rows = phases.group_by(phase="path").agg(pl.col("host_wall_ns", "launches").sum())
    if not rows["launches"].sum():
        return pl.DataFrame()
    rest_ns = subject.step_ns * subject.steps - rows["host_wall_ns"].sum()
    rest = pl.DataFrame([(OUTSIDE, rest_ns, 0)], schema=rows.schema, orient="row")
    calls = subject.tables.launches.group_by(phase="path").agg(pl.col("api_ns").sum())
    place = _outermost(rows["phase"].to_list())
    rows = (
        pl.concat([rows, rest])
        .join(calls, on="phase", how="left")
        .join(_blocked_by_phase(subject, place), on="phase", how="left")
        .join(_usual_code(subject, place), on="phase", how="left")
        .with_columns(pl.col("api_ns", "blocked_ns").fill_null(0))
    )
    code = (pl.col("host_wall_ns") - pl.col("api_ns") - pl.col("blocked_ns")).clip(0)
    both = [
        rows.select("phase", pl.lit(waits).alias("waits"), ns / subject.steps, launches, "usual_ns")
        for waits, ns, launches in (
            (False, code.alias("ns"), pl.col("launches")),
            (True, pl.col("blocked_ns").alias("ns"), pl.lit(0, pl.Int64).alias("launches")),
        )
    ]
    return pl.concat(both)


def _outermost(phases: Sequence[str]) -> pl.Expr:
    """Which of these a column `phase` is, or is nested in; `OUTSIDE` where it is in none."""
    place = pl.lit(OUTSIDE)
    for phase in phases:
        inside = (pl.col("phase") == phase) | pl.col("phase").str.starts_with(f"{phase}/")
        place = pl.when(inside).then(pl.lit(phase)).otherwise(place)
    return place.alias("phase")


def _usual_code(subject: JudgedReport, place: pl.Expr) -> pl.DataFrame:
    """`phase`, `usual_ns`: how long, in the median, the host runs code before a launch there, since
    the thread's last call that launched or waited."""
    calls = launches_with_code(subject).unique("call", keep="first", maintain_order=True)
    return calls.group_by(place).agg(pl.col("code_ns").median().alias("usual_ns"))


def _blocked_by_phase(subject: JudgedReport, place: pl.Expr) -> pl.DataFrame:
    """`phase`, `blocked_ns`: how long calls block the host in each phase, with what is nested in
    it, and outside of them."""
    stalls = subject.stalls.with_columns(pl.col("phase").cast(pl.String).fill_null(""))
    return stalls.group_by(place).agg(pl.col("blocked_ns").sum())


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
