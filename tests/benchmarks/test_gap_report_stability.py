"""How the difference of two gap reports is counted."""

from math import e
from pathlib import Path

import pytest

from benchmarks.gap_report_stability import changes, noise, program_of, share_pct, shifted_pct
from nsysflow.report.gap_report import Place

BASE = frozenset({"loss,waiting,step (a.py),20", "forward,launching,,5", "(all smaller ones),,,1"})
NEW = frozenset({"forward,launching,,10", "(all smaller ones),,,1"})


def test_a_report_does_not_differ_from_itself() -> None:
    assert share_pct(BASE, BASE) == share_pct(frozenset(), frozenset()) == 0


def test_the_lines_of_both_sides_count() -> None:
    assert share_pct(BASE, NEW) == 100 * 3 / 5


def test_a_change_is_that_of_a_place_whose_figure_changed() -> None:
    assert changes(BASE, NEW) == {"loss,waiting,step (a.py)": -20, "forward,launching": 5}


def test_captures_of_one_program_differ_in_a_number_at_the_end() -> None:
    assert program_of(Path("x/train-base-12.sqlite.xz")) == "train-base"
    assert program_of(Path("train-base.sqlite.xz")) == "train-base"


LOSS, FORWARD = Place("loss", "waiting"), Place("forward", "launching")


def test_equal_captures_have_no_noise() -> None:
    same = [{LOSS: 0.2}, {LOSS: 0.2}]
    assert (noise(same), shifted_pct(same)) == (0, 0)


def test_the_noise_is_that_of_logs_of_rows_that_all_captures_have() -> None:
    shares = [{LOSS: 0.1, FORWARD: 0.1}, {LOSS: 0.1 * e, FORWARD: 0.1}, {LOSS: 0.1 * e**2}]
    assert noise(shares) == pytest.approx(1)


def test_one_of_two_rows_that_differs_by_half_a_figure_does_so_on_half_of_the_scales() -> None:
    assert shifted_pct([{LOSS: 0.1}, {LOSS: 0.1 * 10 ** (0.51 / 3)}]) == 100 / 2 / 2
