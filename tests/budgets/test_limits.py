"""Which figure a budget names, and which budgets are refused."""

import pytest

from nsysflow.base.errors import UnknownName, WrongBudget
from nsysflow.budgets.figures import figures_of
from nsysflow.budgets.grammar import budget
from nsysflow.budgets.limits import Limit, limits_of, refuse_rules
from tests.compare.handmade import capture, row

FIGURES = figures_of(
    [
        capture(
            row(1, name="gemm", phase="step/forward"),
            row(1, name="relu", phase="step/forward/layer"),
            row(1, name="gemm", phase="step/backward/layer"),
        )
    ]
)


def limits(*texts: str) -> list[Limit]:
    return limits_of([budget(text) for text in texts], FIGURES)


def limit(text: str) -> tuple[str, float]:
    (found,) = limits(text)
    return found.figure.name, found.most


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("step_ms<=5", ("step_ms", 5e6)),
        ("step_us<=5", ("step_ms", 5e3)),
        ("step_ns<=5", ("step_ms", 5)),
        ("idle_pct<5", ("idle_pct", 5)),
        ("sync.idle_behind_us<5", ("sync.idle_behind_ms", 5e3)),
        ("kernel:gemm.us<=5", ("kernel:gemm.ms", 5e3)),
        ("kernel:gemm.count<=5", ("kernel:gemm.count", 5)),
        ("step_us<=1.05*baseline", ("step_ms", 1.05)),
        ("phase:step/forward.kernel_ms<4", ("phase:step/forward.kernel_ms", 4e6)),
        ("phase:forward.kernel_ms<4", ("phase:step/forward.kernel_ms", 4e6)),
        ("phase:forward/layer.kernel_us<4", ("phase:step/forward/layer.kernel_ms", 4e3)),
    ],
)
def test_a_limit_is_in_the_unit_of_its_figure(text: str, wanted: tuple[str, float]) -> None:
    assert limit(text) == wanted


def test_a_name_of_several_phases_is_refused_with_their_paths() -> None:
    with pytest.raises(UnknownName, match=r"2 such phases\. Say phase:step/backward/layer") as no:
        limits("phase:layer.kernel_ms<4")
    assert "phase:step/forward/layer.kernel_ms" in str(no.value)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("stepms<=5", "step_ms"),
        ("idle_ptc<=5", "idle_pct"),
        ("snyc.idle_behind_ms<1", "sync.idle_behind_ms"),
        ("phase:forwrd.kernel_ms<1", "phase:step/forward.kernel_ms"),
        ("kernel:gem.ms<1", "kernel:gemm.ms"),
        ("class:matmull.ms<1", "class:matmul.ms"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_ones(text: str, near: str) -> None:
    with pytest.raises(UnknownName) as refused:
        limits(text)
    assert near in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("step_ms<=5", "step_ms<=6"),
        ("step_ms<=5", "step_ms<5"),
        ("step_ms<=5", "step_us<=6000"),
        ("step_ms<=baseline", "step_ms<=1.05*baseline"),
        ("phase:forward.kernel_ms<4", "phase:step/forward.kernel_ms<5"),
    ],
)
def test_two_limits_of_one_figure_are_refused_with_both(first: str, second: str) -> None:
    with pytest.raises(WrongBudget) as refused:
        limits("idle_pct<5", first, second)
    assert f"{first!r} and {second!r} limit the same figure" in str(refused.value)


def test_a_figure_may_have_a_limit_beside_that_of_the_baseline() -> None:
    assert len(limits("step_ms<=5", "step_ms<=1.05*baseline", "idle_ms<=1", "idle_pct<=1")) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("idle_pct<=100", "always kept"),
        ("idle_pct<120", "always kept"),
        ("step_ms<0", "can never be kept"),
    ],
)
def test_a_limit_that_decides_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(WrongBudget, match=said):
        limits(text)


def test_findings_are_checked_by_their_kinds() -> None:
    refuse_rules([budget("finding:launch-bound=none")], ["launch-bound"])
    with pytest.raises(UnknownName, match="Did you mean launch-bound"):
        refuse_rules([budget("finding:lunch-bound=none")], ["launch-bound"])


def test_one_finding_is_forbidden_once() -> None:
    twice = [budget("finding:launch-bound=none", where) for where in ("a:1", "a:2")]
    with pytest.raises(WrongBudget, match=r"in a:1 and .* in a:2 limit the same"):
        refuse_rules(twice, ["launch-bound"])
