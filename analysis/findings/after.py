"""What to change next, once some changes are made."""

from dataclasses import replace
from typing import Final, Protocol

from nsysflow.analysis.findings.find import Found
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.whatif import WhatIf, whatif
from nsysflow.analysis.selection.timeline import Timeline

_MOST_OPS: Final = 500_000
"""Of a longer report the finding that is then the largest is not looked for: it takes seconds."""


class _Analysed(Protocol):
    """What is read of an analysis."""

    @property
    def timeline(self) -> Timeline: ...
    @property
    def subject(self) -> Subject: ...
    @property
    def found(self) -> Found: ...


def replay_and_next(analysis: _Analysed, changes: Changes) -> tuple[WhatIf, Valued | None]:
    """What changes give, and the finding that saves most beside them; None where none does, and of
    a long report.

    Raises:
        SelectionError: there is no step of those that the options select.
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    found = whatif(analysis.timeline, changes)
    if len(analysis.timeline.events.ops) > _MOST_OPS:
        return found, None
    return found, largest_after(analysis.subject, analysis.found, changes)


def largest_after(subject: Subject, found: Found, changes: Changes) -> Valued | None:
    """The finding that saves most beside `changes`, with what it then saves; None where none does.

    Args:
        subject: the judged part of a report.
        found: its findings.
        changes: what is changed already.

    Raises:
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    replays = Replays(subject)
    changed_ns = replays.saving_ns(changes)
    if changed_ns is None:
        return None
    left = []
    for one in found.valued:
        if one.finding.changes is None:
            continue
        both_ns = replays.saving_ns(Changes.together([changes, one.finding.changes]))
        more_ns = 0 if both_ns is None else both_ns - changed_ns
        if more_ns > 0:
            low_ns = more_ns if one.finding.method == "replay" else 0
            left.append(replace(one, low_ns=low_ns, high_ns=more_ns, later_ns=0))
    return max(left, key=lambda one: one.rank_ns, default=None)
