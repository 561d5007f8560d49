"""One finding in full: what it saves, where it is, what it rests on, what to change."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from shlex import join, quote, split
from typing import Final

import polars as pl

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.findings.explanation import explanation_of
from nsysflow.analysis.findings.finding import EXTENTS, Finding, Valued, line
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.frameworks import PYTORCH
from nsysflow.analysis.findings.other_loop import OTHER_LOOP
from nsysflow.analysis.replay.changes import LOOP, Changes
from nsysflow.analysis.tables.index import TableHolder, declaration
from nsysflow.base.errors import UnknownName, nearest
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import between, duration, percent
from nsysflow.report.explain.names import names_by_kind
from nsysflow.report.explain.pages import (
    WIDTH_MAX,
    Explained,
    Facts,
    Lines,
    Points,
    Prose,
    code_of,
    known_as,
    pages_of,
)
from nsysflow.report.fields import more_rows
from nsysflow.report.findings import amount_of, is_covered, shares_of
from nsysflow.report.layout import Block, shorten
from nsysflow.report.one_table import columns_that_fit, readable_block
from nsysflow.report.results import Results

_ROWS: Final = 5
"""A few rows show what it looks like; the table has the others."""

_OF_GAPS: Final = ("start_ns", "duration_ns", "step", "cause", "prev_op", "next_op")

_VIA: Final = ("api", "short_name", "name", "class", "operation", "culprit")
"""The columns in which the call, kernel or class of a finding may stand."""


def gaps_behind(
    asked: Mapping[int, tuple[Finding, Collection[str]]], slices: Iterable[pl.DataFrame]
) -> dict[int, Block]:
    """The largest gaps of each finding's place and causes, where there are any. All findings share
    one pass over the gaps.

    Args:
        asked: findings of one report by number, with the causes of their gaps; none where a finding
            is about a busy GPU.
        slices: all gaps of the judged part.
    """
    with_causes = {number: wanted for number, wanted in asked.items() if wanted[1]}
    largest: dict[int, list[pl.DataFrame]] = {number: [] for number in with_causes}
    counts = dict.fromkeys(with_causes, 0)
    for gaps in slices if with_causes else ():
        for number, (finding, causes) in with_causes.items():
            mine = at_its_place(finding, gaps.filter(pl.col("cause").is_in([*causes])))
            counts[number] += len(mine)
            largest[number].append(mine.top_k(_ROWS, by="duration_ns"))
    blocks = {}
    for number, slices in largest.items():
        rows = pl.concat(slices).top_k(_ROWS, by="duration_ns").sort("duration_ns", descending=True)
        if not rows.is_empty():
            shown = readable_block(rows.select(_OF_GAPS), "Largest gaps behind it")
            blocks[number] = _with_more(shown, counts[number] - len(rows), "gaps")
    return blocks


_WEIGHTS: Final = re.compile(r"(?:^|_)(?:ns|pct|bytes)$")
"""Columns by which the largest rows of a table are found: times, shares and sizes."""


def rows_behind(
    finding: Finding,
    tables: TableHolder,
    causes: Collection[str],
    width: int,
) -> Iterable[Block]:
    """The largest rows of a finding's own table that are of its place, call or kernels.

    Args:
        finding: which one.
        tables: those of the judged part.
        causes: those that the rows are of, where they have one; none for all.
        width: columns of a line.
    """
    declared = declaration(finding.table)
    if declared.in_slices or declared.scope == "run":
        return
    table = tables.table(finding.table)
    shown = declared.shown.split() or table.columns
    weight = declared.ranked_by or next(filter(_WEIGHTS.search, shown))
    rows = _about(finding, at_its_place(finding, table)).filter(pl.col(weight) > 0)
    if causes and "cause" in rows.columns:
        rows = rows.filter(pl.col("cause").is_in([*causes]))
    largest = rows.top_k(_ROWS, by=weight).sort(weight, descending=True)
    if largest.is_empty():
        return
    block = readable_block(
        largest.select(columns_that_fit(largest, shown, width)), f"Largest in {finding.table}"
    )
    yield _with_more(block, len(rows) - len(largest), finding.table)


def _with_more(block: Block, count: int, table: str) -> Block:
    return Block(
        title=block.title, columns=block.columns, rows=block.rows, rest=more_rows(count, table)
    )


def at_its_place(finding: Finding, table: pl.DataFrame) -> pl.DataFrame:
    """The rows of the finding's process, device and line; without a line, or with a sampled one, of
    its phase."""
    wanted = [
        pl.col(name) == value
        for name, value in (("process", finding.process), ("device", finding.device))
        if value is not None and name in table.columns
    ]
    if _has_line(finding, table):
        lines = (("source", finding.source), ("via", finding.via))
        wanted += [pl.col(name).fill_null("") == value for name, value in lines]
    elif (finding.phase or finding.is_sampled) and (path := _path_column(table)):
        inside = pl.col(path).cast(pl.String).fill_null("")
        below = inside.str.starts_with(f"{finding.phase}/") & (finding.phase != "")
        wanted.append((inside == finding.phase) | below)
    return table.filter(wanted) if wanted else table


def _has_line(finding: Finding, table: pl.DataFrame) -> bool:
    """Whether rows of the table are of the finding's line."""
    known = (finding.source or finding.via) and not finding.is_sampled
    return bool(known) and "source" in table.columns


