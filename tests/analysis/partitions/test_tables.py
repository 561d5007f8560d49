"""A report in partitions has the rows of the undivided one, wherever it is cut."""

import random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.partitions.outline import Outline
from nsysflow.analysis.partitions.tables import MERGED, partitions, tables_of
from tests.analyses import EXAMPLES, NAMES, analysed, loaded
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.strategies import traces


def assert_undivided(trace: nsysflow.Trace, whole: nsysflow.Analysis, cuts: list[int]) -> None:
    parts = partitions(Outline.of(trace), sorted(cuts), Options(), whole.timeline.steps)
    found = tables_of(parts, trace.report)
    for name in MERGED:
        assert_frame_equal(found[name], getattr(whole, name))


@given(traces(), st.data())
@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
def test_a_random_trace_has_the_same_rows_wherever_it_is_cut(
    model: PlainTrace, data: st.DataObject
) -> None:
    trace = to_trace(model)
    whole = nsysflow.analyze(trace)
    starts = whole.timeline.events.ops["start_ns"]
    assume(len(starts) > 0)
    instants = st.integers(int(starts.min()) - 1, int(starts.max()) + 1)
    assert_undivided(trace, whole, data.draw(st.lists(instants, min_size=1, max_size=4)))


@pytest.mark.parametrize("name", NAMES)
def test_a_real_report_has_the_same_rows_wherever_it_is_cut(name: str) -> None:
    whole = analysed(name)
    starts = whole.timeline.events.ops["start_ns"]
    if starts.is_empty():
        return
    drawn = random.Random(name)
    cuts = [drawn.randint(int(starts.min()), int(starts.max())) for _ in range(3)]
    assert_undivided(loaded(name), whole, cuts)
