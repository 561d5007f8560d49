"""The analysis against its slow oracle: every table, on random traces and on real reports."""

from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.schema import SCHEMAS
from tests.analyses import EXAMPLES, analysed, every_report, oracle_of, oracle_tables_of, rows_of
from tests.oracle.integrity import integrity
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report, Row
from tests.oracle.strategies import traces, traces_with_graphs
from tests.oracle.sums import assert_sums_agree
from tests.oracle.tables import oracle_tables
from tests.tiny import call, copy, kernel, launch, plain_of

INTEGRITY = {
    "kernels before their launch": "before_launch",
    "operations without a launch": "no_launch",
    "negative durations": "negative",
    "launches without an operation": "no_operation",
    "events lost": "events_lost",
    "clock jumps": "clock_jumps",
    "overlapping kernels on one stream": "stream_overlap",
    "graph operations into other launches": "graph_into_others",
    "graph kernels over 100 times their median": "graph_long",
}


def assert_agrees(
    analysis: nsysflow.Analysis, report: Report, tables: Mapping[str, list[Row]]
) -> None:
    for name, rows in tables.items():
        columns = [column for column in SCHEMAS[name] if column != "class"]
        expected = rows_of(rows, columns)
        found = rows_of(getattr(analysis, name).to_dicts(), columns)
        assert list(found - expected) == list(expected - found) == [], f"{name}: {columns}"
    counts = dict(analysis.integrity.select("check", "count").rows())
    expected_counts = integrity(report)
    assert {check: counts.get(check, 0) for check in INTEGRITY} == {
        check: expected_counts[name] for check, name in INTEGRITY.items()
    }


OWN = st.sampled_from(
    ((), ("transformers",), ("accelerate/utils.py", "torch"), ("/opt/lib/python3.12/",))
)


@given(traces(), OWN)
@settings(max_examples=5 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_every_table_of_a_random_trace_agrees_with_the_oracle(
    model: PlainTrace, own: tuple[str, ...]
) -> None:
    report = Report(model, own=own)
    analysis = nsysflow.analyze(to_trace(model), Options(own=own))
    assert_agrees(analysis, report, oracle_tables(report))


@given(traces_with_graphs())
@settings(max_examples=5 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_every_table_of_a_random_trace_with_graphs_agrees_with_the_oracle(
    model: PlainTrace,
) -> None:
    report = Report(model)
    assert_agrees(nsysflow.analyze(to_trace(model)), report, oracle_tables(report))


def test_an_api_call_that_outlasts_a_stretch_of_launching_agrees_with_the_oracle() -> None:
    # found by make hunt on 2026-11-22: the call of no length at 10 ends the stretch inside it
    model = plain_of(
        launch(0, 5, 1),
        call(0, 1_000_000, "cudaEventQuery"),
        launch(10, 10, 3, name="cudaMemcpyAsync"),
        launch(1_000_000, 1_000_005, 5),
        kernel(6, 11, 1),
        copy(11, 16, 3, "HtoD", "pageable", "device"),
        kernel(1_000_006, 1_000_011, 5),
    )
    analysis, report = nsysflow.analyze(to_trace(model)), Report(model)
    assert_agrees(analysis, report, oracle_tables(report))
    assert analysis.accounting["api_ns"].item() == 1_000_000 - 16


@every_report
def test_every_table_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_agrees(analysed(name), oracle_of(name), oracle_tables_of(name))


@every_report
def test_the_oracle_s_tables_of_a_real_report_agree_with_each_other(name: str) -> None:
    # here, as the tests of one file share these tables: those of the largest report take a minute
    assert_sums_agree(oracle_of(name), oracle_tables_of(name))
