"""With large frames in files, and gaps explained in slices, each table is the same."""

from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.frames.scratch import Scratch
from tests.analyses import EXAMPLES, analysed, few_reports, loaded
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.strategies import traces


def assert_same(trace: nsysflow.Trace, whole: nsysflow.Analysis, scratch: Scratch) -> None:
    sliced = nsysflow.analyze(replace(trace, scratch=scratch), whole.options)
    for name in (each for each, table in TABLES.items() if table.of == "report"):
        of_both = (sliced, whole), (sliced.judged, whole.judged)
        for ours, theirs in of_both:
            assert_frame_equal(getattr(ours, name), getattr(theirs, name), check_exact=True)


@few_reports
def test_a_report_has_the_same_tables(name: str, fast_disk: Path) -> None:
    whole = analysed(name)
    slice_rows = 1 + len(whole.timeline.found_gaps) // 7
    assert_same(loaded(name), whole, Scratch(fast_disk, least_bytes=0, slice_rows=slice_rows))


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(plain=traces(), slice_rows=st.integers(1, 5))
def test_a_random_trace_has_the_same_tables(
    plain: PlainTrace, slice_rows: int, fast_disk: Path
) -> None:
    trace = to_trace(plain)
    scratch = Scratch(fast_disk, least_bytes=0, slice_rows=slice_rows)
    assert_same(trace, nsysflow.analyze(trace), scratch)
