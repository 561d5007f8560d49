"""What each step is: one rule at a time."""

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings

import nsysflow
from nsysflow.analysis.activity import lost_stretches
from nsysflow.analysis.options import Options
from tests.analyses import EXAMPLES, rows_of
from tests.oracle import lost
from tests.oracle.model import Capture, Op, PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.step_groups import step_groups
from tests.oracle.steps import steps
from tests.oracle.strategies import traces
from tests.tiny import PROCESS, Row, analysis_of, call, kernel, launch, opened, plain_of


def step(number: int, *, at: int, busy: int = 900, end: int | None = 0) -> list[Row]:
    """A step that begins at `at` with a launch of 10 ns and a kernel."""
    range_ = opened(at, at + 15 if end == 0 else end, "step")
    return [range_, launch(at, at + 10, number), kernel(at + 10, at + 10 + busy, number)]


def regular(count: int, *, first: int = 0) -> list[Row]:
    """A step every 1000 ns."""
    return [row for n in range(first, first + count) for row in step(n + 1, at=1_000 * n)]


def kinds(*rows: Row, options: Options | None = None) -> list[str]:
    return analysis_of(*rows, options=options).steps["kind"].cast(pl.String).to_list()


def captured(*rows: Row) -> list[str]:
    """The kinds where the process captured a window of its steps."""
    model = plain_of(*rows)
    window = (Capture(PROCESS, "3:2:5", None),)
    trace = to_trace(
        PlainTrace(ops=model.ops, calls=model.calls, ranges=model.ranges, captures=window)
    )
    return nsysflow.analyze(trace).steps["kind"].cast(pl.String).to_list()


@pytest.mark.parametrize(("count", "skipped"), [(3, 2), (4, 2), (5, 0), (6, 1), (7, 2), (20, 2)])
def test_the_first_two_steps_are_start_up_where_five_remain(count: int, skipped: int) -> None:
    assert kinds(*regular(count)) == ["start-up"] * skipped + ["steady"] * (count - skipped)


def test_a_captured_window_has_no_start_up() -> None:
    assert captured(*regular(8)) == ["steady"] * 8


def test_skip_says_how_many_steps_are_start_up() -> None:
    assert kinds(*regular(4), options=Options(skip=3)) == ["start-up"] * 3 + ["steady"]
    assert kinds(*regular(4), options=Options(skip=0)) == ["steady"] * 4


def loading(at: int, ns: int) -> Row:
    return call(at, at + ns, "cuLibraryLoadData")


def test_a_leading_step_that_loads_code_is_start_up() -> None:
    loads = [loading(1_000 * n + 920, 50) for n in (0, 1)]  # in the gap at the end of the step
    assert captured(*regular(8), *loads) == ["start-up"] * 2 + ["steady"] * 6


def test_a_later_step_that_loads_code_is_judged_by_its_length() -> None:
    assert captured(*regular(8), loading(4_920, 50)) == ["steady"] * 8


def test_a_step_that_the_recording_cut_off_is_cut_off() -> None:
    assert captured(*regular(5), *step(6, at=5_000, end=None)) == ["steady"] * 5 + ["cut-off"]


def lost_launches(at: int) -> list[Row]:
    return [launch(at + 20 * n, at + 20 * n + 5, 1_000 + n) for n in range(20)]


def test_a_step_that_lost_its_operations_is_incomplete() -> None:
    rows = [*regular(3), *step(4, at=3_000, end=3_900), *regular(4, first=4)]
    assert captured(*rows, *lost_launches(3_100))[3] == "incomplete"


def test_a_step_that_swallows_one_without_operations_is_incomplete() -> None:
    # the fifth range has launches alone, so that the fourth step lasts until the sixth
    rows = [*regular(4), opened(4_000, 4_900, "step"), *regular(4, first=5)]
    found = captured(*rows, *lost_launches(4_100))
    assert found == ["steady"] * 3 + ["incomplete"] + ["steady"] * 4


def test_single_lost_launches_make_no_step_incomplete() -> None:
    assert "incomplete" not in captured(*regular(6), launch(3_020, 3_030, 99))


def test_a_step_with_a_wrong_time_in_a_graph_is_a_one_off() -> None:
    # its kernel runs into that of the next step, on the same stream
    range_, launched, long = step(4, at=3_000, busy=1_100)
    assert isinstance(long, Op)
    rows = [*regular(3), range_, launched, *regular(4, first=4)]
    assert captured(*rows, long)[3] == "steady"
    assert captured(*rows, replace(long, graph_node=1))[3] == "one-off"


@given(model=traces())
@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
def test_the_oracle_finds_the_same_where_two_lost_launches_are_a_stretch(model: PlainTrace) -> None:
    with pytest.MonkeyPatch.context() as patch:  # random traces are short
        patch.setattr(lost_stretches, "LEAST_LAUNCHES", 2)
        patch.setattr(lost, "IN_A_ROW", 2)
        analysis, report = nsysflow.analyze(to_trace(model)), Report(model)
        for name, rows in (("steps", steps(report)), ("step_groups", step_groups(report))):
            found = getattr(analysis, name)
            assert rows_of(found.to_dicts(), found.columns) == rows_of(rows, found.columns), name
