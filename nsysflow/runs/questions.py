"""`nsysflow.whatif`, `diff`, `check` and `explain`: what the commands of these names answer, as the
documents that their `--json` prints.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from nsysflow.analysis.analyze import analyze, replay_and_next
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.run_saving import RunWhatIf, whatif_of_run
from nsysflow.analysis.options import Options, require_valid
from nsysflow.analysis.replay.changes import Changes, Removal, is_factor
from nsysflow.analysis.replay.collectives import with_collectives
from nsysflow.analysis.replay.curve import Collectives, Curve
from nsysflow.analysis.replay.whatif import WhatIf
from nsysflow.base.errors import CheckError, SelectionError
from nsysflow.compare.baseline import baseline_of, refuse_unlike
from nsysflow.compare.budget_pages import check_json
from nsysflow.compare.budgets import budget, figures_of, limits_of, refuse_rules
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import compared
from nsysflow.compare.judging import judge
from nsysflow.report.diff import require_comparable
from nsysflow.report.diff_document import diff_json
from nsysflow.report.explain.finding import numbered_finding, pages_asked_for
from nsysflow.report.explain.pages import set_explained
from nsysflow.report.whatif import run_whatif_json, whatif_json
from nsysflow.runs.analyze import analyze_reports, with_run
from nsysflow.runs.captures import captures_of, sides_of
from nsysflow.runs.sources import load, single_report, sources_of

StrPath = str | PathLike[str]
Document = dict[str, Any]

WIDTH: Final = 100
"""Columns of an explanation."""


def whatif(
    report: StrPath,
    *,
    remove: Iterable[str] = (),
    graph: Iterable[str] = (),
    scale: Mapping[str, float] | None = None,
    faster_host: Mapping[str, float] | None = None,
    async_copies: bool = False,
    no_profiler: bool = False,
    no_gil: bool = False,
    overlapped: bool = False,
    ranks: int | None = None,
    collectives: StrPath | None = None,
    options: Options | None = None,
) -> Document:
    """What changes to a program would save, as `nsysflow whatif --json` prints it.

        nsysflow.whatif("report.sqlite", remove=["sync@train.py:42"])["step_after_ns"]

    Args:
        report: one report, or the folder of a run, whose ranks are replayed together.
        remove: waits, as KIND or KIND@PLACE: `sync`, `alloc@step/forward`, `loop@train.py:42`.
        graph: phases to launch as a CUDA graph.
        scale: factors on the time of kernels, or of copies (`memcpy HtoD`).
        faster_host: factors on the time of host code in phases.
        async_copies: let no copy block the host.
        no_profiler: remove the profiler's own work.
        no_gil: let no thread wait for Python's lock (GIL), as far as `profile --gil` recorded it.
        overlapped: let a serving engine prepare a step while the GPU runs the one before.
        ranks: run a program that was recorded as one rank on so many; needs `collectives`.
        collectives: the file with what collectives take on so many.
        options: which steps to take; None takes those of the report.

    Raises:
        ReportError: the report cannot be read.
        SelectionError: a kind or a factor is none, or there are no collectives to take longer.
        UnknownName: a phase, source line or kernel is not in it.
    """
    changes = Changes(
        removed=tuple(map(Removal.parse, remove)),
        graphs=tuple(graph),
        scaled=_factors(scale),
        faster_host=_factors(faster_host),
        async_copies=async_copies,
        no_profiler=no_profiler,
        no_gil=no_gil,
        overlapped=overlapped,
        collectives=collectives_of(collectives, ranks),
    )
    chosen = options or Options()
    require_valid(chosen)
    answer = replay_path(Path(report), chosen, changes)
    if isinstance(answer, RunWhatIf):
        return _document(run_whatif_json(answer))
    return _document(whatif_json(answer.whatif, answer.next_finding))


def diff(
    base: Sequence[StrPath], new: Sequence[StrPath], *, step: str | None = None, force: bool = False
) -> Document:
    """Whether a step got faster and what made the difference, as `nsysflow diff --json` prints it.

        nsysflow.diff(["a", "b", "c"], ["d", "e", "f"])["text"]

    Args:
        base: captures from before the change: reports, folders of runs, or report.json files.
        new: captures from after it.
        step: the range that is one step.
        force: compare even if GPUs, ranks, precision, steps or kernels differ.

    Raises:
        ReportError: a capture cannot be read.
        SelectionError: the sides should not be compared, or one has no capture.
    """
    if not base or not new:
        raise SelectionError("a side has no capture", "Name at least one on each side")
    before, after = sides_of([_paths(base), _paths(new)], step=step)
    comparison = compared(before, after)
    require_comparable([comparison], force=force)
    return _document(diff_json(comparison))


def check(
    reports: Sequence[StrPath],
    budgets: Sequence[str],
    *,
    baseline: Sequence[StrPath] = (),
    step: str | None = None,
) -> Document:
    """Whether a program is within its budgets, as `nsysflow check --json` prints it.

        nsysflow.check(["a", "b", "c"], ["step_ms<=5", "finding:sync-in-loop=none"])["outcome"]

    Args:
        reports: captures of one program.
        budgets: as `--max` takes them.
        baseline: captures to compare with, for budgets such as `step_ms<=1.05*baseline`.
        step: the range that is one step.

    Raises:
        ReportError: a capture cannot be read.
        CheckError: a capture cannot be judged, or is unlike the others.
        WrongBudget: a budget is none.
    """
    every = [budget(text) for text in budgets]
    of_findings = [each for each in every if each.rule is not None]
    refuse_rules(of_findings, explanations())
    captures = _alike(reports, step, findings=bool(of_findings))
    of_figures = [each for each in every if each.rule is None]
    limits = limits_of(of_figures, figures_of(captures)) if of_figures else []
    before = None
    if baseline:
        earlier = _alike(baseline, step)
        refuse_unlike(earlier, captures)
        before = baseline_of(earlier)
    return _document(check_json(judge(limits, of_findings, captures, before), captures))


def explain(
    what: int | str,
    report: StrPath | Sequence[StrPath] = (),
    *,
    options: Options | None = None,
    width: int = WIDTH,
) -> str:
    """A finding of a report in full, or what a name means, as `nsysflow explain` prints it.

        print(nsysflow.explain(1, "report.sqlite"))
        print(nsysflow.explain("sync"))

    Args:
        what: the number of a finding, from 1, or a name.
        report: the report of the finding; a list with one per rank of a run.
        options: what to narrow the analysis to.
        width: columns of a line.

    Raises:
        SelectionError: a finding was asked for without its report.
        UnknownName: there is no such finding or name.
    """
    if isinstance(what, str):
        pages = [*pages_asked_for(what)]
    else:
        paths = _paths([report] if isinstance(report, str | PathLike) else report)
        if not paths:
            raise SelectionError(f"finding {what} of which report?", "Name the report, too")
        results = analyze_reports(paths, options or Options(), tables=("kernels",))
        pages = [numbered_finding(results, what, width)]
    texts = ("\n".join(line.plain for line in set_explained(page, width)) for page in pages)
    return "\n\n".join(texts)


def _factors(of: Mapping[str, float] | None) -> tuple[tuple[str, float], ...]:
    """Factors by name, as changes hold them."""
    for name, factor in (of or {}).items():
        if not is_factor(factor):
            seen = f"{factor} is no factor for {name!r}"
            raise SelectionError(seen, "Give one of 0 or more, such as 0.5 for half of the time")
    return tuple((of or {}).items())


def _paths(typed: Iterable[StrPath]) -> list[Path]:
    return [Path(path) for path in typed]


def _alike(
    reports: Sequence[StrPath], step: str | None, *, findings: bool = False
) -> list[Capture]:
    """Captures of one program, each fit to be judged."""
    captures = captures_of(_paths(reports), step=step, findings=findings)
    for capture in captures:
        if capture.invalid is not None:
            raise CheckError(f"{capture.name} cannot be judged: {capture.invalid.rstrip('.')}")
    refuse_unlike(captures[:1], captures[1:])
    return captures


def _document(text: str) -> Document:
    document: Document = json.loads(text)
    return document


@dataclass(frozen=True, kw_only=True)
class ReportWhatIf:
    """The replay of one report, and the finding that saves most beside the changes."""

    report: str
    whatif: WhatIf
    next_finding: Valued | None


def collectives_of(curve: StrPath | None, ranks: int | None) -> Collectives | None:
    """What collectives take on so many ranks, of a measured curve; None without both.

    Raises:
        SelectionError: one of the two is missing, or the file has no times for so many ranks.
    """
    if curve is None and ranks is None:
        return None
    if curve is None or ranks is None:
        seen = "ranks and collectives need each other"
        raise SelectionError(seen, "Say how many ranks, and in which file is what they send takes")
    return Collectives(curve=Curve.read(Path(curve), ranks))


def replay_path(path: Path, options: Options, changes: Changes) -> ReportWhatIf | RunWhatIf:
    """The replay of one report, or of the ranks of a run together, each with the changes.

    Args:
        path: a report, or the folder of a run.
        options: which steps to take.
        changes: what to change.

    Raises:
        ReportError: a report cannot be read.
        NotAReport: there are several reports, but no ranks with collectives in judged steps.
        SelectionError: there are no collectives that could take longer on more ranks.
        UnknownName: a phase, source line or kernel is not in it, or in none of the ranks.
    """
    if len(list(sources_of([path]))) > 1:
        if changes.collectives is not None:
            raise SelectionError(f"{path} has several reports, not one of one rank", "Name one")
        results = analyze_reports([path], options, tables=())
        subjects = [JudgedReport(each) for each in results.analyses]
        of_run = whatif_of_run(subjects, results.ranks_of_run, changes)
        if of_run is not None:
            return of_run
    source = single_report(path)  # names the reports if there are several
    trace = load(source.path, shapes="grid")  # some findings look at grids
    options = with_run(source.manifest, options)
    if changes.collectives is not None:
        trace = with_collectives(trace, changes.collectives.curve, options)
    analysis = analyze(trace, options)
    whatif, next_finding = replay_and_next(analysis, changes)
    return ReportWhatIf(report=trace.report, whatif=whatif, next_finding=next_finding)
