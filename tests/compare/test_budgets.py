"""Budgets as they are typed, and what they limit."""

import json

import pytest

from nsysflow.analysis.options import Options
from nsysflow.base.errors import CheckError, UnknownName, WrongBudget
from nsysflow.compare.budgets import Limit, budget, figures_of, limits_of, ranks_of, refuse_rules
from nsysflow.compare.captures import Capture
from nsysflow.compare.document import capture_of
from nsysflow.report.document import compared_json
from nsysflow.runs.analyze import analyze_reports
from tests.compare.handmade import capture, ranks, row, track
from tests.oracle.budgets import figures_of_document
from tests.reports import PACKED


@pytest.mark.parametrize(
    ("text", "name", "strict", "limit", "of_baseline"),
    [
        ("step_ms<=5", "step_ms", False, 5.0, False),
        ("idle_pct<5", "idle_pct", True, 5.0, False),
        (" step_ms  <=  1.5e1 ", "step_ms", False, 15.0, False),
        ("step_us<=.5", "step_us", False, 0.5, False),
        ("kernel:void f<3>(int).ms<=2", "kernel:void f<3>(int).ms", False, 2.0, False),
        ("kernel:a<=b.count<4", "kernel:a<=b.count", True, 4.0, False),
        ("step_ms<=baseline", "step_ms", False, 1.0, True),
        ("step_ms<=baseline*1.05", "step_ms", False, 1.05, True),
        ("step_ms < 1.05 * baseline", "step_ms", True, 1.05, True),
    ],
)
def test_a_budget_is_a_name_and_a_limit(
    text: str, name: str, strict: bool, limit: float, of_baseline: bool
) -> None:
    found = budget(text)
    assert (found.name, found.strict, found.limit) == (name, strict, limit)
    assert found.of_baseline == of_baseline
    assert found.rule is None


def test_a_finding_can_be_forbidden() -> None:
    assert budget("finding:launch-bound=none").rule == "launch-bound"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step_ms>=5", "takes <= or <"),
        ("step_ms==5", "takes <= or <"),
        ("step_ms=<5", "takes <= or <"),
        ("step_ms<=5ms", "The unit is in the name"),
        ("idle_pct<5%", "The unit is in the name"),
        ("step_ms", "is not NAME<=LIMIT"),
        ("step_ms<=", "is not NAME<=LIMIT"),
        ("<=5", "is not NAME<=LIMIT"),
        ("", "is not NAME<=LIMIT"),
        ("step_ms<=five", "is not NAME<=LIMIT"),
        ("step_ms<=-1", "is not NAME<=LIMIT"),
        ("step_ms<=nan", "is not NAME<=LIMIT"),
        ("step_ms<=inf", "is not NAME<=LIMIT"),
        ("step_ms<=1e999", "is not NAME<=LIMIT"),
        ("step_ms<=0*baseline", "one factor of the baseline, above 0"),
        ("step_ms<=1e999*baseline", "one factor of the baseline, above 0"),
        ("step_ms<=2*baseline*3", "one factor of the baseline, above 0"),
        ("finding:launch-bound<=0", "is not finding:RULE=none"),
        ("finding:=none", "is not finding:RULE=none"),
    ],
)
def test_what_is_no_budget_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(WrongBudget) as refused:
        budget(text)
    assert said in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_refusal_names_the_file_and_line() -> None:
    with pytest.raises(WrongBudget, match=r"'step_ms<=five' in nsysflow\.toml:3 is not"):
        budget("step_ms<=five", "nsysflow.toml:3")


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


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("step_ms<=5", ("step_ms", 5e6)),
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
    (found,) = limits(text)
    assert (found.figure.name, found.most) == wanted


def test_a_name_of_several_phases_is_refused_with_their_paths() -> None:
    with pytest.raises(UnknownName, match=r"2 such phases\. Say phase:step/backward/layer") as no:
        limits("phase:layer.kernel_ms<4")
    assert "phase:step/forward/layer.kernel_ms" in str(no.value)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("stepms<=5", "step_ms"),
        ("phase:forwrd.kernel_ms<1", "phase:step/forward.kernel_ms"),
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


def values(name: str, found: Capture) -> list[float]:
    return figures_of([found])[name].values(found)


def test_a_step_is_that_of_the_slowest_rank() -> None:
    found = ranks(track(row(10), row(90, part="idle", kind="sync")), track(row(150)))
    assert values("step_ms", found) == [150]
    assert values("sync.idle_behind_ms", found) == [0]


def test_a_kernel_that_the_slowest_rank_lacks_is_that_of_another() -> None:
    found = ranks(track(row(10, name="embed")), track(row(150)))
    assert values("kernel:embed.ms", found) == [10]


def test_a_gpu_without_steps_is_no_rank() -> None:
    window = track(row(10_000), step_name=None, steps=[None], kinds=[None], process=None)
    found = ranks(window, track(row(150)))
    assert values("step_ms", found) == [150]


def test_a_step_that_takes_no_time_has_no_shares() -> None:
    assert values("idle_pct", capture(row(0, 4), row(0, 4, part="idle"))) == [0, 50]


def test_a_capture_without_steps_is_refused_with_what_to_type() -> None:
    window = capture(row(10_000), step_name=None, steps=[None], kinds=[None])
    with pytest.raises(CheckError, match="--step NAME"):
        ranks_of(window)


@pytest.mark.parametrize(
    "names",
    [
        ["nan_check-sync"],
        ["dataload-async"],
        ["trainstep-torch"],
        ["ddp-bucketed-rank0", "ddp-bucketed-rank1"],
    ],
)
def test_the_oracle_has_the_same_figures(names: list[str]) -> None:
    tables = ("steps", "step_parts")
    text = compared_json(
        analyze_reports([PACKED[each] for each in names], Options(), tables=tables)
    )
    found = capture_of(text.encode(), names[0], names[0])
    figures = figures_of([found])
    assert {each: figure.values(found) for each, figure in figures.items()} == figures_of_document(
        json.loads(text)
    )
