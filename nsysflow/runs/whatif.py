"""A report, or all ranks of a run together, replayed with changes to the program."""

from dataclasses import dataclass
from pathlib import Path

from nsysflow.analysis.analyze import analyze, replay_and_next
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.run_saving import RunWhatIf, whatif_of_run
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.whatif import WhatIf
from nsysflow.runs.analyze import analyze_reports, with_run
from nsysflow.runs.loading import load
from nsysflow.runs.sources import single_report, sources_of


@dataclass(frozen=True, kw_only=True)
class ReportWhatIf:
    """The replay of one report, and the finding that saves most beside the changes."""

    report: str
    whatif: WhatIf
    next_finding: Valued | None


def replay_path(path: Path, options: Options, changes: Changes) -> ReportWhatIf | RunWhatIf:
    """The replay of one report, or of the ranks of a run together, each with the changes.

    Args:
        path: a report, or the folder of a run.
        options: which steps to take.
        changes: what to change.

    Raises:
        ReportError: a report cannot be read.
        NotAReport: there are several reports, but no ranks with collectives in judged steps.
        UnknownName: a phase, source line or kernel is not in it, or in none of the ranks.
    """
    if len(list(sources_of([path]))) > 1:
        results = analyze_reports([path], options, tables=())
        subjects = [JudgedReport(each) for each in results.analyses]
        of_run = whatif_of_run(subjects, results.ranks_of_run, changes)
        if of_run is not None:
            return of_run
    source = single_report(path)  # names the reports if there are several
    trace = load(source.path, shapes="grid")  # some findings look at grids
    analysis = analyze(trace, with_run(source.manifest, options))
    whatif, next_finding = replay_and_next(analysis, changes)
    return ReportWhatIf(report=trace.report, whatif=whatif, next_finding=next_finding)
