"""Judgement budgets for people, programs and CI."""

import json
from xml.etree import ElementTree as ET

import pytest

from nsysflow.compare.budget_pages import (
    annotations,
    check_json,
    junit_xml,
    margin_text,
    measured_text,
    outcome,
    page,
    sentence,
    value_text,
    verdict_text,
)
from nsysflow.compare.budgets import budget
from nsysflow.compare.judging import Culprit, Judgement, Measured
from tests.compare.handmade import capture, ranks, row, track
from tests.compare.judgements import ALL, CROSSED, FOUND, NOISY, WITHIN, measured

CAPTURE = capture(row(1, 1), name="run")


def shown_of(judged: list[Judgement]) -> list[str]:
    return [*page(judged, [CAPTURE])]


def test_the_page_has_a_row_per_budget_and_ends_with_the_outcome() -> None:
    shown = shown_of(ALL)
    assert shown[0] == "run · NVIDIA H200 · 2 steps"
    assert [line.split()[0] for line in shown[3:7]] == [each.budget.text for each in ALL]
    assert shown[-1] == "crossed: 2 of 4 budgets; too noisy to judge: 1"
    assert shown[-2].startswith("hint: runs differ by more than steps do; give three captures")


def test_columns_are_aligned() -> None:
    head, *rows = shown_of(ALL)[2:7]
    at = head.index("limit")
    assert all(line[at - 2 : at] == "  " and line[at] != " " for line in rows)


def test_budgets_with_the_same_culprit_share_its_page() -> None:
    shown = shown_of([CROSSED, measured("idle_ms<=1", "crossed", 5e6, 1e6)])
    assert "step_ms, idle_ms: most idle time" in shown
    assert sum("train.py:42" in line for line in shown) == 1


def test_names_do_not_control_the_terminal() -> None:
    odd = capture(row(1), name="a\x1b[2J\n::error::b")
    assert next(page([WITHIN], [odd])).startswith("a·[2J·::error::b · ")


def test_three_captures_need_no_hint() -> None:
    captures = [capture(row(1), name=name) for name in "abc"]
    assert not any("hint" in line for line in page([WITHIN], captures))


def test_of_several_ranks_the_page_says_which_is_judged() -> None:
    found = ranks(track(row(1)), track(row(2)))
    assert next(page([WITHIN], [found])) == "run · 2 x NVIDIA H200 · 1 step of the slowest rank"


def test_findings_are_judged_without_steps() -> None:
    window = capture(row(1), step_name=None, steps=[None], kinds=[None])
    assert (
        next(page([Judgement(budget=budget("finding:a=none"), verdict="within")], [window]))
        == "run"
    )


def test_the_document_has_the_outcome_and_each_budget() -> None:
    found = json.loads(check_json(ALL, [CAPTURE]))
    assert found["outcome"] == "crossed"
    assert [each["verdict"] for each in found["budgets"]] == [each.verdict for each in ALL]
    step = found["budgets"][0]
    assert (step["value"], step["limit"], step["margin"], step["unit"]) == (5.6e6, 5e6, -6e5, "ns")
    assert step["lost_at"][0]["source"] == "train.py:42 in step"
    assert found["budgets"][2]["needed"] == 120


def test_an_open_interval_is_valid_json() -> None:
    found = measured("step_ms<=baseline", "too noisy", 1, 1, high=float("inf"))
    assert json.loads(check_json([found], [CAPTURE]))["budgets"][0]["high"] is None


def test_junit_has_a_case_per_budget() -> None:
    (suite,) = ET.fromstring(junit_xml(ALL, [CAPTURE]))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "1")
    kinds = [[child.tag for child in case] for case in suite]
    assert kinds == [["failure"], ["failure"], ["error"], []]
    assert [case.get("name") for case in suite] == [each.budget.text for each in ALL]


def test_junit_holds_names_that_xml_does_not() -> None:
    odd = measured("kernel:a\x00<&\x1b.ms<1", "crossed", 2, 1)
    (suite,) = ET.fromstring(junit_xml([odd], [CAPTURE]))
    assert suite[0].get("name") == "kernel:a\ufffd<&\ufffd.ms<1"


def test_an_annotation_stands_on_the_line_that_costs_most() -> None:
    (error,) = annotations([CROSSED], 1, {"train.py": "src/train.py"}.get)
    assert error.startswith(
        "::error file=src/train.py,line=42,title=nsysflow check%3A step_ms<=5::5.60 ms"
    )
    assert "(12 %25); crossed%0Awaiting in a sync, train.py:42" in error


def test_an_annotation_of_a_file_that_is_not_here_has_no_place() -> None:
    (error,) = annotations([CROSSED], 1, lambda _: None)
    assert error.startswith("::error title=")


def test_what_is_too_noisy_is_a_warning_and_what_is_within_nothing() -> None:
    (warning,) = annotations([NOISY, WITHIN], 1, lambda _: None)
    assert warning.startswith("::warning title=")


@pytest.mark.parametrize(
    ("file", "shown"),
    [("a,b.py", "a%2Cb.py"), ("c:d.py", "c%3Ad.py"), ("e%\r\n.py", "e%25%0D%0A.py")],
)
def test_what_ends_a_property_is_escaped(file: str, shown: str) -> None:
    at = Judgement(
        budget=budget("finding:a=none"),
        verdict="crossed",
        culprits=(Culprit(source="x.py:1", what="w"),),
    )
    (error,) = annotations([at], 1, lambda _: file)
    assert error.startswith(f"::error file={shown},line=1,")


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
def test_a_sentence_has_figure_limit_and_margin(judged: Judgement, said: str) -> None:
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


def only(judged: Judgement) -> Measured:
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
def test_the_outcome_counts_them(judged: list[Judgement], said: str) -> None:
    assert outcome(judged) == said
