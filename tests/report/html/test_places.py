"""Where a finding leads to is what it is about."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.report.html.timeline import places_of
from nsysflow.report.pictures import clocks_of
from tests import tiny
from tests.analyses import KINDS, run_of
from tests.report.html.unpacked import run_of_these

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
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


def rank(name: str, computes: list[int]) -> nsysflow.Analysis:
    """Steps in which a rank computes so long, and then reduces until the slower one has come."""

    def rows() -> Iterator[tiny.Row]:
        for at, ns in enumerate(computes):
            start, end = at * 400_000, at * 400_000 + 350_000
            yield tiny.opened(start, end + 20_000, "step")
            yield tiny.launch(start + 1_000, start + 2_000, 2 * at)
            yield tiny.kernel(start + 3_000, start + 3_000 + ns, 2 * at)
            yield tiny.launch(start + 2_000, start + 3_000, 2 * at + 1)
            yield tiny.kernel(start + 4_000 + ns, end, 2 * at + 1, name=REDUCE)
            yield tiny.call(start + 4_000, end + 1_000, "cudaDeviceSynchronize")

    trace = replace(tiny.trace_of(*rows()), report=name)
    return nsysflow.analyze(trace, Options(skip=0))


def test_a_straggler_is_shown_where_it_is_late_and_not_where_the_others_wait() -> None:
    late = [200_000] * 5 + [240_000] + [200_000] * 2
    run = run_of_these(rank("rank0", [100_000] * 8), rank("rank1", late))
    (at,) = (at for at, one in enumerate(run.found.valued) if one.finding.rule == "straggler")
    assert run.found.valued[at].report == "rank0"
    worst = run.analyses[1].steps.row(5, named=True)
    clock = clocks_of(run, [each.tracks for each in run.analyses])[1]
    ahead_ns = clock.origin_ns - clock.zero_ns
    assert places_of(run)[at] == (1, worst["start_ns"] + ahead_ns, worst["end_ns"] + ahead_ns)
