"""Which reports are meant."""

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base.errors import NotAReport, SelectionError
from nsysflow.runs.manifest import FILE, write_manifest
from nsysflow.runs.paths import matched
from nsysflow.runs.sources import distinct_sources, newest_run, single_report
from tests.runs.runs import RUN


def test_a_run_without_reports_is_an_error_that_shows_where_its_output_is(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(RUN, reports=(), exit_code=3))
    with pytest.raises(NotAReport, match=r"python train\.py ended with exit code 3") as caught:
        distinct_sources([tmp_path])
    assert caught.value.command == f"cat {tmp_path}/output.log"


def test_a_runs_report_that_was_packed_since_is_still_its_report(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    made(tmp_path, f"{RUN.reports[0]}.xz")
    (source,) = distinct_sources([tmp_path])
    assert source.path.name == f"{RUN.reports[0]}.xz"
    assert source.manifest is not None


def test_the_newest_run_of_a_folder_is_the_one_recorded_last(tmp_path: Path) -> None:
    with pytest.raises(NotAReport, match="no run of nsysflow profile") as caught:
        newest_run(tmp_path)
    assert caught.value.command == "nsysflow demo"
    for age_s, name in ((20, "b"), (10, "a"), (30, "c")):
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name, RUN)
        os.utime(tmp_path / name / FILE, (10**9 - age_s, 10**9 - age_s))
    (tmp_path / "report.sqlite").touch()
    assert newest_run(tmp_path) == tmp_path / "a"
    assert newest_run(tmp_path / "c") == tmp_path / "c"  # inside a run it is this one


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@given(st.permutations([0, 2, 9, 10, 11, 100]))
def test_ranks_are_in_the_order_of_their_numbers_however_they_are_typed(numbers: list[int]) -> None:
    paths = [Path(f"a/rank{number}.sqlite") for number in numbers]
    assert [source.name for source in distinct_sources(paths)] == [
        f"rank{number}" for number in sorted(numbers)
    ]


@pytest.mark.parametrize(
    ("there", "typed", "meant"),
    [
        ("a/rank10.sqlite a/rank2.sqlite b/rank1.sqlite", "a/rank*",
         "a/rank2.sqlite a/rank10.sqlite"),
        ("a/rank2.sqlite b/rank1.sqlite b/rank3.sqlite", "*/rank[12]*",
         "a/rank2.sqlite b/rank1.sqlite"),
        ("a/rank1.sqlite b/deep/rank3.sqlite", "**/rank*.sqlite",
         "a/rank1.sqlite b/deep/rank3.sqlite"),
        # a file whose name looks like a pattern is itself
        ("run[1].sqlite run1.sqlite", "run[1].sqlite", "run[1].sqlite"),
        # a folder with reports stands for all of them
        ("rank1.sqlite.xz rank0.sqlite notes.txt a.nsysflow/x.csv", ".",
         "rank0.sqlite rank1.sqlite.xz"),
        # a report that was exported beside itself is one report
        ("rank0.nsys-rep rank0.sqlite rank1.nsys-rep", ".", "rank0.sqlite rank1.nsys-rep"),
        # a folder that is one report is itself
        ("StringIds.parquet other.sqlite", ".", "."),
        ("report.sqlite other.sqlite", ".", "."),
    ],
)  # fmt: skip
def test_a_path_stands_for_reports(tmp_path: Path, there: str, typed: str, meant: str) -> None:
    made(tmp_path, *there.split())
    found = distinct_sources([tmp_path / typed])
    assert [str(source.path.relative_to(tmp_path)) for source in found] == meant.split()


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


def test_one_report_is_not_taken_from_several_nor_given_twice(tmp_path: Path) -> None:
    made(tmp_path, "rank0.sqlite", "rank1.sqlite")
    with pytest.raises(NotAReport, match="is a run of 2 ranks"):
        single_report(tmp_path)
    assert single_report(tmp_path / "rank1*").path == tmp_path / "rank1.sqlite"
    for typed in (("rank*", "*0.sqlite"), ("a.sqlite", "x/../a.sqlite")):
        with pytest.raises(SelectionError, match="was given twice"):
            distinct_sources([tmp_path / each for each in typed])
