"""How the difference of two gap reports is counted."""

from pathlib import Path

from benchmarks.gap_report_stability import changes, program_of, share_pct

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
