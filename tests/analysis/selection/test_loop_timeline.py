"""Another loop of a report is judged beside it as if it had been named with --step."""

from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.other_loop import OTHER_LOOP
from nsysflow.analysis.options import Options
from nsysflow.base.errors import SelectionError
from tests.analyses import OF_REPORT, analysed, loaded
from tests.tiny import Row, kernel, launch, opened, trace_of

NAMES = ("train", "roll/out", "eval", "sample a batch", "save")


def many_loops() -> list[Row]:
    """A loop of each name, one after the other, of four steps; the first have most GPU time."""
    rows: list[Row] = []
    at = number = 0
    for name in NAMES:
        for _ in range(4):
            length = 40_000 - 1_000 * NAMES.index(name)
            rows += [opened(at, at + 90_000, name), launch(at + 10, at + 20, number)]
            rows.append(kernel(at + 5_000, at + 5_000 + length, number))
            at, number = at + 100_000, number + 1
    return rows


def without_other_loops(found: Findings) -> Findings:
    """Findings without those of other loops: a loop that is shown beside others names none."""
    valued = tuple(one for one in found.valued if one.finding.rule != OTHER_LOOP)
    return replace(found, valued=valued)


def assert_alike(found: nsysflow.Analysis, alone: nsysflow.Analysis) -> None:
    for name in OF_REPORT:
        assert found.table(name).equals(alone.table(name)), name
        assert found.judged.table(name).equals(alone.judged.table(name)), name
    assert found.found == without_other_loops(alone.found)
    assert found.parts.equals(alone.parts)


def test_a_loop_inside_the_steps_of_a_report_is_as_if_it_was_named() -> None:
    found = analysed("nan_check-sync").of_loop("step/forward")
    assert found.step_name == "step/forward"
    assert_alike(found, nsysflow.analyze(loaded("nan_check-sync"), Options(step="step/forward")))


def test_each_loop_that_run_names_is_judged_by_that_name() -> None:
    whole = nsysflow.analyze(trace_of(*many_loops()))
    loops = whole.run.filter(whole.run["part"] == "loop")["phase"].to_list()
    assert {whole.step_name, *loops} == {*NAMES}
    for step in loops:
        found = whole.of_loop(step)
        assert found.step_name == step
        assert found.judged.view.of_steps
        alone = nsysflow.analyze(trace_of(*many_loops()), replace(whole.options, step=step))
        assert_alike(found, alone)


def test_what_does_not_depend_on_steps_is_not_computed_again() -> None:
    whole = nsysflow.analyze(trace_of(*many_loops()))
    timeline = whole.of_loop("eval").timeline
    assert timeline.attribution is whole.timeline.attribution
    assert timeline.gap_causes is whole.timeline.gap_causes
    assert timeline.events is whole.timeline.events


def test_a_range_that_is_not_there_is_refused() -> None:
    with pytest.raises(SelectionError, match="validation"):
        assert analysed("nan_check-sync").of_loop("validation").steps.is_empty()
