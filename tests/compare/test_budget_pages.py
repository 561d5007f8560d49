"""Judgements for people, programs and CI; the reviewed page check.txt holds their wording."""

import json
from xml.etree import ElementTree as ET

import pytest

from nsysflow.compare.budget_pages import annotations, check_json, junit_xml, page, verdict_text
from nsysflow.compare.budgets import budget
from nsysflow.compare.judging import Culprit, Judgement
from tests.compare.handmade import capture, ranks, row, track
from tests.compare.judgements import CROSSED, WITHIN, measured

CAPTURE = capture(row(1, 1), name="run")


def test_the_title_says_of_which_rank_a_step_is() -> None:
    two_ranks = ranks(track(row(1)), track(row(2)))
    title = next(page([WITHIN], [two_ranks]))
    assert title == "run · 2 x NVIDIA H200 · 1 step of the slowest rank"


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