def _path_column(table: pl.DataFrame) -> str | None:
    return next((name for name in ("phase", "path") if name in table.columns), None)


def _about(finding: Finding, table: pl.DataFrame) -> pl.DataFrame:
    """The rows of the kernels that the finding would change, or of its call, kernel or class. At a
    line all calls count, as they do for the finding."""
    if _has_line(finding, table):
        return table
    scaled = [] if finding.changes is None else [name for name, _ in finding.changes.scaled]
    names = scaled or [finding.culprit] * bool(finding.culprit)
    columns = [name for name in _VIA if name in table.columns]
    if not names or not columns:
        return table
    named = [pl.col(name).cast(pl.String).is_in(names) for name in columns]
    return table.filter(pl.any_horizontal(named))


_NAME: Final = 50
"""So long a part of a kernel's name is shown in a sentence."""


def explain_findings(
    results: Results, width: int, numbers: Collection[int] | None = None
) -> dict[int, Explained]:
    """Findings in full, by number.

    Args:
        results: the run.
        width: columns of a line.
        numbers: which ones, from 1; None for all.
    """
    valued = dict(enumerate(results.found.valued, start=1))
    chosen = {number: valued[number] for number in numbers or valued}
    gaps: dict[int, Block] = {}
    for analysis in results.analyses:
        asked = {
            number: (one.finding, explanation_of(one.finding.rule).causes)
            for number, one in chosen.items()
            if one.report == analysis.trace.report
        }
        gaps |= gaps_behind(asked, analysis.judged.gap_slices())
    return {number: _explained(results, number, gaps.get(number), width) for number in chosen}


def _explained(results: Results, number: int, gaps: Block | None, width: int) -> Explained:
    """One finding in full, with its largest gaps."""
    found = results.found
    valued = found.valued[number - 1]
    finding, analysis = valued.finding, _analysis_of(valued, results)
    explanation = explanation_of(finding.rule)
    return Explained(
        kind=f"finding {number} of {len(found.valued)} in {valued.report} · {finding.rule}",
        title=finding.title,
        parts=(
            Facts(rows=tuple(_facts(valued, results))),
            Prose(title="Why it costs time", text=explanation.why),
            *rows_behind(finding, analysis.judged, explanation.causes, width),
            *([] if gaps is None else [gaps]),
            Points(title="What to change, in this order", items=finding.change, numbered=True),
            *(code_of(explanation) if PYTORCH in finding.frameworks else ()),
            Points(title="When to leave it", items=explanation.leave),
            Lines(title="To see the numbers", lines=tuple(_commands(valued, results))),
        ),
    )


def _analysis_of(valued: Valued, results: Results) -> Analysis:
    """The report in which a finding was found."""
    return next(each for each in results.analyses if each.trace.report == valued.report)


def _facts(valued: Valued, results: Results) -> Iterator[tuple[str, str]]:
    finding, found = valued.finding, results.found
    of_steps = finding.rule != OTHER_LOOP
    yield "saves", _saving(valued, found) if of_steps else _saving_of_loop(valued)
    if of_steps and is_covered(valued):
        alone = f"{EXTENTS[finding.method]}{duration(valued.alone_ns)}"
        yield "saves", f"alone, without the changes above, {alone}"
    yield "saves", reckoned(finding) if of_steps else "at most: its steps, replayed without these"
    yield "careful", _not_timed(valued, results) if of_steps else ""
    yield "where", _where(finding)
    if found.of_steps and found.steps > 1 and of_steps and not finding.beside:
        yield "steps", _steps(min(finding.steps, found.steps), found.steps)
    for sentence in finding.evidence:
        yield "evidence", sentence
    for failed in _analysis_of(valued, results).failed_checks:
        yield "careful", f"the recording fails the check {failed.check}: record it again first"


