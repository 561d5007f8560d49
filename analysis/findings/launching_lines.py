"""Which lines of the program launched the kernels of a finding, in words."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.events.source_lines import without_line
from nsysflow.analysis.findings.finding import line
from nsysflow.analysis.findings.host_functions import code_of
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.selection.view import View
from nsysflow.base.units import share

NAMED_LINES: Final = 2
"""So many lines are named in a sentence."""

LEAST: Final = 0.1
"""A line with less of the kernels' time is not named."""

MAIN: Final = 0.5
"""A line that launches this share is the finding's place. Where no line does, a function may."""

WHOLE: Final = 0.9
"""A line or function that launches more than this of all kernels is no place: it replays a graph,
or calls the whole model."""

SHARED: Final = r" in (?:forward|__call__|<\w+>)$"
"""Functions whose name does not tell them apart: each class of a file may have one."""


CLOSE: Final = 4
"""Lines of one function that are no further apart are neighbours: a statement may take several."""

PART: Final = 12
"""Neighbours span no more lines."""


@dataclass(frozen=True, kw_only=True)
class LaunchingLines:
    """The lines that launched some kernels.

    Attributes:
        evidence: the lines with most of their time, as a sentence; none where no line is known.
        source: the program's line with at least half of that time, or the first line of a function
            with so much, unless it launches nearly all kernels; else empty.
        via: the framework's line, if `source` only calls that framework; else empty.
        place: the line or function in words, to follow a title; or empty.
    """

    evidence: tuple[str, ...] = ()
    source: str = ""
    via: str = ""
    place: str = ""


def launching_lines(subject: JudgedReport, rows: pl.DataFrame) -> LaunchingLines:
    """The lines that launched some kernels.

    Args:
        subject: the judged part.
        rows: rows of its kernels.
    """
    view, kernels = subject.view, subject.kernels
    if view.timeline.launch_stacks is None:
        return LaunchingLines()
    whole_ns, lines = int(rows["ns"].sum()), _lines(view, rows)
    own = lines.filter(~pl.col("lent"))
    named = own.head(NAMED_LINES).filter(pl.col("ns") >= LEAST * whole_ns)
    parts = [(line(row["source"], row["via"]), row["ns"]) for row in named.rows(named=True)]
    lent_ns = int(lines.filter("lent")["ns"].sum())
    if lent_ns >= LEAST * whole_ns:
        parts.append(("the backward pass", lent_ns))
    if not parts:
        return LaunchingLines()
    evidence = (f"launched by {', '.join(f'{name} {share(ns, whole_ns)}' for name, ns in parts)}",)
    every = kept_with(subject, "lines of kernels", lambda: _lines(view, kernels))
    for alike in (["source", "via"], ["function"]):
        known = own.drop_nulls(alike)
        main = known.filter(pl.col("ns").sum().over(alike) >= MAIN * whole_ns).head(1)
        all_ns = int(every.join(main, on=alike, how="semi")["ns"].sum())
        if len(main) and all_ns <= WHOLE * int(kernels["ns"].sum()):
            source, via = main.select("source", "via").row(0)
            place = f"in {code_of(source)}" if alike == ["function"] else f"at {line(source, via)}"
            return LaunchingLines(evidence=evidence, source=source, via=via, place=place)
    near = neighbours(own).filter(pl.col("ns").sum().over("part") >= MAIN * whole_ns)
    all_ns = int(every.join(near, on=["source", "via"], how="semi")["ns"].sum())
    if len(near) and all_ns <= WHOLE * int(kernels["ns"].sum()):
        file, function, first, last = near.select(
            *(pl.col(name).first() for name in ("file", "of")),
            pl.col("line").min().alias("first"),
            pl.col("line").max().alias("last"),
        ).row(0)
        place = f"at {file}:{first}-{last} in {function}"
        return LaunchingLines(evidence=evidence, source=near["source"][0], place=place)
    return LaunchingLines(evidence=evidence)


