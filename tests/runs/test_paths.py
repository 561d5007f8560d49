"""The reports that a pattern or a folder stands for."""

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base.errors import NotAReport, SelectionError
from nsysflow.runs.paths import in_natural_order, is_pattern, matched
from nsysflow.runs.sources import distinct_sources, single_report, sources_of


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def names(folder: Path, *typed: str) -> list[str]:
    """The reports that these paths in `folder` stand for, relative to it."""
    found = distinct_sources([folder / each for each in typed])
    return [str(source.path.relative_to(folder)) for source in found]


@given(st.permutations([0, 2, 9, 10, 11, 100]))
def test_ranks_are_in_the_order_of_their_numbers_however_they_are_typed(numbers: list[int]) -> None:
    paths = [Path(f"a/rank{number}.sqlite") for number in numbers]
    assert [source.name for source in distinct_sources(paths)] == [
        f"rank{number}" for number in sorted(numbers)
    ]


@given(st.lists(st.text("a0 1/", min_size=1), max_size=5))
def test_natural_order_has_no_ties(typed: list[str]) -> None:
    paths = {Path(each) for each in typed}
    ordered = sorted(sorted(paths), key=in_natural_order)
    assert sorted(sorted(paths, reverse=True), key=in_natural_order) == ordered


def test_a_pattern_stands_for_what_it_matches(tmp_path: Path) -> None:
    made(tmp_path, "a/rank10.sqlite", "a/rank2.sqlite", "b/rank1.sqlite", "b/deep/rank3.sqlite")
    assert names(tmp_path, "a/rank*.sqlite") == ["a/rank2.sqlite", "a/rank10.sqlite"]
    assert names(tmp_path, "*/rank[12].sqlite") == ["a/rank2.sqlite", "b/rank1.sqlite"]
    assert len(names(tmp_path, "**/rank*.sqlite")) == 4


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    made(tmp_path, "run[1].sqlite", "run1.sqlite")
    assert not is_pattern(tmp_path / "run[1].sqlite")
    assert names(tmp_path, "run[1].sqlite") == ["run[1].sqlite"]


def test_a_pattern_that_matches_nothing_says_what_is_there(tmp_path: Path) -> None:
    made(tmp_path, *(f"runs/a b/rank{rank}.nsys-rep" for rank in range(7)))
    with pytest.raises(NotAReport) as caught:
        matched([tmp_path / "runs" / "*" / "rank*.sqlite"])
    there = tmp_path / "runs" / "a b"
    assert caught.value.seen.endswith(
        f"matches nothing; {there} holds rank0.nsys-rep, rank1.nsys-rep, rank2.nsys-rep,"
        " rank3.nsys-rep, rank4.nsys-rep and 2 more"
    )
    assert subprocess.run(shlex.split(caught.value.command), check=True, capture_output=True).stdout


def test_a_folder_with_reports_stands_for_all_of_them(tmp_path: Path) -> None:
    made(tmp_path, "rank1.sqlite.xz", "rank0.sqlite", "notes.txt", "rank0.sqlite.nsysflow/x.csv")
    assert names(tmp_path, ".") == ["rank0.sqlite", "rank1.sqlite.xz"]


def test_a_report_that_was_exported_beside_itself_is_one_report(tmp_path: Path) -> None:
    made(tmp_path, "rank0.nsys-rep", "rank0.sqlite", "rank1.nsys-rep")
    assert names(tmp_path, ".") == ["rank0.sqlite", "rank1.nsys-rep"]


@pytest.mark.parametrize("of_a_report", ["StringIds.parquet", "report.sqlite"])
def test_a_folder_that_is_one_report_is_itself(tmp_path: Path, of_a_report: str) -> None:
    made(tmp_path, of_a_report, "other.sqlite")
    (source,) = sources_of([tmp_path])
    assert source.path == tmp_path


def test_one_report_is_not_taken_from_several(tmp_path: Path) -> None:
    made(tmp_path, "rank0.sqlite", "rank1.sqlite")
    with pytest.raises(NotAReport, match="is a run of 2 ranks"):
        single_report(tmp_path)
    assert single_report(tmp_path / "rank1*") == tmp_path / "rank1.sqlite"


def test_a_report_that_two_patterns_match_was_given_twice(tmp_path: Path) -> None:
    made(tmp_path, "rank0.sqlite", "rank1.sqlite")
    with pytest.raises(SelectionError, match="was given twice"):
        distinct_sources([tmp_path / "rank*", tmp_path / "*0.sqlite"])
