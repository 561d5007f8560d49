"""Who was waited for, against its oracle, where streams wait for events of others."""

from hypothesis import HealthCheck, given, settings

import nsysflow
from nsysflow.analysis.tables.schema import SCHEMAS
from tests.analyses import EXAMPLES, rows_of
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import traces_with_events
from tests.oracle.waited import Waits, waited


@given(traces_with_events())
@settings(max_examples=5 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_the_split_of_a_trace_with_events_agrees_with_the_oracle(model: PlainTrace) -> None:
    analysis, columns = nsysflow.analyze(to_trace(model)), SCHEMAS["waited"].names()
    expected = rows_of(waited(Report(model)), columns)
    assert rows_of(analysis.waited.to_dicts(), columns) == expected


@given(traces_with_events())
@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_awaited_events_agree_with_the_oracle(model: PlainTrace) -> None:
    found = nsysflow.analyze(to_trace(model)).timeline.producers
    waits = Waits(Report(model))
    by_rank = sorted(waits.rank, key=lambda op: waits.rank[op])
    sources = [waits.by_event(op) for op in by_rank]
    expected = [None if source is None else waits.rank[source] for source in sources]
    assert found.by_event.to_list() == expected
