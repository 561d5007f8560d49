"""Within, beyond or too noisy to say."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base.errors import CheckError
from nsysflow.base.names import SourceLine
from nsysflow.compare.baseline import baseline_of
from nsysflow.compare.budgets import budget, figures_of, limits_of
from nsysflow.compare.captures import Capture, LoadedCaptures
from nsysflow.compare.judging import Judgement, culprits_of, judge
from tests.compare.handmade import capture, row

MS = 1_000_000
NOISE = (0, 3, -2, 4, -3, 1, -4, 2)
"""Neighbours that alternate: their autocorrelation is low, so that 40 steps are enough."""


def steps_around(ms: float, count: int = 40, spread: float = 0.005) -> Capture:
    """A capture whose steps lie around so many ms, within 2 %."""
    found = [round(ms * MS * (1 + spread * NOISE[at % 8])) for at in range(count)]
    return capture(row(*found))


def runs_of(*ms: float) -> list[Capture]:
    return [replace(steps_around(each), name=f"run{at}") for at, each in enumerate(ms)]


def judged(
    text: str, captures: Sequence[Capture], base: Sequence[Capture] | None = None
) -> Judgement:
    limits = limits_of([budget(text)], figures_of(captures))
    (found,) = judge(limits, [], captures, baseline_of(base) if base else None)
    return found


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("step_ms<=9", "crossed"),
        ("step_ms<=11", "within"),
        ("step_ms<=10", "too noisy"),
        ("step_us<=9000", "crossed"),
    ],
)
def test_one_capture_is_judged_by_its_steps(text: str, verdict: str) -> None:
    found = judged(text, [steps_around(10)])
    assert found.verdict == verdict
    assert found.measured is not None
    assert found.measured.counted == "step"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("step_ms<=9", "crossed"), ("step_ms<=11", "within"), ("step_ms<=10", "too noisy")],
)
def test_three_captures_are_judged_by_their_medians(text: str, verdict: str) -> None:
    found = judged(text, runs_of(9.9, 10, 10.1))
    assert found.verdict == verdict
    assert found.measured is not None
    assert found.measured.counted == "run"


def test_captures_that_differ_are_noisier_than_their_steps() -> None:
    assert judged("step_ms<=11", [steps_around(10)]).verdict == "within"
    assert judged("step_ms<=11", runs_of(9, 10, 11)).verdict == "too noisy"


def test_the_limit_itself_is_allowed_unless_it_is_strict() -> None:
    exact = [steps_around(10, spread=0)]
    assert judged("step_ms<=10", exact).verdict == "within"
    assert judged("step_ms<10", exact).verdict == "crossed"


@pytest.mark.parametrize("captures", [[steps_around(10, 5)], runs_of(10, 10.1)])
def test_too_few_steps_or_captures_are_too_noisy_and_more_are_asked_for(
    captures: list[Capture],
) -> None:
    found = judged("step_ms<=20", captures)
    assert found.verdict == "too noisy"
    assert found.measured is not None
    assert found.measured.needed is not None
    assert found.measured.needed > len(captures)


def test_a_capture_with_the_steps_that_were_asked_for_is_judged() -> None:
    few = judged("step_ms<=10.05", [steps_around(10)])
    assert few.measured is not None
    assert few.measured.needed is not None
    assert judged("step_ms<=10.05", [steps_around(10, few.measured.needed)]).verdict == "within"


@given(st.integers(90, 110), st.sampled_from(["<", "<="]))
def test_a_larger_limit_never_makes_it_worse(limit: int, op: str) -> None:
    order = ["crossed", "too noisy", "within"]
    tight, loose = (
        judged(f"step_ms{op}{each / 10}", [steps_around(10)]).verdict for each in (limit, limit + 1)
    )
    assert order.index(tight) <= order.index(loose)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "crossed"), (1.05, "crossed"), (1.25, "within")]
)
@pytest.mark.parametrize("count", [1, 3])
def test_a_limit_beside_the_baseline_is_of_the_ratio(
    count: int, factor: float, verdict: str
) -> None:
    base, new = runs_of(9.9, 10, 10.1), runs_of(10.9, 11, 11.1)
    found = judged(f"step_ms<={factor}*baseline", new[:count], base[:count])
    assert found.verdict == verdict
    assert found.measured is not None
    assert found.measured.factor == factor


def test_a_program_is_not_worse_than_itself() -> None:
    runs = runs_of(9.9, 10, 10.1)
    assert judged("step_ms<=1.05*baseline", runs, runs).verdict == "within"
    assert judged("idle_ms<=baseline", runs, runs).verdict == "within"


def test_one_capture_beside_three_is_too_noisy_and_three_a_side_are_asked_for() -> None:
    found = judged("step_ms<=1.5*baseline", [steps_around(10)], runs_of(9.9, 10, 10.1))
    assert found.verdict == "too noisy"
    assert found.measured is not None
    assert (found.measured.counted, found.measured.needed) == ("run", 3)


def test_something_beside_a_baseline_of_nothing_is_crossed() -> None:
    idle = capture(row(*[100] * 40), row(*[50] * 40, part="idle", kind="sync"))
    none = capture(row(*[100] * 40))
    assert judged("sync.idle_behind_ms<=1.5*baseline", [idle], [none]).verdict == "crossed"
    assert judged("sync.idle_behind_ms<=1.5*baseline", [none], [none]).verdict == "within"


def test_a_limit_of_the_baseline_needs_one() -> None:
    with pytest.raises(CheckError, match="needs a baseline"):
        judged("step_ms<=baseline", [steps_around(10)])


def test_a_figure_that_the_baseline_lacks_is_refused() -> None:
    other = capture(row(*[100] * 40, name="relu"))
    with pytest.raises(CheckError, match=r"the baseline run has no kernel:gemm\.ms"):
        judged("kernel:gemm.ms<=baseline", [steps_around(10)], [other])


def found_in(*found: bool) -> Judgement:
    launch = LoadedCaptures(
        rule="launch-bound",
        title="t",
        phase=None,
        source="train.py:4 in f",
        saving_high_ns=1,
        saving_pct=1.0,
    )
    captures = [replace(steps_around(10), findings=[launch] * each) for each in found]
    (judgement,) = judge([], [budget("finding:launch-bound=none")], captures, None)
    return judgement


def test_a_finding_is_crossed_only_where_all_captures_have_it() -> None:
    assert found_in(True).verdict == "crossed"
    assert found_in(False, False).verdict == "within"
    assert found_in(True, False, True).verdict == "too noisy"
    assert found_in(True, False, True).found_in == 2
    assert found_in(True).culprits[0].line == SourceLine("train.py", 4, "f")


def test_findings_that_are_not_there_do_not_pass() -> None:
    with pytest.raises(CheckError, match="no list of findings"):
        judge([], [budget("finding:launch-bound=none")], [steps_around(10)], None)


def test_the_worst_comes_first() -> None:
    texts = ["step_ms<=11", "step_us<=9000", "step_ms<=10", "step_us<=5000"]
    captures = [steps_around(10)]
    figures = figures_of(captures)
    limits = [limits_of([budget(text)], figures)[0] for text in texts]
    order = [each.budget.text for each in judge(limits, [], captures, None)]
    assert order == ["step_us<=5000", "step_us<=9000", "step_ms<=10", "step_ms<=11"]


def places(name: str, *captures: Capture) -> list[tuple[str | None, str]]:
    figure = figures_of(captures)[name]
    return [(each.source, each.what) for each in culprits_of(figure, captures)]


def idle(*ns: int, kind: str = "sync", **other: str | None) -> Capture:
    return capture(row(1, 1), row(*ns, part="idle", kind=kind, phase="step/data", **other))


def test_it_is_the_most_idle_time_at_a_line() -> None:
    found = capture(
        row(9_000),
        row(200, part="idle", kind="sync", phase="step", source="a.py:1 in f"),
        row(300, part="idle", kind="host", phase="step", source="a.py:2 in f"),
    )
    assert places("step_ms", found) == [
        ("a.py:2 in f", "host code in step, a.py:2 in f: 300 ns a step")
    ]


def test_a_place_without_a_line_comes_before_the_largest_with_one() -> None:
    found = capture(
        row(9_000),
        row(200, part="idle", kind="sync", phase="step", source="a.py:1 in f"),
        row(300, part="idle", kind="host", phase=""),
    )
    assert places("idle_ms", found) == [
        (None, "host code: 300 ns a step"),
        ("a.py:1 in f", "waiting in a sync in step, a.py:1 in f: 200 ns a step"),
    ]


def test_a_line_that_costs_little_is_not_named() -> None:
    found = capture(
        row(20, part="idle", kind="sync", phase="step", source="a.py:1 in f"),
        row(300, part="idle", kind="host", phase=""),
    )
    assert places("idle_ms", found) == [(None, "host code: 300 ns a step")]


def test_it_is_of_what_the_budget_limits() -> None:
    found = capture(
        row(9_000),
        row(200, part="idle", kind="sync", phase="step", source="a.py:1 in f"),
        row(300, part="idle", kind="host", phase="step", source="a.py:2 in f"),
    )
    assert [source for source, _ in places("sync.idle_behind_ms", found)] == ["a.py:1 in f"]
    assert places("kernel:gemm.ms", found) == []


def test_it_is_the_mean_over_all_captures() -> None:
    captures = [idle(100, 200, source="a.py:1"), idle(300, 400, source="a.py:1")]
    assert places("idle_ms", *captures) == [
        ("a.py:1", "waiting in a sync in step/data, a.py:1: 250 ns a step")
    ]