def neighbours(lines: pl.DataFrame) -> pl.DataFrame:
    """The program's lines in the order of `lines`. Each has its `rank` there, its `file` and
    `line`, the function it is `of`, and `part`, a number that neighbours share.

    Args:
        lines: `source` and `via`.
    """
    code = pl.col("source").str.extract_groups(r"^(?<file>.+):(?<line>\d+) in (?<of>.+)$")
    rows = lines.filter(pl.col("via") == "").with_row_index("rank")
    rows = rows.with_columns(code.alias("code")).unnest("code").drop_nulls("line")
    rows = rows.with_columns(pl.col("line").cast(pl.Int64)).sort("file", "of", "line")
    parts: list[int] = []
    part, function, first, last = 0, ("", ""), 0, 0
    for file, of, number in rows.select("file", "of", "line").iter_rows():
        if (file, of) != function or number - last > CLOSE or number - first >= PART:
            part, function, first = part + 1, (file, of), number
        last = number
        parts.append(part)
    return rows.with_columns(pl.Series("part", parts, pl.Int64)).sort("rank")


def calling_line(subject: JudgedReport, rows: pl.DataFrame) -> tuple[str, str]:
    """The program's line and the framework's that call the backward pass in which most of these
    kernels are launched; both empty where none is known.

    Args:
        subject: the judged part.
        rows: rows of its kernels.
    """
    if subject.timeline.launch_stacks is None:
        return "", ""
    lent = launched_by(subject.view, rows).filter(pl.col("lent")).drop_nulls("source")
    lines = lent.group_by("source", "via").agg(pl.len().alias("count"))
    most = lines.sort("count", "source", "via", descending=[True, False, False]).head(1)
    return most.select("source", "via").row(0) if len(most) else ("", "")


def of_the_same_lines(subject: JudgedReport, members: pl.Series) -> pl.Series:
    """Whether each kernel is a member, or launched by a line of which members take half of the time
    or more.

    Args:
        subject: the judged part.
        members: whether each of its kernels is one.
    """
    if subject.timeline.launch_stacks is None:
        return members
    launched = launched_by(subject.view, subject.kernels).with_columns(members.alias("member"))
    half = 2 * pl.col("ns").filter("member").sum() >= pl.col("ns").sum()
    known = pl.col("source").is_not_null() & ~pl.col("lent")
    beside = (half.over("source", "via") & known).fill_null(value=False)
    return launched.select(pl.col("member") | beside).to_series()


def _lines(view: View, kernels: pl.DataFrame) -> pl.DataFrame:
    """`source`, `via`, `lent` and `ns` of the lines that launched these kernels, most time first,
    with the file and `function` of each, null where these do not tell it; empty where there is no
    such line."""
    by_line = launched_by(view, kernels).drop_nulls().group_by("source", "via", "lent")
    lines = by_line.agg(pl.col("ns").sum()).filter(pl.col("ns") > 0)
    own = (pl.col("via") == "") & ~pl.col("source").str.contains(SHARED)
    function = pl.when(own).then(without_line(pl.col("source")))
    lines = lines.with_columns(function.alias("function"))
    return lines.sort(-pl.col("ns"), "source", "via", "lent")


def launched_by(view: View, kernels: pl.DataFrame) -> pl.DataFrame:
    """Per kernel the `source` and `via` that launched it, null where no line did, and `ns`. `lent`
    says whether autograd's thread launched it for that line, and `backward` whether it is then
    known to compute gradients of what the line did."""
    stacks, sources = view.timeline.launch_stacks, view.events.stack_sources
    assert stacks is not None
    known = stacks[view.events.ops["call"][kernels["op"]]]
    row = known["stack"].replace_strict(
        sources["stack"], sources.with_row_index()["index"], default=None, return_dtype=pl.UInt32
    )
    lines = sources.select(pl.col("source", "via").cast(pl.String).fill_null(""))
    flags = known.select(pl.col("lent", "backward").fill_null(value=False))
    return lines[row].hstack([*flags, kernels["ns"]])
