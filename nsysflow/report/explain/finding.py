"""One finding in full: what it saves, where it is, what it rests on, what to change."""

from collections.abc import Iterable, Iterator
from shlex import join

from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.findings.explained.explanation import explanations
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.phases.names import OUTSIDE
from nsysflow.analysis.replay.changes.declared import Changes
from nsysflow.report.explain.behind import gaps_behind, rows_behind
from nsysflow.report.explain.explained import Explained, Facts, Lines, Points, Prose
from nsysflow.report.explain.numbered import Numbered
from nsysflow.report.explain.pages import code_of
from nsysflow.report.results import Results
from nsysflow.report.units import duration, percent, share


def explain_finding(chosen: Numbered, results: Results, width: int) -> Explained:
    """One finding in full.

    Args:
        chosen: which one.
        results: its run.
        width: columns of a line.
    """
    finding = chosen.valued.finding
    explanation = explanations()[finding.rule]
    tables = chosen.analysis.judged
    report = chosen.analysis.trace.report
    return Explained(
        kind=f"finding {chosen.number} of {chosen.count} in {report} · {finding.rule}",
        title=finding.title,
        parts=(
            Facts(rows=tuple(_facts(chosen, results))),
            Prose(title="Why it costs time", text=explanation.why),
            *rows_behind(finding, tables, width),
            *gaps_behind(finding, tables, explanation.causes),
            Points(title="What to change, in this order", items=finding.change, numbered=True),
            *code_of(explanation),
            Points(title="When to leave it", items=explanation.leave),
            Lines(title="To see the numbers", lines=tuple(_commands(chosen, results))),
        ),
    )


def _facts(chosen: Numbered, results: Results) -> Iterator[tuple[str, str]]:
    finding, found = chosen.valued.finding, chosen.found
    yield "saves", _saving(chosen)
    yield "saves", reckoned(finding)
    yield "saves", _estimated(chosen, results)
    yield "where", _where(finding)
    if found.of_steps:
        yield "steps", f"{finding.steps} of the {found.steps} judged steps have it"
    for sentence in finding.evidence:
        yield "evidence", sentence
    for failed in chosen.analysis.failed_checks:
        yield "careful", f"the recording fails the check {failed.check}: record it again first"


def _saving(chosen: Numbered) -> str:
    """`542 us a step (13 % of 3.99 ms)`."""
    valued, found = chosen.valued, chosen.found
    high = duration(valued.high_ns)
    if valued.low_ns == valued.high_ns:
        much = high
    elif valued.low_ns:
        much = f"{duration(valued.low_ns)} to {high}"
    else:
        much = f"up to {high}"
    what = "a step" if found.of_steps else "of the window"
    return f"{much} {what} ({percent(valued.pct)} of {duration(valued.step_ns)})"


def reckoned(finding: Finding) -> str:
    """How the saving was reckoned, in a sentence."""
    if finding.changes is None:
        return "at most: the time lost there; no replay can express the change"
    changed = " and ".join(_changed(finding.changes)) or "without these calls"
    if finding.exact:
        return f"replayed: the recorded steps {changed}"
    return f"at most: the recorded steps replayed {changed}; what you change may save less"


def _changed(changes: Changes) -> Iterator[str]:
    """What is different in the replay."""
    kinds = {each.kind for each in changes.removed}
    if kinds & {"sync", "all"} or changes.removed_calls:
        yield "without this wait"
    if kinds & {"alloc", "all"}:
        yield "without allocating and freeing"
    if "copy" in kinds or changes.async_copies:
        yield "with copies that do not block the host"
    if changes.graphs:
        yield f"with the phase {_listed(changes.graphs)} launched as one CUDA graph"
    for factor in sorted({factor for _, factor in changes.scaled}):
        names = [name for name, of in changes.scaled if of == factor]
        yield f"with {_listed(names)} at {percent(100 * factor) or '0 %'} of the time"
    for phase, factor in changes.faster_host:
        taking = f"at {percent(100 * factor)} of its time" if factor else "taking no time"
        yield f"with the host's code in {phase} {taking}"
    if changes.no_profiler:
        yield "without the profiler's own work"


def _listed(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    first, *rest = names
    return f"{first} and {len(rest)} more" if rest else first


def _estimated(chosen: Numbered, results: Results) -> str:
    """The saving of a step that is not recorded, which is shorter; empty where it is not known."""
    unprofiled_ns, step_ns = results.unprofiled_step_ns, chosen.valued.step_ns
    if not chosen.found.of_steps or unprofiled_ns is None or unprofiled_ns >= step_ns:
        return ""
    saved_ns = round(chosen.valued.high_ns * unprofiled_ns / step_ns)
    return (
        f"estimated without the profiler: {duration(saved_ns)} of {duration(unprofiled_ns)}"
        f" ({share(saved_ns, unprofiled_ns)})"
    )


def _where(finding: Finding) -> str:
    named = [
        finding.phase or OUTSIDE,
        finding.source,
        finding.via,
        "" if finding.process is None else f"process {finding.process}",
        "" if finding.device is None else f"GPU {finding.device}",
    ]
    return " · ".join(filter(None, named))


def _commands(chosen: Numbered, results: Results) -> Iterator[str]:
    """What shows the numbers, as it is typed."""
    finding = chosen.valued.finding
    paths = results.origin.paths
    mine = [str(paths[chosen.analysis.trace.report])]
    asked = mine if TABLES[finding.table].of == "report" else [str(each) for each in paths.values()]
    yield join(["nsysflow", "analyze", *asked, "--table", finding.table])
    if explanations()[finding.rule].causes and finding.table != "gaps":
        yield join(["nsysflow", "analyze", *mine, "--table", "gaps"])
    changes = [] if finding.changes is None else [*finding.changes.options()]
    if changes:
        options = chosen.analysis.options
        step = [] if options.step is None else ["--step", options.step]
        skip = [] if options.skip is None else ["--skip", str(options.skip)]
        yield join(["nsysflow", "whatif", *mine, *changes, *step, *skip])
    yield join(["nsysflow", "explain", finding.rule])
