"""`what_if`: what a change would save."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from nsysflow.agents.answer import Answer
from nsysflow.agents.reports import Reports
from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.findings.findings import replay_and_next
from nsysflow.analysis.replay.changes import Changes
from nsysflow.report.whatif import whatif_json, whatif_lines
from nsysflow.runs.sources import single_report


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A report replayed with changes, as `nsysflow whatif --json` prints it.

    Attributes:
        window_before_ns: the recorded window.
        window_after_ns: the same in the replay.
        step_before_ns: the mean step; null where none is known.
        step_after_ns: the same in the replay.
        steps: how many steps that mean is of.
        idle_before: idle time by cause, of all GPUs together, in ns.
        idle_after: the same in the replay.
        then: the finding that is then the largest; null where none is.
        limits: what the replay cannot know of this report.
    """

    window_before_ns: int
    window_after_ns: int
    step_before_ns: int | None
    step_after_ns: int | None
    steps: int
    idle_before: Mapping[str, int]
    idle_after: Mapping[str, int]
    then: dict[str, Any] | None
    limits: tuple[str, ...]


def what_if(reports: Reports, typed: str, changes: Changes) -> Answer[Replayed]:
    """What changes to a program would save, by replaying its report.

    Args:
        reports: those in the folder.
        typed: the path of one report.
        changes: all that is different.

    Raises:
        NotAReport: the run has several ranks.
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    results = reports.open([typed])
    single_report(reports.folder.inside(typed))
    (analysis,) = results.analyses
    found, then = replay_and_next(cast("Analysis", analysis), changes)
    data = Replayed(**json.loads(whatif_json(found, then)))
    return Answer(text="\n".join(whatif_lines(analysis.trace.report, found, then)), data=data)
