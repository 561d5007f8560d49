from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base.errors import CheckError
from nsysflow.base.names import SourceLine
from nsysflow.compare.baseline import baseline_of
from nsysflow.compare.budgets import budget, figures_of, limits_of
from nsysflow.compare.captures import Capture, LoadedCaptures, Row
from nsysflow.compare.judging import Judgement, Measured, culprits_of, judge
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


def measured(found: Judgement) -> Measured:
    assert found.measured is not None
    return found.measured


ONE, THREE = [steps_around(10)], runs_of(9.9, 10, 10.1)
EXACT = [steps_around(10, spread=0)]


@pytest.mark.parametrize(
    ("text", "captures", "verdict"),
    [
        ("step_ms<=9", ONE, "crossed"),
        ("step_us<=9000", ONE, "crossed"),
        ("step_ms<=11", ONE, "within"),
        ("step_ms<=10", ONE, "too noisy"),
        ("step_ms<=9", THREE, "crossed"),
        ("step_ms<=11", THREE, "within"),
        ("step_ms<=10", THREE, "too noisy"),
        # captures that differ are noisier than their steps
        ("step_ms<=11", runs_of(9, 10, 11), "too noisy"),
        ("step_ms<=10", EXACT, "within"),
        ("step_ms<10", EXACT, "crossed"),
    ],
)
def test_captures_are_judged_by_medians(text: str, captures: list[Capture], verdict: str) -> None:
    found = judged(text, captures)
    assert found.verdict == verdict
    assert measured(found).counted == ("run" if len(captures) > 1 else "step")


@pytest.mark.parametrize("captures", [[steps_around(10, 5)], runs_of(10, 10.1)])
def test_too_few_steps_or_captures_are_noisy_and_more_are_asked(captures: list[Capture]) -> None:
    found = judged("step_ms<=20", captures)
    assert found.verdict == "too noisy"
    assert (measured(found).needed or 0) > len(captures)


@given(st.integers(90, 110), st.sampled_from(["<", "<="]))
def test_a_larger_limit_never_makes_it_worse(limit: int, op: str) -> None:
    order = ["crossed", "too noisy", "within"]
    tight, loose = (judged(f"step_ms{op}{each / 10}", ONE).verdict for each in (limit, limit + 1))
    assert order.index(tight) <= order.index(loose)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "crossed"), (1.05, "crossed"), (1.25, "within")]
)
@pytest.mark.parametrize("count", [1, 3])
def test_a_limit_beside_the_baseline_is_a_ratio(count: int, factor: float, verdict: str) -> None:
    new = runs_of(10.9, 11, 11.1)
    found = judged(f"step_ms<={factor}*baseline", new[:count], THREE[:count])
    assert (found.verdict, measured(found).factor) == (verdict, factor)


def test_something_beside_a_baseline_of_nothing_is_crossed() -> None:
    idle = capture(row(*[100] * 40), row(*[50] * 40, part="idle", kind="sync"))
    none = capture(row(*[100] * 40))
    assert judged("sync.idle_behind_ms<=1.5*baseline", [idle], [none]).verdict == "crossed"
    assert judged("sync.idle_behind_ms<=1.5*baseline", [none], [none]).verdict == "within"


@pytest.mark.parametrize(
    ("text", "base", "said"),
    [
        ("step_ms<=baseline", None, "needs a baseline"),
        ("kernel:gemm.ms<=baseline", [capture(row(9, name="relu"))], r"has no kernel:gemm\.ms"),
    ],
)
def test_a_limit_needs_its_baseline(text: str, base: list[Capture] | None, said: str) -> None:
    with pytest.raises(CheckError, match=said):
        judged(text, ONE, base)


LAUNCH = LoadedCaptures(
    rule="launch-bound", title="t", phase=None, source="train.py:4 in f", saving_high_ns=1,
    saving_pct=1.0,
)  # fmt: skip
NO_LAUNCH_BOUND = [budget("finding:launch-bound=none")]


def found_in(*found: bool) -> Judgement:
    captures = [replace(steps_around(10), findings=[LAUNCH] * each) for each in found]
    (judgement,) = judge([], NO_LAUNCH_BOUND, captures, None)
    return judgement


def test_a_finding_is_crossed_only_where_all_captures_have_it() -> None:
    assert found_in(False, False).verdict == "within"
    some, every = found_in(True, False, True), found_in(True)
    assert (some.verdict, some.found_in) == ("too noisy", 2)
    assert (every.verdict, every.culprits[0].line) == ("crossed", SourceLine("train.py", 4, "f"))


def test_findings_that_are_not_there_do_not_pass() -> None:
    with pytest.raises(CheckError, match="no list of findings"):
        judge([], NO_LAUNCH_BOUND, ONE, None)


def test_the_worst_comes_first() -> None:
    texts = ["step_ms<=11", "step_us<=9000", "step_ms<=10", "step_us<=5000"]
    figures = figures_of(ONE)
    limits = [limits_of([budget(text)], figures)[0] for text in texts]
    order = [each.budget.text for each in judge(limits, [], ONE, None)]
    assert order == ["step_us<=5000", "step_us<=9000", "step_ms<=10", "step_ms<=11"]


WORK = row(9_000)
AT_LINE = row(200, part="idle", kind="sync", phase="step", source="a.py:1 in f")
SHORT = row(20, part="idle", kind="sync", phase="step", source="a.py:1 in f")
NOWHERE = row(300, part="idle", kind="host", phase="")
HOST = row(300, part="idle", kind="host", phase="step", source="a.py:2 in f")

WAIT_TEXT = "waiting in a sync in step, a.py:1 in f: 200 ns a step"
HOST_TEXT = "host code in step, a.py:2 in f: 300 ns a step"
NOWHERE_TEXT = "host code: 300 ns a step"


@pytest.mark.parametrize(
    ("rows", "figure", "places"),
    [
        ([AT_LINE, HOST], "step_ms", [HOST_TEXT]),
        ([AT_LINE, HOST], "sync.idle_behind_ms", [WAIT_TEXT]),
        ([AT_LINE, HOST], "kernel:gemm.ms", []),
        # one without a line comes before the largest with one, unless that is little
        ([AT_LINE, NOWHERE], "idle_ms", [NOWHERE_TEXT, WAIT_TEXT]),
        ([SHORT, NOWHERE], "idle_ms", [NOWHERE_TEXT]),
    ],
)
def test_it_is_the_largest_idle_time_there(rows: list[Row], figure: str, places: list[str]) -> None:
    captures = [capture(WORK, *rows)]
    found = culprits_of(figures_of(captures)[figure], captures)
    assert [each.what for each in found] == places