def _steps(having: int, steps: int) -> str:
    if having == steps:
        return f"each of the {steps} judged steps has it"
    return f"{having} of the {steps} judged steps have it"


def _saving(valued: Valued, found: Findings) -> str:
    """`542 us a step (13 % of 3.99 ms)`."""
    if valued.later_ns:
        return f"nothing until launches are fixed, then up to {duration(valued.later_ns)} a step"
    if not valued.said.high_ns:
        return "nothing more" if valued.finding.changes is not None else "not estimated"
    what = "a step" if found.of_steps else "of the window"
    estimate, step = found.plain_estimate, duration(valued.step_ns)
    if estimate is not None and valued.plain is not None and not valued.is_figure:
        step = between(estimate.low_ns, estimate.high_ns)
    return f"{amount_of(valued)} {what} ({shares_of(valued)} of {step})"


def _saving_of_loop(valued: Valued) -> str:
    """`up to 39 % of the time after start-up: 51.9 ms for each judged step`."""
    per_step = f"{duration(valued.high_ns)} for each judged step"
    return f"up to {percent(valued.pct)} of the time after start-up: {per_step}"


def reckoned(finding: Finding) -> str:
    """How the saving was computed, in a sentence."""
    if finding.changes is None:
        most = "at most: the time lost there; " if finding.at_most_ns else ""
        return f"{most}no replay can express the change"
    changed = ", and ".join(_changed(finding.changes)) or "without these calls"
    if finding.exact:
        return f"replayed: the steps {changed}"
    if finding.saves_more:
        return f"at least: the steps replayed {changed}; what you change saves more"
    return f"at most: the steps replayed {changed}; what you change may save less"


def _changed(changes: Changes) -> Iterator[str]:
    """What is different in the replay."""
    kinds = {each.kind for each in changes.removed}
    if LOOP in kinds:
        yield "without these waits and the loop that they stand in"
    elif kinds & {"sync", "all"} or changes.removed_calls:
        yield "without this wait"
    if kinds & {"alloc", "churn", "all"}:
        yield "without allocating and freeing"
    if "retry" in kinds:
        yield "without allocations that fail and are tried again"
    if "copy" in kinds or changes.async_copies:
        yield "with copies that do not block the host"
    if changes.graphs:
        graphed = _listed(changes.graphs)
        yield f"with all that the phase {graphed} launches between two waits as one CUDA graph"
    if changes.scaled:
        yield f"with {_scaled(changes.scaled)}"
    for factor in dict.fromkeys(factor for _, factor in changes.faster_host):
        phases = [phase for phase, each in changes.faster_host if each == factor]
        where = ["outside all ranges" if each == OUTSIDE else f"in {each}" for each in phases]
        yield f"with the host's code {' and '.join(where)} {_taking([factor])}"
    if changes.no_profiler:
        yield "without the profiler's own work"
    if changes.no_gil:
        yield "with no wait for Python's lock"
    if changes.overlapped:
        yield "with the host preparing each step while the GPU runs the one before"
    if changes.even_ranks:
        yield "with all ranks computing equally long"
    if changes.unawaited:
        yield "with no rank waiting for it"


def _scaled(scaled: Sequence[tuple[str, float]]) -> str:
    """Kernels and their part of the time: one by its name, which may be long, else their number."""
    (name, _), *others = scaled
    what = f"{len(scaled)} kernels" if others else f"the kernel {shorten(name, _NAME)}"
    return f"{what} {_taking([factor for _, factor in scaled])}"


def _taking(factors: Iterable[float]) -> str:
    """`at 30 % to 99 % of the time`."""
    shares = [percent(100 * factor) for factor in sorted({*factors})]
    if shares == [percent(0.0)]:
        return "taking no time"
    ends = shares if len(shares) < 3 else [shares[0], shares[-1]]
    return f"at {' to '.join(dict.fromkeys(ends))} of the time"


def _listed(names: Iterable[str]) -> str:
    """The first name, and how many more there are."""
    first, *rest = names
    return f"{first} and {len(rest)} more" if rest else first


