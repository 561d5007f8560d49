"""The steps that are judged, another loop in their place, and the schemas of what views hold."""

from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.other_loop import OTHER_LOOP
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.schema import CAPTURES
from nsysflow.analysis.selection.view import judged_view
from nsysflow.base.errors import SelectionError
from tests.analyses import CAUSE_COLUMNS, EXAMPLES, OF_REPORT, PARTS, analysed, loaded
from tests.breaking import MIDDLE_THIRD_GONE, broken
from tests.oracle.account_table import accounting
from tests.oracle.accounting import Keep
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.run import judged
from tests.oracle.strategies import several, traces
from tests.tiny import Row, analysis_of, call, kernel, launch, opened

COLUMNS = ["device", "start_ns", "end_ns", "window_ns", *PARTS, *CAUSE_COLUMNS]


def numbers(analysis: nsysflow.Analysis) -> list[int]:
    return analysis.judged.steps["step"].to_list()


def gpt2(*steps: StepPart, **more: Any) -> nsysflow.Analysis:
    """Steps 3 and 4 of this report are one-offs."""
    return nsysflow.analyze(loaded("h200-gpt2-eager"), Options(steps=steps, **more))


def test_the_steady_steps_are_judged() -> None:
    analysis = gpt2()
    assert numbers(analysis) == [0, 1, 2]
    assert analysis.judged.view.of_steps
    assert analysis.judged.view.counts["steps"].to_list() == [3]
    (row,) = analysis.judged.accounting.to_dicts()
    assert row["window_ns"] == analysis.steps.filter("steady")["duration_ns"].sum()
    assert 71 < 100 * row["compute_ns"] / row["window_ns"] < 73


def test_steps_that_are_asked_for_are_judged_steady_or_not() -> None:
    assert numbers(gpt2(StepPart(2))) == [2, 3]  # the last one lacks its tail
    assert numbers(gpt2(StepPart(0, 2), StepPart(3, 4))) == [0, 1, 3]
    assert numbers(gpt2(StepPart(3, 4, out=True))) == [0, 1, 2]
    assert numbers(gpt2(StepPart(0, 3), StepPart(1, 2, out=True))) == [0, 2]


def test_without_steps_or_on_request_the_whole_selection_is_judged() -> None:
    trace = loaded("launch_bound-eager")  # equal launches, of which none begins a step
    bare = nsysflow.analyze(replace(trace, ranges=trace.ranges.clear()))
    assert bare.judged.view.counts.is_empty()
    for analysis in (bare, gpt2(whole=True)):
        assert not analysis.judged.view.of_steps
        assert analysis.judged.accounting.equals(analysis.accounting)


def test_of_a_stretch_of_time_the_steps_in_it_as_a_whole_are_judged() -> None:
    steps = analysed("h200-gpt2-eager").steps
    from_ns, to_ns = steps["start_ns"][1] - 5, steps["end_ns"][1] + 5
    assert numbers(gpt2(from_ns=from_ns, to_ns=to_ns)) == [1]
    cut = gpt2(from_ns=from_ns + 10, to_ns=to_ns)
    assert not cut.judged.view.of_steps
    assert cut.judged.accounting.equals(cut.accounting)


def test_a_process_that_captured_a_window_of_its_steps_skips_none_of_them() -> None:
    trace = loaded("h200-gpu-metrics")
    (process,) = trace.calls["process"].unique()

    def steady(by: int, skip: int | None = None) -> list[bool]:
        captured = pl.DataFrame([(by, "3:2:5", None)], schema=CAPTURES, orient="row")
        steps = nsysflow.analyze(replace(trace, captures=captured), Options(skip=skip)).steps
        return steps["steady"].to_list()

    # the last one lacks its tail
    assert steady(process) == [True] * 11 + [False]
    assert steady(process + 1) == [False] * 2 + [True] * 9 + [False]
    assert steady(process, skip=1) == [False] + [True] * 10 + [False]


def test_incomplete_steps_are_never_judged(tmp_path: Path) -> None:
    analysis = nsysflow.analyze(broken(tmp_path, "h200-ddp-rank0", MIDDLE_THIRD_GONE))
    kinds = dict(analysis.steps.select("step", pl.col("kind").cast(pl.String)).rows())
    lost = [number for number, kind in kinds.items() if kind == "incomplete"]
    assert lost
    assert not {*numbers(analysis)} & {*lost}


@pytest.mark.parametrize(
    ("steps", "typed"),
    [
        ((StepPart(90, 95),), "--steps 90:95"),
        ((StepPart(90),), "--steps 90:"),
        ((StepPart(3, 4), StepPart(3, 4, out=True)), "--steps 3 --steps '!3'"),
        ((StepPart(0, None, out=True),), "--steps '!0:'"),
    ],
)
def test_no_steps_are_refused_as_they_were_typed(steps: tuple[StepPart, ...], typed: str) -> None:
    with pytest.raises(SelectionError, match=r"has 5 steps, 0 to 4: none of them is in") as refused:
        _ = gpt2(*steps).judged.accounting
    assert typed in refused.value.seen
    assert refused.value.advice == "Choose some of them, e.g. --steps 0:5"


