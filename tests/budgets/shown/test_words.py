"""What is said of a judged budget."""

import pytest

from nsysflow.budgets.judging import Judged, Measured
from nsysflow.budgets.shown.words import (
    margin_text,
    measured_text,
    outcome,
    sentence,
    value_text,
    verdict_text,
)
from tests.budgets.shown.judgements import CROSSED, FOUND, NOISY, WITHIN, measured


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        (
            CROSSED,
            "5.60 ms (5.50 ms to 5.70 ms), limit 5.00 ms, 600 us over (12 %); crossed",
        ),
        (WITHIN, "8, limit 8, 0 left; within"),
        (
            NOISY,
            "4.9 %, limit 5.0 %, 0.10 points left; too noisy: about 120 steps would tell",
        ),
        (FOUND, "found; crossed"),
    ],
)
def test_a_sentence_has_figure_limit_and_margin(judged: Judged, said: str) -> None:
    assert sentence(judged, 1) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0, "pct", "0 %"),
        (0, "ns", "0"),
        (0, "count", "0"),
        (2.5, "count", "2.50"),
        (589, "count", "589"),
    ],
)
def test_a_value_is_said_in_its_unit(value: float, unit: str, said: str) -> None:
    assert value_text(value, unit) == said  # type: ignore[arg-type]


def only(judged: Judged) -> Measured:
    assert judged.measured is not None
    return judged.measured


def test_a_limit_of_nothing_has_no_share() -> None:
    assert margin_text(only(measured("step_ms<=0", "crossed", 500, 0))) == "500 ns over"


def test_captures_of_both_sides_are_asked_for_beside_a_baseline() -> None:
    noisy = measured(
        "step_ms<=baseline", "too noisy", 1, 1, factor=1.0, counted="run", needed=3, low=None
    )
    assert verdict_text(noisy) == "too noisy: about 3 captures a side would tell"


def test_a_number_that_nobody_records_is_not_asked_for() -> None:
    noisy = measured(
        "step_ms<=baseline", "too noisy", 1, 1, factor=1.0, counted="run", needed=4138, low=None
    )
    assert verdict_text(noisy) == "too noisy: no practical number of captures would tell"


def test_a_figure_on_its_limit_is_too_close() -> None:
    noisy = measured("step_ms<=1", "too noisy", 1, 1)
    assert verdict_text(noisy) == "too noisy: too close to the limit"


def test_of_several_captures_it_says_how_many_have_a_finding() -> None:
    assert measured_text(FOUND, 3) == "found in 1 of 3"


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        ([CROSSED, NOISY, WITHIN], "crossed: 1 of 3 budgets; too noisy to judge: 1"),
        ([CROSSED], "crossed: 1 of 1 budget"),
        ([NOISY, WITHIN], "too noisy to judge: 1 of 2 budgets; none is crossed"),
        ([WITHIN], "within: 1 of 1 budget"),
    ],
)
def test_the_outcome_counts_them(judged: list[Judged], said: str) -> None:
    assert outcome(judged) == said
