"""Parts become one whole, whatever their number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base.errors import Damaged
from nsysflow.engine.part import Part, all_joined, in_pairs, part_of
from tests.engine.works import bug, named


@given(st.lists(st.integers(), min_size=1, max_size=70))
def test_joining_in_pairs_keeps_every_item_in_order(numbers: list[int]) -> None:
    parts = [[each] for each in numbers]
    assert in_pairs(lambda one, other: one + other, parts) == numbers


def test_the_tree_is_as_deep_as_the_logarithm_of_its_parts() -> None:
    depth = in_pairs(lambda one, other: max(one, other) + 1, [0] * 1000)
    assert depth == 10


@given(st.lists(st.integers(0, 200), min_size=1, max_size=20))
def test_what_failed_is_left_out_and_named_by_its_number(items: list[int]) -> None:
    parts = [part_of(named, number, item) for number, item in enumerate(items)]
    whole = all_joined(lambda one, other: one + other, parts)
    bad = [number for number, item in enumerate(items) if item >= 100 and item % 2]
    good = "".join(f"{item}," for number, item in enumerate(items) if number not in bad)
    assert (whole.value or "", sorted(whole.failed)) == (good, bad)
    assert all(isinstance(each, Damaged) for each in whole.failed.values())


def test_a_bug_is_no_answer() -> None:
    with pytest.raises(IndexError):
        part_of(bug, 0, 0)


def test_where_nothing_could_be_done_there_is_no_value() -> None:
    errors = [Part[str](failed={n: Damaged("gone")}) for n in (0, 1)]
    whole = all_joined(lambda one, other: one + other, errors)
    assert (whole.value, sorted(whole.failed)) == (None, [0, 1])
