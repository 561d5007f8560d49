"""Where in the timeline a finding is best seen."""

from typing import Final, TypeAlias

import polars as pl

from nsysflow.analysis.findings.explanation import explanations
from nsysflow.report.clocks import clocks_of
from nsysflow.report.explain.behind import at_its_place
from nsysflow.report.results import Results

Place: TypeAlias = tuple[int, int, int]
"""The report's number, and start and end in ns."""

_SPAN: Final = ("start_ns", "end_ns")


def places_of(results: Results) -> list[Place | None]:
    """For each finding the longest judged gap that it is about, or the first judged step where it
    is about a busy GPU; None where neither is known. Times are on the page's axis."""
    longest = _longest_gaps(results)
    clocks = clocks_of(results, [each.tracks for each in results.analyses])
    places: list[Place | None] = []
    for number, one in enumerate(results.found.valued):
        place = longest.get(number) or _first_step(results, results.reports.index(one.report))
        if place is not None:
            report, start_ns, end_ns = place
            ahead_ns = clocks[report].origin_ns - clocks[report].zero_ns
            place = report, start_ns + ahead_ns, end_ns + ahead_ns
        places.append(place)
    return places


def _longest_gaps(results: Results) -> dict[int, Place]:
    """The longest gap of each finding that is about idle time, on its report's clock. All findings
    of a report share one pass over its gaps."""
    found: dict[int, Place] = {}
    for report, analysis in enumerate(results.analyses):
        wanted = [
            (number, one.finding, explanations()[one.finding.rule].causes)
            for number, one in enumerate(results.found.valued)
            if one.report == results.reports[report] and explanations()[one.finding.rule].causes
        ]
        for gaps in analysis.judged.gap_slices(0) if wanted else ():
            for number, finding, causes in wanted:
                mine = at_its_place(finding, gaps.filter(pl.col("cause").is_in([*causes])))
                _keep_longest(found, number, report, mine)
    return found


def _keep_longest(found: dict[int, Place], number: int, report: int, gaps: pl.DataFrame) -> None:
    for start_ns, end_ns in gaps.top_k(1, by="duration_ns").select(_SPAN).rows():
        _, start, end = found.get(number, (report, 0, 0))
        if end_ns - start_ns > end - start:
            found[number] = report, start_ns, end_ns


def _first_step(results: Results, report: int) -> Place | None:
    steps = results.analyses[report].judged.steps.sort("start_ns")
    return next(((report, *span) for span in steps.select(_SPAN).head(1).rows()), None)
