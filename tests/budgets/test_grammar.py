"""What is a budget, and what is none."""

import pytest

from nsysflow.base.errors import WrongBudget
from nsysflow.budgets.grammar import budget


@pytest.mark.parametrize(
    ("text", "name", "strict", "limit"),
    [
        ("step_ms<=5", "step_ms", False, 5.0),
        ("idle_pct<5", "idle_pct", True, 5.0),
        (" step_ms  <=  1.5e1 ", "step_ms", False, 15.0),
        ("step_us<=.5", "step_us", False, 0.5),
        ("kernel:void f<3>(int).ms<=2", "kernel:void f<3>(int).ms", False, 2.0),
        ("kernel:a<=b.count<4", "kernel:a<=b.count", True, 4.0),
    ],
)
def test_a_budget_is_a_name_and_a_limit(text: str, name: str, strict: bool, limit: float) -> None:
    found = budget(text)
    assert (found.name, found.strict, found.limit) == (name, strict, limit)
    assert not found.of_baseline
    assert found.rule is None


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("step_ms<=baseline", 1.0),
        ("step_ms<=1.05*baseline", 1.05),
        ("step_ms<=baseline*1.05", 1.05),
        ("step_ms <= 1.05 * baseline", 1.05),
    ],
)
def test_a_limit_can_be_a_factor_of_the_baseline(text: str, factor: float) -> None:
    found = budget(text)
    assert (found.limit, found.of_baseline) == (factor, True)


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
