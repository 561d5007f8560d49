"""Which lines of the program launched the kernels of a finding, in words."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import line
from nsysflow.analysis.selection.view import View
from nsysflow.base.units import share

NAMED_LINES: Final = 2
"""So many lines are named in a sentence."""

LEAST: Final = 0.1
"""A line with less of the kernels' time is not named."""

MAIN: Final = 0.5
"""A line with this much of it is the finding's own."""


@dataclass(frozen=True, kw_only=True)
class LaunchingLines:
    """The lines that launched some kernels.

    Attributes:
        evidence: the lines with most of their time, as a sentence; none where no line is known.
        source: the program's line with at least half of that time; else empty.
        via: the framework's line, if `source` only calls that framework; else empty.
    """

    evidence: tuple[str, ...] = ()
    source: str = ""
    via: str = ""


def launching_lines(view: View, kernels: pl.DataFrame) -> LaunchingLines:
    """The lines that launched these kernels.

    Args:
        view: the judged part.
        kernels: rows of `kernels_in_order`.
    """
    known = view.timeline.launch_stacks
    if known is None:
        return LaunchingLines()
    launched = known[view.events.ops["call"][kernels["op"]]].with_columns(kernels["ns"])
    whole_ns = int(launched["ns"].sum())
    sources = view.events.stack_sources.with_columns(pl.col("source", "via").cast(pl.String))
    by_line = (
        launched.filter(~pl.col("lent"))
        .join(sources, on="stack")
        .group_by("source", "via")
        .agg(pl.col("ns").sum())
        .sort("ns", "source", "via", descending=[True, False, False])
        .filter(pl.col("ns") > 0)
    )
    lent_ns = int(launched.filter("lent")["ns"].sum())
    named = by_line.head(NAMED_LINES).filter(pl.col("ns") >= LEAST * whole_ns)
    parts = [(line(source or "", via or ""), ns) for source, via, ns in named.rows()]
    if lent_ns >= LEAST * whole_ns:
        parts.append(("the backward pass", lent_ns))
    if not parts:
        return LaunchingLines()
    listed = ", ".join(f"{name} {share(ns, whole_ns)}" for name, ns in parts)
    main = by_line.head(1).filter(pl.col("ns") >= MAIN * whole_ns).rows()
    source, via = main[0][:2] if main else (None, None)
    return LaunchingLines(evidence=(f"launched by {listed}",), source=source or "", via=via or "")
