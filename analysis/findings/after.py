"""What to change next, once some changes are made."""

from dataclasses import replace

from nsysflow.analysis.findings.find import Found
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.replay.changes.declared import Changes


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
