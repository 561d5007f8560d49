"""The analysis against its slow twin: every table, on random traces and on real reports."""

from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings

import nsysflow
from nsysflow.analysis.schema import TABLES as SCHEMAS
from tests.analyses import analysed, every_report, rows_of, twin_of, twin_tables_of
from tests.twin.integrity import integrity
from tests.twin.model import TwinTrace, to_trace
from tests.twin.report import Report, Row
from tests.twin.strategies import traces
from tests.twin.tables import twin_tables

INTEGRITY = {
    "kernels before their launch": "before_launch",
    "operations without a launch": "no_launch",
    "negative durations": "negative",
    "launches without an operation": "no_operation",
    "events lost": "events_lost",
    "clock jumps": "clock_jumps",
    "overlapping kernels on one stream": "stream_overlap",
}


def assert_agrees(
    analysis: nsysflow.Analysis, report: Report, tables: Mapping[str, list[Row]]
) -> None:
    for name, twins in tables.items():
        columns = [column for column in SCHEMAS[name] if column != "class"]
        expected = rows_of(twins, columns)
        found = rows_of(getattr(analysis, name).to_dicts(), columns)
        assert list(found - expected) == list(expected - found) == [], f"{name}: {columns}"
    counts = dict(analysis.integrity.select("check", "count").rows())
    twins_counts = integrity(report)
    assert {check: counts.get(check, 0) for check in INTEGRITY} == {
        check: twins_counts[name] for check, name in INTEGRITY.items()
    }


@given(traces())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_table_of_a_random_trace_is_the_twins(model: TwinTrace) -> None:
    report = Report(model)
    assert_agrees(nsysflow.analyze(to_trace(model)), report, twin_tables(report))


@every_report
def test_every_table_of_a_real_report_is_the_twins(name: str) -> None:
    assert_agrees(analysed(name), twin_of(name), twin_tables_of(name))
