"""Findings written by hand."""

from dataclasses import replace
from typing import Any, Final

from nsysflow.analysis.findings.finding import Finding, Valued
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.replay.changes import Changes
from tests.report.handmade import MS, Handmade, Results, training

STEP_NS: Final = 50 * MS
"""A step of `training`, of which all savings here are."""

NOTHING_CHANGED: Final = Changes()
"""What is replayed where it does not matter what."""


def finding(**fields: Any) -> Finding:
    """A wait in the loop that was replayed, but for `fields`."""
    common: dict[str, Any] = {"rule": "sync-in-loop", "title": "sync in the loop", "steps": 2}
    words = {"change": ("remove the wait", "wait later"), "evidence": ("it waits",)}
    replayed = {"table": "syncs", "size_ns": MS, "changes": NOTHING_CHANGED}
    return Finding(**common | words | replayed | fields)


def valued(high_ns: int = 5 * MS, report: str = "run.sqlite", **fields: Any) -> Valued:
    """The same with its saving."""
    of = finding(**fields)
    low_ns = high_ns if of.method == "replay" else 0
    return Valued(finding=of, low_ns=low_ns, high_ns=high_ns, step_ns=STEP_NS, report=report)


def found_of(
    *some: Valued, together_ns: int | None = None, steps: int = 2, of_steps: bool = True
) -> Findings:
    """What was found in `training`."""
    return Findings(
        valued=some,
        together_ns=together_ns,
        step_ns=STEP_NS,
        of_steps=of_steps,
        steps=steps,
        report="run.sqlite",
    )


def stepped(found: Findings | None = None) -> Handmade:
    """`training` with both of its steps judged."""
    run = replace(training(), step_counts={("run.sqlite", 0): 2})
    return run if found is None else replace(run, found=found)


def with_findings(*some: Valued, **of: Any) -> Results:
    """The results of `training` with these findings."""
    return Results([stepped(found_of(*some, **of))])
