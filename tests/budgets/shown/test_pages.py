"""The page, the JSON document, JUnit XML and annotations of the same budgets."""

import json
from xml.etree import ElementTree as ET

import pytest

from nsysflow.budgets.culprit import Culprit
from nsysflow.budgets.grammar import budget
from nsysflow.budgets.judging import Judged
from nsysflow.budgets.shown.document import check_json
from nsysflow.budgets.shown.github import annotations
from nsysflow.budgets.shown.junit import junit_xml
from nsysflow.budgets.shown.table import page
from tests.budgets.shown.judgements import ALL, CROSSED, NOISY, WITHIN, measured
from tests.compare.handmade import capture, ranks, row, track

CAPTURE = capture(row(1, 1), name="run")


def shown_of(judged: list[Judged]) -> list[str]:
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
        next(page([Judged(budget=budget("finding:a=none"), verdict="within")], [window])) == "run"
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
    at = Judged(
        budget=budget("finding:a=none"),
        verdict="crossed",
        culprits=(Culprit(source="x.py:1", what="w"),),
    )
    (error,) = annotations([at], 1, lambda _: file)
    assert error.startswith(f"::error file={shown},line=1,")
