"""The analysis against its slow oracle: every table, on random traces and on real reports."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options
from tests.agreement import assert_agrees
from tests.analyses import (
    EXAMPLES,
    analysed,
    every_report,
    few_reports,
    oracle_of,
    oracle_tables_of,
)
from tests.analysis.ranks.test_ranks import assert_exchanged_alike
from tests.analysis.test_invariants import assert_invariants
from tests.analysis.tracks.written import assert_pictured_alike
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import several, traces, traces_with_events, traces_with_graphs
from tests.oracle.waited import Waits

OWN = ((), ("transformers",), ("accelerate/utils.py", "torch"), ("/opt/lib/python3.12/",))


@settings(max_examples=3 * EXAMPLES // 2, suppress_health_check=list(HealthCheck))
@given(
    several(st.one_of(traces(), traces_with_graphs(), traces_with_events())),
    st.sampled_from(OWN),
    st.sampled_from((50_000, 0, 400_000)),
)
def test_random_traces_agree_with_the_oracle(
    model: PlainTrace, own: tuple[str, ...], framework_gap_ns: int
) -> None:
    """All that an analysis has: its tables, its picture, and what its ranks exchange."""
    options = Options(own=own, framework_gap_ns=framework_gap_ns)
    analysis = nsysflow.analyze(to_trace(model), options)
    report = Report(model, own=own, framework_gap_ns=framework_gap_ns)
    assert_agrees(analysis, report)
    assert_pictured_alike(analysis, report)
    assert_exchanged_alike(analysis, report)
    assert_invariants(analysis)
    waits = Waits(report)
    by_rank = sorted(waits.rank, key=lambda op: waits.rank[op])
    sources = [waits.by_event(op) for op in by_rank]
    expected = [None if source is None else waits.rank[source] for source in sources]
    assert analysis.timeline.producers.by_event.to_list() == expected


@every_report
def test_every_table_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_agrees(analysed(name), oracle_of(name), oracle_tables_of(name))


@few_reports
def test_the_picture_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_pictured_alike(analysed(name), oracle_of(name))
