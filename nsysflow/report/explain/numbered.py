"""The findings of a run, numbered as its page numbers them."""

from dataclasses import dataclass
from typing import Any

from nsysflow.analysis.findings.find import Found, find
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.subject import Subject
from nsysflow.report.results import Results


@dataclass(frozen=True, kw_only=True)
class Numbered:
    """One finding of a run.

    Attributes:
        number: its number, from 1.
        count: how many findings the run has.
        valued: the finding and its saving.
        found: the findings of its report.
        analysis: its report.
    """

    number: int
    count: int
    valued: Valued
    found: Found
    analysis: Any


def numbered(results: Results) -> list[Numbered]:
    """All findings of a run, the largest saving first."""
    every = [
        (one, found, analysis)
        for analysis in results.analyses
        for found in [_found(analysis)]
        for one in found.valued
    ]
    every.sort(key=lambda each: (-each[0].rank_ns, each[0].finding.rule, each[0].finding.title))
    return [
        Numbered(number=number, count=len(every), valued=one, found=found, analysis=analysis)
        for number, (one, found, analysis) in enumerate(every, start=1)
    ]


def _found(analysis: Any) -> Found:  # noqa: ANN401  # an Analysis
    """The findings of one report."""
    return find(Subject(analysis.judged))
