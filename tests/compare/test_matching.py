"""Which rows are the same thing."""

from dataclasses import replace

from nsysflow.compare.matching import matched
from nsysflow.compare.sides import Key

WAIT = Key(
    part="idle", kind="sync", name="cudaStreamSynchronize", grid="", phase="step", source="", via=""
)


def at(source: str, via: str = "") -> Key:
    return replace(WAIT, source=source, via=via)


def test_equal_rows_belong_together() -> None:
    assert matched([WAIT], [WAIT]) == [(WAIT, WAIT)]


def test_a_line_that_moved_inside_its_function_is_the_same_wait() -> None:
    before, after = at("train.py:42 in step"), at("train.py:45 in step")
    assert matched([before], [after]) == [(before, after)]


def test_a_line_of_another_function_is_another_wait() -> None:
    before, after = at("train.py:42 in step"), at("train.py:42 in log")
    assert matched([before], [after]) == [(before, None), (None, after)]


def test_a_function_that_moved_to_another_file_is_the_same() -> None:
    before, after = at("train.py:42 in step"), at("loop/steps.py:7 in step")
    assert matched([before], [after]) == [(before, after)]


def test_a_function_of_the_same_file_comes_before_one_of_another_file() -> None:
    before = at("train.py:42 in step")
    here, there = at("train.py:99 in step"), at("a.py:1 in step")
    assert matched([before], [there, here]) == [(before, here), (None, there)]


def test_several_lines_of_a_function_go_in_their_order() -> None:
    first, second = at("train.py:9 in step"), at("train.py:10 in step")
    later, latest = at("train.py:12 in step"), at("train.py:100 in step")
    assert matched([second, first], [latest, later]) == [(second, latest), (first, later)]


def test_a_line_that_stayed_is_not_taken_for_one_that_moved() -> None:
    stays, goes, comes = (at(f"train.py:{line} in step") for line in (5, 7, 6))
    assert matched([stays, goes], [comes, stays]) == [(stays, stays), (goes, comes)]


def test_a_wait_without_a_line_has_no_other_that_is_the_same() -> None:
    other = replace(WAIT, phase="step/log")
    assert matched([WAIT], [other]) == [(WAIT, None), (None, other)]


def test_a_line_of_the_framework_may_move_too() -> None:
    before = at("train.py:42 in step", via="trainer.py:10 in inner")
    after = at("train.py:45 in step", via="trainer.py:30 in inner")
    assert matched([before], [after]) == [(before, after)]
