"""The reports that a path stands for."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.base.errors import NotAReport, SelectionError
from nsysflow.base.names import distinct_names
from nsysflow.runs.manifest import FILE, write_manifest
from nsysflow.runs.sources import distinct_sources, newest_run, single_report
from tests.runs.runs import RUN


def test_reports_with_the_same_name_are_distinguished_by_their_folders() -> None:
    paths = [Path("/data/a/rank0/report.sqlite"), Path("/data/a/rank1/report.sqlite")]
    assert distinct_names(["report"] * 2, paths) == ["rank0/report", "rank1/report"]
    assert distinct_names(["report"], paths[:1]) == ["report"]
    assert distinct_names(["a", "b"], paths) == ["a", "b"]


def test_a_runs_only_report_has_the_name_of_the_run(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    (source,) = distinct_sources([tmp_path])
    assert (source.path, source.name) == (tmp_path / "report.sqlite", tmp_path.name)
    assert single_report(tmp_path) == source.path


def test_each_rank_of_a_run_is_a_report(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(RUN, reports=("rank0.sqlite", "rank1.sqlite")))
    assert [source.name for source in distinct_sources([tmp_path])] == ["rank0", "rank1"]
    with pytest.raises(NotAReport, match="a run of 2 ranks"):
        single_report(tmp_path)


def test_a_run_without_reports_is_an_error_that_shows_where_its_output_is(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(RUN, reports=(), exit_code=3))
    with pytest.raises(NotAReport, match=r"python train\.py ended with exit code 3") as caught:
        distinct_sources([tmp_path])
    assert caught.value.command == f"cat {tmp_path}/output.log"


def test_a_report_may_not_be_given_twice(tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="was given twice"):
        distinct_sources([tmp_path / "a.sqlite", tmp_path / "x" / ".." / "a.sqlite"])


def test_the_newest_run_of_a_folder_is_the_one_recorded_last(tmp_path: Path) -> None:
    for age_s, name in ((20, "b"), (10, "a"), (30, "c")):
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name, RUN)
        os.utime(tmp_path / name / FILE, (10**9 - age_s, 10**9 - age_s))
    (tmp_path / "report.sqlite").touch()
    assert newest_run(tmp_path) == tmp_path / "a"


def test_inside_a_run_it_is_the_newest(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    assert newest_run(tmp_path) == tmp_path


def test_a_folder_without_runs_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(NotAReport, match="no run of nsysflow profile") as caught:
        newest_run(tmp_path)
    assert caught.value.command == "nsysflow demo"
