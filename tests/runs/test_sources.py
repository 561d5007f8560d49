"""Which reports are meant, and the manifest of a run."""

import json
import os
import shlex
import subprocess
from dataclasses import asdict, replace
from math import nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.analysis.options import Options
from nsysflow.analysis.trace import NoteKind
from nsysflow.base.errors import Damaged, NotAReport, ReportError, SelectionError
from nsysflow.runs.analyze import analyze_reports
from nsysflow.runs.manifest import (
    FILE,
    Annotation,
    is_run,
    read_manifest,
    take_annotation,
    take_statuses,
    write_manifest,
)
from nsysflow.runs.paths import matched
from nsysflow.runs.sources import distinct_sources, newest_run, single_report
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED
from nsysflow.runtime.process import ChildStatus, write_status
from tests.exports import write_export
from tests.runs.runs import RUN
from tests.unprivileged import unprivileged


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


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    annotation = Annotation(hooked=True, torch=False, problem="no")
    for run in (
        RUN,
        replace(RUN, git=None, children=(), flops_per_step=1e9, flops_dtype="bf16", own=("vllm",)),
        replace(RUN, annotation=annotation, delay_s=0.5, duration_s=2.0, stopped=True),
    ):
        write_manifest(tmp_path, run)
        assert read_manifest(tmp_path) == run
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_program_was_killed_if_torch_was_annotated_and_no_process_ended_by_itself() -> None:
    annotated = replace(RUN, annotation=Annotation(hooked=True, torch=True))
    ended, killed = (
        tuple(replace(each, at_end=end) for each in RUN.children) for end in (True, False)
    )
    assert RUN.children
    assert not replace(annotated, children=ended).killed
    assert replace(annotated, children=killed).killed
    assert replace(annotated, children=()).killed
    assert not replace(RUN, annotation=None, children=()).killed


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"children": None}, "Expected `array`, got `null` - at `$.children`"),
        ({"children": [{"pid": True}]}, "Expected `int`, got `bool` - at `$.children[0].pid`"),
        ({"on": "gpu"}, "Invalid enum value 'gpu' - at `$.on`"),
        ({"reports": ["a\0b.sqlite"]}, "reports: no name of a file has a NUL"),
        ({"flops_per_step": nan}, "flops_per_step: nan is no number of operations"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    document = {"tool": "nsysflow", **asdict(RUN), **changed}
    (tmp_path / FILE).write_text(json.dumps(document))
    with pytest.raises(Damaged) as caught:
        read_manifest(tmp_path)
    assert caught.value.seen.startswith(f"{tmp_path / FILE} cannot be understood: {said}")
    assert caught.value.command == f"ls {tmp_path}"
    assert is_run(tmp_path)


@pytest.mark.parametrize("text", ["{", '{"tool": "nsysflow", "on": "\\u001b[2J"}', "\xff"])
def test_a_run_whose_manifest_cannot_be_read_gives_its_reports_with_a_note(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    for rank in range(2):
        write_export(tmp_path / f"rank{rank}.sqlite", kernels=[{}], calls=[{}])
    analyses = analyze_reports([tmp_path], Options(), tables=()).analyses
    assert [each.trace.report for each in analyses] == ["rank0", "rank1"]
    for each in analyses:
        (note,) = [note for note in each.trace.notes if note.kind is NoteKind.RUN]
        assert "manifest.json cannot be understood" in note.text
        assert "\x1b" not in note.text


def test_unknown_keys_are_dropped_and_defaults_filled_in(tmp_path: Path) -> None:
    written = {"tool": "nsysflow", **asdict(RUN), "later": "new", "delay_s": 2}
    for key in ("own", "stopped", "flops_per_step", "flops_dtype"):
        del written[key]
    (tmp_path / FILE).write_text(json.dumps(written))
    assert read_manifest(tmp_path) == replace(RUN, delay_s=2.0)


def test_a_manifest_that_may_not_be_read_is_an_error_and_a_closed_folder_not_a_run() -> None:
    with unprivileged() as folder:
        (folder / "run").mkdir(mode=0)
        assert read_manifest(folder / "run") is None
        assert not is_run(folder / "run")
        (folder / FILE).touch(mode=0)
        with pytest.raises(ReportError, match=f"chmod u\\+r {folder / FILE}"):
            read_manifest(folder)


def test_statuses_are_read_by_rank_and_pid_and_readable_ones_removed(tmp_path: Path) -> None:
    written = [
        ChildStatus(pid=pid, rank=rank, versions={"python": "3.12"}, config={"options": {"n": 1}})
        for pid, rank in ((9, None), (11, None), (3, 1))
    ]
    for status in reversed(written):
        write_status(tmp_path, status)
    for left in (".nsysflow-child-8-8.json.gz", "loader-8.bin"):  # by processes that were killed
        (tmp_path / left).touch()
    unreadable = {"child-6.json": "{", "child-7.json": '{"pid": "7"}'}
    for name, text in unreadable.items():
        (tmp_path / name).write_text(text)
    assert take_statuses(tmp_path) == written
    assert {path.name for path in tmp_path.iterdir()} == unreadable.keys()


@pytest.mark.parametrize(
    ("left", "found"),
    [
        ({}, Annotation(hooked=False, torch=False)),
        ({HOOKED: ""}, Annotation(hooked=True, torch=False)),
        ({HOOKED: "", ANNOTATED: ""}, Annotation(hooked=True, torch=True)),
        ({HOOKED: "", NOT_ANNOTATED: "a"}, Annotation(hooked=True, torch=False, problem="a")),
    ],
)
def test_the_annotation_is_taken(tmp_path: Path, left: dict[str, str], found: Annotation) -> None:
    for name, text in left.items():
        (tmp_path / name).write_text(text)
    assert take_annotation(tmp_path) == found
    assert list(tmp_path.iterdir()) == []
