"""A mistyped name is answered with what it may have meant."""

import pytest

from nsysflow.nearest import near_or_all, nearest

RANGES = ["step", "data", "forward", "backward", "optimizer", "grad_clip"]


@pytest.mark.parametrize(
    ("typed", "meant"), [("fwd", "forward"), ("OPTIMIZR", "optimizer"), ("stpe", "step")]
)
def test_a_mistyped_name_finds_its_neighbour_in_any_case(typed: str, meant: str) -> None:
    assert nearest(typed, RANGES)[0] == meant


def test_the_answer_says_how_many_more_there_are_and_what_shows_them() -> None:
    said = near_or_all("fwd", RANGES, where="--table phases")
    assert said == "Did you mean forward? There are 5 more; --table phases shows all"


def test_where_nothing_is_near_the_first_names_are_listed() -> None:
    assert near_or_all("xyz", ["a", "b"]) == "There are: a, b"
    assert near_or_all("xyz", map(str, range(9))).endswith("6, 7. There is 1 more")


def test_where_nothing_is_known_there_is_no_advice() -> None:
    assert near_or_all("xyz", []) == ""