def _not_timed(valued: Valued, results: Results) -> str:
    """The range of the plain step and of the saving, and how to time a plain step; empty if one was
    timed."""
    estimate = results.found.plain_estimate
    if estimate is None:
        return ""
    whose = "this machine's" if estimate.calibrated else "the usual"
    step = between(estimate.low_ns, estimate.high_ns)
    plain = valued.plain if valued.is_figure else None  # else both ends are said already
    saves = "" if plain is None else f", of which this saves {between(plain.low_ns, plain.high_ns)}"
    return (
        f"the plain step was not timed: {step} by {whose} cost of recording{saves};"
        " nsysflow profile --plain-run times it"
    )


def _where(finding: Finding) -> str:
    named = [
        finding.phase,
        line(finding.source, finding.via),
        finding.culprit,
        "" if finding.process is None else f"process {finding.process}",
        "" if finding.device is None else f"GPU {finding.device}",
    ]
    return " · ".join(filter(None, named))


def _commands(valued: Valued, results: Results) -> Iterator[str]:
    """What shows the numbers, as it is typed."""
    finding, report = valued.finding, str(results.origin.paths[valued.report])
    explanation, analysis = explanation_of(finding.rule), _analysis_of(valued, results)
    choice = split(results.choice)
    of_run = declaration(finding.table).scope == "run"
    asked = [str(each) for each in results.origin.typed] if of_run else [report]
    yield join(["nsysflow", "analyze", *asked, *choice, "--table", finding.table])
    if explanation.causes and finding.table != "gaps":
        yield join(["nsysflow", "analyze", report, *choice, "--table", "gaps"])
    if "host_stacks" in explanation.tables and not analysis.judged.host_stacks.is_empty():
        yield join(["nsysflow", "analyze", report, *choice, "--flamegraph", "idle.svg"])
    changes = [] if finding.changes is None else [*finding.changes.options()]
    if changes:
        options = analysis.options
        step = [] if options.step is None else ["--step", options.step]
        skip = [] if options.skip is None else ["--skip", str(options.skip)]
        steps = [word for part in options.steps for word in ("--steps", str(part))]
        own = [word for name in options.own for word in ("--own", name)]
        judged = [*step, *skip, *steps, *own]
        # ranks are replayed together where one path names all of them
        whole = [str(each) for each in results.origin.typed]
        replayed = whole if len(results.every_report) > 1 and len(whole) == 1 else [report]
        yield from command_lines(["nsysflow", "whatif", *replayed], [*changes, *judged])
    yield join(["nsysflow", "explain", finding.rule])


def command_lines(command: Sequence[str], options: Sequence[str]) -> Iterator[str]:
    """A command on one line; if that gets long, each option on one, as a shell takes it."""
    whole = join([*command, *options])
    if len(whole) <= WIDTH_MAX:
        yield whole
        return
    lines = [join(command)]
    for word in options:
        if word.startswith("--"):
            lines.append(f"    {quote(word)}")
        else:
            lines[-1] += f" {quote(word)}"
    *before, last = lines
    yield from (f"{line} \\" for line in before)
    yield last


def numbered_finding(results: Results, number: int, width: int) -> Explained:
    """One finding in full, for a terminal of `width` columns.

    Raises:
        UnknownName: the run has no finding of that number.
    """
    count = len(results.found.valued)
    if not 1 <= number <= count:
        raise UnknownName(*_no_such(number, count, results))
    return explain_findings(results, width, [number])[number]


def _no_such(number: int, count: int, results: Results) -> tuple[str, str]:
    """What is said where there is no finding of that number."""
    seen = f"{', '.join(results.reports)} has no finding {number}"
    if count:
        return seen, "Its only one is 1" if count == 1 else f"Its findings are 1 to {count}"
    return seen, "No change that nsysflow knows would save 1 % of its time"


def pages_asked_for(typed: str) -> Iterator[Explained]:
    """The pages on a name, or on a word of the page.

    Raises:
        UnknownName: no page is on it.
    """
    name = known_as(typed)
    if name is not None:
        return pages_of(name)
    seen = f"nothing is called {typed!r}"
    near = " or ".join(nearest(typed, [each for of in names_by_kind().values() for each in of]))
    if near:
        raise UnknownName(seen, f"Did you mean {near}?")
    raise UnknownName(seen, "See what there is", "nsysflow explain")
