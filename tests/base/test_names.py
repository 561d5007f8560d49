from pathlib import Path

import pytest

from nsysflow.base.names import (
    SourceLine,
    distinct_names,
    has_rank,
    near_or_all,
    nearest,
    without_rank,
)

RANGES = ["step", "data", "forward", "backward", "optimizer", "grad_clip"]


@pytest.mark.parametrize(
    ("typed", "meant"), [("fwd", "forward"), ("OPTIMIZR", "optimizer"), ("stpe", "step")]
)
def test_a_mistyped_name_finds_its_neighbour_in_any_case(typed: str, meant: str) -> None:
    assert nearest(typed, RANGES)[0] == meant


@pytest.mark.parametrize(
    ("typed", "known", "said"),
    [
        ("fwd", RANGES, "Did you mean forward? There are 5 more; --table phases shows all"),
        ("xyz", ["a", "b"], "There are: a, b"),
        ("x", [*"123456789"], "There are: 1, 2, 3, 4, 5, 6, 7, 8. There is 1 more; --table phases"),
        ("xyz", [], ""),
    ],
)
def test_the_answer_is_the_nearest_name_or_the_first_ones(
    typed: str, known: list[str], said: str
) -> None:
    assert near_or_all(typed, known, where="--table phases").startswith(said)


@pytest.mark.parametrize(
    ("name", "common"),
    [("ddp-rank0", "ddp"), ("run_rank_12.sqlite", "run.sqlite"), ("Rank3-a", "-a")],
)
def test_ranks_of_a_run_have_a_name_in_common(name: str, common: str) -> None:
    assert has_rank(name)
    assert without_rank(name) == common


def test_a_name_without_a_rank_stays() -> None:
    assert not has_rank("frank-train")
    assert without_rank("frank-train") == "frank-train"


def test_nothing_has_no_names() -> None:
    assert distinct_names([], []) == []


def test_names_of_one_file_stay_as_they_are_where_nothing_tells_them_apart() -> None:
    same = [Path("/a/x.sqlite")] * 2
    assert len(set(distinct_names(["x", "x"], same))) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("train.py:42 in step", SourceLine("train.py", 42, "step")),
        ("pkg/train.py:42", SourceLine("pkg/train.py", 42, "")),
        ("a.py:7 in f in g", SourceLine("a.py", 7, "f in g")),
        ("train.py", None),
        ("", None),
    ],
)
def test_a_line_is_a_file_a_number_and_a_function(text: str, line: SourceLine | None) -> None:
    assert SourceLine.of(text) == line
