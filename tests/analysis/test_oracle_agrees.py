"""The analysis against its slow oracle: every table, on random traces and on real reports."""

from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options
from tests.agreement import assert_agrees
from tests.analyses import EXAMPLES, NAMES, analysed, oracle_of, oracle_tables_of
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import (
    several,
    traces,
    traces_with_events,
    traces_with_graphs,
)
from tests.oracle.waited import Waits

MANY: Final = settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
OWN: Final = st.sampled_from(
    ((), ("transformers",), ("accelerate/utils.py", "torch"), ("/opt/lib/python3.12/",))
)


@MANY
@given(several(traces()), OWN)
def test_random_traces_agree_with_the_oracle(model: PlainTrace, own: tuple[str, ...]) -> None:
    assert_agrees(nsysflow.analyze(to_trace(model), Options(own=own)), Report(model, own=own))


@MANY
@given(several(traces_with_graphs()))
def test_every_table_of_random_traces_with_graphs_agrees_with_the_oracle(model: PlainTrace) -> None:
    assert_agrees(nsysflow.analyze(to_trace(model)), Report(model))


@MANY
@given(several(traces_with_events()))
def test_every_table_of_random_traces_with_events_agrees_with_the_oracle(model: PlainTrace) -> None:
    report, analysis = Report(model), nsysflow.analyze(to_trace(model))
    assert_agrees(analysis, report)
    waits = Waits(report)
    by_rank = sorted(waits.rank, key=lambda op: waits.rank[op])
    sources = [waits.by_event(op) for op in by_rank]
    expected = [None if source is None else waits.rank[source] for source in sources]
    assert analysis.timeline.producers.by_event.to_list() == expected


LARGE: Final = (
    *("h200-backtrace", "h200-bottlenecks", "h200-gpt2-eager", "launch_bound-eager-plain"),
    *("sum_many-loop", "trainstep-torch"),
)
"""Others are of their kinds, and the oracle takes up to 15 s of each: they are long."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.long if each in LARGE else ()) for each in NAMES]
)
def test_every_table_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_agrees(analysed(name), oracle_of(name), oracle_tables_of(name))
