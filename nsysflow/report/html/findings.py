"""The findings of the page: in two lines each, in full, and where to look in the timeline."""

from dataclasses import asdict, dataclass
from typing import Any

from nsysflow.analysis.findings.finding import Valued
from nsysflow.report.explain.explained import WIDTH_MAX, Part
from nsysflow.report.explain.finding import explain_finding
from nsysflow.report.findings import Suggestion, Suggestions
from nsysflow.report.html.places import Place, places_of
from nsysflow.report.layout import Block, without_empty_columns
from nsysflow.report.results import Results


@dataclass(frozen=True, kw_only=True)
class FindingShown:
    """A finding, in the order of `/findings` of report.json.

    Attributes:
        number: as `nsysflow explain` takes it.
        saving: `save 542 us (13 %)`.
        title: what happens and where.
        change: what to do, in the order in which to try it.
        evidence: the numbers that it rests on.
        table: the table that holds them.
        steps: `in 2 of 5 steps`; empty where all have it.
        place: the report's number, and the start and end on the page's axis of where to look; None
            where the timeline has no place for it.
        explained: the parts of `nsysflow explain`, each with its `kind`.
    """

    number: int
    saving: str
    title: str
    change: tuple[str, ...]
    evidence: tuple[str, ...]
    table: str
    steps: str
    place: Place | None
    explained: tuple[dict[str, Any], ...]


def findings_shown(results: Results, found: Suggestions) -> tuple[FindingShown, ...]:
    """All findings of a run."""
    each = zip(found.rows, results.found.valued, places_of(results), strict=True)
    return tuple(_finding(results, *one) for one in each)


def _finding(
    results: Results, suggestion: Suggestion, valued: Valued, place: Place | None
) -> FindingShown:
    explained = explain_finding(results, suggestion.number, WIDTH_MAX)
    return FindingShown(
        number=suggestion.number,
        saving=suggestion.saving,
        title=suggestion.title,
        change=valued.finding.change,
        evidence=valued.finding.evidence,
        table=valued.finding.table,
        steps=suggestion.steps,
        place=place,
        explained=tuple(map(_part, explained.parts)),
    )


def _part(part: Part) -> dict[str, Any]:
    """A part of an explanation with the name of its kind."""
    shown = without_empty_columns(part) if isinstance(part, Block) else part
    return {"kind": type(part).__name__.lower(), **asdict(shown)}
