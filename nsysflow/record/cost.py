"""What a recording cost, by a step that was timed without it."""

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.saving import Replays
from nsysflow.report.results import Results
from nsysflow.runs.costs import keep_cost
from nsysflow.runs.manifest import Manifest


def keep_cost_of(manifest: Manifest, results: Results) -> None:
    """Keep what the recording of a run took, where a step was timed without it and shows that."""
    if manifest.plain_step_ns is None and manifest.later_step_ns is None:
        return
    slowest = results.found.report
    (analysis,) = (each for each in results.analyses if each.trace.report == slowest)
    pct = Replays(JudgedReport(analysis)).recorded_pct
    if pct is not None:
        keep_cost(manifest, pct)
