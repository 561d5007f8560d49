"""Who was waited for, against its oracle, where streams wait for events of others."""

from hypothesis import HealthCheck, given, settings

import nsysflow
from tests.analyses import EXAMPLES
from tests.analysis.test_oracle_agrees import assert_agrees
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import traces_with_events
from tests.oracle.tables import oracle_tables
from tests.oracle.waited import Waits


@given(traces_with_events())
@settings(max_examples=5 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_every_table_of_a_trace_with_events_agrees_with_the_oracle(model: PlainTrace) -> None:
    report = Report(model)
    assert_agrees(nsysflow.analyze(to_trace(model)), report, oracle_tables(report))


@given(traces_with_events())
@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_awaited_events_agree_with_the_oracle(model: PlainTrace) -> None:
    found = nsysflow.analyze(to_trace(model)).timeline.producers
    waits = Waits(Report(model))
    by_rank = sorted(waits.rank, key=lambda op: waits.rank[op])
    sources = [waits.by_event(op) for op in by_rank]
    expected = [None if source is None else waits.rank[source] for source in sources]
    assert found.by_event.to_list() == expected
