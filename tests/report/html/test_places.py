"""Where a finding leads to is what it is about."""

import polars as pl
import pytest

from nsysflow.report.html.places import places_of
from nsysflow.report.pictures import clocks_of
from tests.analyses import KINDS, run_of

TABLES = ("gaps", "operations", "ranges", "steps")


@pytest.mark.parametrize("name", KINDS)
def test_a_finding_leads_to_a_slice_of_its_report_in_a_step_that_counts(name: str) -> None:
    run = run_of(name)
    clocks = clocks_of(run, [each.tracks for each in run.analyses])
    for one, place in zip(run.found.valued, places_of(run), strict=True):
        assert place is not None
        report, start_ns, end_ns = place
        assert run.reports[report] == one.report
        ahead_ns = clocks[report].origin_ns - clocks[report].zero_ns
        span = pl.col("start_ns") == start_ns - ahead_ns, pl.col("end_ns") == end_ns - ahead_ns
        analysis = run.analyses[report]
        tables = analysis.run_steps if one.finding.beside else analysis.judged
        found = [getattr(analysis.tracks, table).filter(*span).height for table in TABLES]
        assert sum(found)
        starts = tables.view.windows
        inside = pl.lit(start_ns - ahead_ns).is_between("start_ns", "end_ns")
        assert starts.filter(inside).height
