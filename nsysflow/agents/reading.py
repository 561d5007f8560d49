"""`open_report`, `findings` and `explain`: what a reader sees of a report."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nsysflow.agents.answer import WIDTH, Answer, plain_text
from nsysflow.agents.reports import Reports
from nsysflow.base.errors import SelectionError
from nsysflow.report.document import about, plain, verdict
from nsysflow.report.explain.asked import numbered_finding, pages_asked_for
from nsysflow.report.explain.contents import contents
from nsysflow.report.explain.explained import Explained, set_explained
from nsysflow.report.findings import suggestions
from nsysflow.report.page import compose
from nsysflow.report.terminal import set_page, suggestion_lines


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A report as a whole.

    Attributes:
        reports: its names in tables, one per rank.
        gpus: what it ran on.
        steps: how many steps there are and how long they take; empty without steps.
        verdict: as in report.json: `valid`, `why`, `bound`, `bound_pct`, `phase`, `source`, `text`.
        notes: what the reader should know; each has `kind` and `text`.
        findings: how many there are.
    """

    reports: tuple[str, ...]
    gpus: str
    steps: str
    verdict: dict[str, Any]
    notes: tuple[dict[str, Any], ...]
    findings: int


@dataclass(frozen=True, kw_only=True)
class FindingRows:
    """What to change, the largest saving first.

    Attributes:
        total: how many findings there are.
        findings: rows of the table `findings`, as in report.json.
    """

    total: int
    findings: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One thing explained.

    Attributes:
        kind: what it is: a finding, a cause of idle time, a bound, a table, a column.
        title: its name, or a sentence.
        text: what is said of it.
    """

    kind: str
    title: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Explanations:
    """What was found under a name; several things may have one."""

    explained: tuple[Explanation, ...]


def open_report(reports: Reports, typed: Sequence[str]) -> Answer[Opened]:
    """The page of a report: verdict, first findings, largest losses."""
    results = reports.open(typed)
    page = compose(results, "page", top=None, at_least_ns=0)
    data = Opened(
        reports=results.reports,
        gpus=page.gpus,
        steps=page.steps,
        verdict=verdict(results),
        notes=tuple(about(results)["notes"]),
        findings=len(results.found.valued),
    )
    return Answer(text=plain_text(set_page(page, WIDTH)), data=data)


def findings(reports: Reports, typed: Sequence[str], limit: int) -> Answer[FindingRows]:
    """What to change in a report, at most `limit` findings."""
    results = reports.open(typed)
    rows = plain(results.table("findings").head(limit)).rows(named=True)
    text = plain_text(suggestion_lines(suggestions(results, limit), WIDTH))
    return Answer(
        text=text or "No change is known that would save 1 % of a step or more",
        data=FindingRows(total=len(results.found.valued), findings=tuple(rows)),
    )


def explain(reports: Reports, what: str, typed: Sequence[str]) -> Answer[Explanations]:
    """A finding by its number in a report, or the pages on a name; without a name, all names.

    Raises:
        SelectionError: a number was given without a report.
        UnknownName: there is no such finding, or nothing is called so.
    """
    if not what:
        return _explained([contents()])
    if what.isdecimal():
        if not typed:
            raise SelectionError(f"finding {what} of which report?", "Name the report, too")
        return _explained([numbered_finding(reports.open(typed), int(what), WIDTH)])
    return _explained(pages_asked_for(what))


def _explained(pages: Iterable[Explained]) -> Answer[Explanations]:
    found = tuple(
        Explanation(kind=each.kind, title=each.title, text=plain_text(set_explained(each, WIDTH)))
        for each in pages
    )
    return Answer(text="\n\n".join(each.text for each in found), data=Explanations(explained=found))