def test_of_a_report_without_steps_none_can_be_chosen() -> None:
    options = Options(steps=(StepPart(0, 1),))
    with pytest.raises(SelectionError, match="has no steps to choose from"):
        _ = analysis_of(launch(0, 5, 1), kernel(7, 9, 1), options=options).accounting


TAKEN = st.sampled_from((None, {0}, {1, 2}, {0, 3}))


@given(several(traces()), TAKEN, st.sampled_from((None, "step", "a")))
@settings(max_examples=EXAMPLES // 2, suppress_health_check=list(HealthCheck))
def test_what_is_judged_of_any_trace_is_what_the_oracle_judges(
    model: PlainTrace, taken: set[int] | None, step: str | None
) -> None:
    report = Report(model)
    parts = tuple(StepPart(number, number + 1) for number in sorted(taken or ()))
    analysis = nsysflow.analyze(to_trace(model), Options(step=step, steps=parts))
    try:
        found = analysis.judged.accounting
    except SelectionError:
        return
    keep: Keep = judged(report, None, step, taken)
    if not keep:
        assert found.equals(analysis.accounting)
        return
    expected = [row for row in accounting(report, keep) if row["device"] in keep]
    assert found.select(COLUMNS).to_dicts() == [{c: row[c] for c in COLUMNS} for row in expected]


def annotations(kind: type) -> Iterator[tuple[str, Any]]:
    """The name and the type of each property and field of a class."""
    if is_dataclass(kind):
        yield from get_type_hints(kind, include_extras=True).items()
    for name in dir(kind):
        piece = getattr(kind, name)
        once = isinstance(piece, computed_once)
        compute = piece.compute if once else getattr(piece, "fget", None)
        if compute is not None:
            yield name, get_type_hints(compute, include_extras=True)["return"]


def frames(value: Any, kind: object) -> Iterator[tuple[pl.Schema, pl.Schema]]:
    """The schema of each frame of `value`, and the one that its type names."""
    if get_origin(kind) is dict:
        for part in value.values():
            yield from frames(part, get_args(kind)[1])
    elif get_origin(kind) is Annotated and value is not None:
        yield value.schema, get_args(kind)[1]


@pytest.mark.parametrize("name", ["h200-hf-trainer", "h200-graph-level", "h200-ddp-rank0"])
def test_frames_have_the_schemas_of_their_types(name: str) -> None:
    analysis = analysed(name)
    timeline, matched = analysis.timeline, Ranks.of([digest(analysis)]).matched
    judged = judged_view(timeline)
    checked = 0
    owners = (timeline, timeline.events, timeline.gap_causes, timeline.open_ranges, matched)
    for owner in (*owners, timeline.attribution, judged, judged.without_unwaited):
        for piece, kind in annotations(type(owner)):
            for schema, named in frames(getattr(owner, piece), kind):
                assert [*schema.items()] == [*named.items()], f"{type(owner).__name__}.{piece}"
                checked += 1
    assert checked > 60


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
    """Those are judged whose names are written otherwise in a path or a command; else all are
    alike."""
    whole = analysis_of(*many_loops())
    loops = whole.run.filter(whole.run["part"] == "loop")["phase"].to_list()
    assert {whole.step_name, *loops} == {*NAMES}
    for step in ("roll/out", "sample a batch"):
        found = whole.of_loop(step)
        assert found.step_name == step
        assert found.judged.view.of_steps
        options = replace(whole.options, step=step)
        assert_alike(found, analysis_of(*many_loops(), options=options))


def test_what_does_not_depend_on_steps_is_not_computed_again() -> None:
    whole = analysis_of(*many_loops())
    for name in ("attribution", "gap_causes", "events"):
        assert getattr(whole.of_loop("eval").timeline, name) is getattr(whole.timeline, name)


def test_a_range_that_is_not_there_is_refused() -> None:
    with pytest.raises(SelectionError, match="validation"):
        assert analysed("nan_check-sync").of_loop("validation").steps.is_empty()


STALL = (
    *(launch(0, 10, 1), kernel(10, 1_000, 1), call(20, 5_000, "cudaDeviceSynchronize")),
    *(launch(5_100, 5_200, 2), kernel(5_300, 6_000, 2)),
)


def test_a_trace_without_rows_has_no_lanes_and_a_kernel_without_a_name_has_a_class() -> None:
    tracks = analysis_of().tracks
    assert tracks.lanes.is_empty()
    assert tracks.gaps.is_empty()
    nameless = replace(kernel(6, 9, 1), name=None, short_name=None)  # type: ignore[arg-type]
    assert analysis_of(launch(0, 5, 1), nameless).tracks.operations["class"].to_list() == ["other"]


def test_what_is_selected_does_not_change_the_picture() -> None:
    some = Options(), Options(to_ns=1_500)
    whole, part = (analysis_of(*STALL, options=options).tracks for options in some)
    assert whole.gaps.equals(part.gaps)
    assert whole.operations.equals(part.operations)
