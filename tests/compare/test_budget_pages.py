"""Judgements for people, programs and CI; the reviewed page check.txt holds their wording."""

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
    value_text,
    verdict_text,
)
from nsysflow.compare.budgets import Unit, budget
from nsysflow.compare.captures import Capture
from nsysflow.compare.judging import Culprit, Judgement
from tests.compare.handmade import capture, ranks, row, track
from tests.compare.judgements import CROSSED, FOUND, NOISY, WITHIN, measured

CAPTURE = capture(row(1, 1), name="run")
ODD_NAME = capture(row(1), name="a\x1b[2J\n::error::b")
TWO_RANKS = ranks(track(row(1)), track(row(2)))
WINDOW = capture(row(1), step_name=None, steps=[None], kinds=[None])
NO_FINDING = Judgement(budget=budget("finding:a=none"), verdict="within")


@pytest.mark.parametrize(
    ("judged", "found", "title"),
    [
        (WITHIN, ODD_NAME, "a·[2J·::error::b · NVIDIA H200 · 1 step"),
        (WITHIN, TWO_RANKS, "run · 2 x NVIDIA H200 · 1 step of the slowest rank"),
        (NO_FINDING, WINDOW, "run"),
    ],
)
def test_the_page_says_what_was_judged(judged: Judgement, found: Capture, title: str) -> None:
    assert next(page([judged], [found])) == title


def test_three_captures_need_no_hint() -> None:
    captures = [capture(row(1), name=name) for name in "abc"]
    assert not any("hint" in line for line in page([WITHIN], captures))


def test_an_open_interval_is_valid_json() -> None:
    found = measured("step_ms<=baseline", "too noisy", 1, 1, high=float("inf"))
    assert json.loads(check_json([found], [CAPTURE]))["budgets"][0]["high"] is None


def test_junit_holds_names_that_xml_does_not() -> None:
    odd = measured("kernel:a\x00<&\x1b.ms<1", "crossed", 2, 1)
    (suite,) = ET.fromstring(junit_xml([odd], [CAPTURE]))
    assert suite[0].get("name") == "kernel:a\ufffd<&\ufffd.ms<1"


def test_an_annotation_of_a_file_that_is_not_here_has_no_place() -> None:
    (error,) = annotations([CROSSED], 1, lambda _: None)
    assert error.startswith("::error title=")


@pytest.mark.parametrize(
    ("file", "shown"),
    [("a,b.py", "a%2Cb.py"), ("c:d.py", "c%3Ad.py"), ("e%\r\n.py", "e%25%0D%0A.py")],
)
def test_what_ends_a_property_is_escaped(file: str, shown: str) -> None:
    culprit = Culprit(source="x.py:1", what="w")
    at = Judgement(budget=budget("finding:a=none"), verdict="crossed", culprits=(culprit,))
    (error,) = annotations([at], 1, lambda _: file)
    assert error.startswith(f"::error file={shown},line=1,")


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(0, "pct", "0 %"), (0, "ns", "0"), (0, "count", "0"), (2.5, "count", "2.50")],
)
def test_a_value_is_said_in_its_unit(value: float, unit: Unit, said: str) -> None:
    assert value_text(value, unit) == said


def test_a_limit_of_nothing_has_no_share() -> None:
    assert margin_text(measured("step_ms<=0", "crossed", 500, 0).measured) == "500 ns over"


BESIDE_A_BASELINE = {"factor": 1.0, "counted": "run", "low": None}


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        (3, "too noisy: about 3 captures a side would tell"),
        (4138, "too noisy: no practical number of captures would tell"),
        (None, "too noisy: too close to the limit"),
    ],
)
def test_a_noisy_figure_says_what_would_tell(needed: int | None, said: str) -> None:
    noisy = measured("step_ms<=baseline", "too noisy", 1, 1, needed=needed, **BESIDE_A_BASELINE)
    assert verdict_text(noisy) == said


def test_of_several_captures_it_says_how_many_have_a_finding() -> None:
    assert measured_text(FOUND, 3) == "found in 1 of 3"


@pytest.mark.parametrize(
    ("judged", "said"),
    [
        ([CROSSED], "crossed: 1 of 1 budget"),
        ([NOISY, WITHIN], "too noisy to judge: 1 of 2 budgets; none is crossed"),
        ([WITHIN], "within: 1 of 1 budget"),
    ],
)
def test_the_outcome_counts_them(judged: list[Judgement], said: str) -> None:
    assert outcome(judged) == said
