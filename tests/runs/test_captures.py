"""What paths name: reports and documents become captures, ranks of a run become one."""

import gzip
import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from nsysflow.base.errors import Damaged, NsysflowError, ReportError, SelectionError
from nsysflow.report.document import compared_json
from nsysflow.runs.captures import captures_of, sides_of
from nsysflow.runs.manifest import write_manifest
from tests.analyses import run_of
from tests.reports import DATA, PACKED
from tests.runs.runs import RUN

REPORT = PACKED["nan_check-sync"]
KINETO = DATA / "h200-kineto.pt.trace.json.gz"
RANKS = [PACKED["h200-ddp-rank0"], PACKED["h200-ddp-rank1"]]


@cache
def text() -> str:
    """The document of `REPORT`."""
    return compared_json(run_of("nan_check-sync"))


def document(folder: Path) -> Path:
    """That document as the report.json of a folder."""
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(text(), encoding="utf-8")
    return folder / "report.json"


def run_with(folder: Path, *reports: Path) -> Path:
    """A run's folder with these reports."""
    folder.mkdir(parents=True, exist_ok=True)
    for report in reports:
        shutil.copy(report, folder / report.name)
    write_manifest(folder, replace(RUN, reports=tuple(report.name for report in reports)))
    return folder


def names(*paths: Path) -> list[str]:
    return [capture.name for capture in captures_of(paths)]


def test_a_report_and_the_document_of_it_are_the_same_capture(tmp_path: Path) -> None:
    (recorded,) = captures_of([REPORT])
    (read,) = captures_of([document(tmp_path / "nan_check-sync")])
    assert read == recorded
    assert recorded.name == "nan_check-sync"


def test_a_folder_means_the_document_in_it(tmp_path: Path) -> None:
    file = document(tmp_path / "made.nsysflow")
    assert captures_of([file.parent]) == captures_of([file])
    assert names(file) == ["made"]


def test_a_document_may_have_another_name(tmp_path: Path) -> None:
    other = document(tmp_path / "made").rename(tmp_path / "before.json")
    assert names(other) == ["before"]


def test_a_run_is_read_from_its_reports_even_if_it_was_analysed(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", REPORT)
    (run / "report.json").write_text("an older nsysflow wrote this", encoding="utf-8")
    (capture,) = captures_of([run])
    assert (capture.name, len(capture.tracks)) == ("run", 1)


def test_a_run_whose_reports_are_gone_is_read_from_its_document(tmp_path: Path) -> None:
    run = document(tmp_path / "run").parent
    write_manifest(run, RUN)
    assert [track.report for track in captures_of([run])[0].tracks] == ["nan_check-sync"]


def test_ranks_of_a_run_are_one_capture() -> None:
    (capture,) = captures_of(RANKS)
    assert capture.name == "h200-ddp"
    assert [track.report for track in capture.tracks] == ["h200-ddp-rank0", "h200-ddp-rank1"]


def test_ranks_in_other_folders_are_other_captures(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        run_with(folder, *RANKS)
    paths = [folder / rank.name for rank in RANKS for folder in folders]
    found = captures_of(paths)
    assert [(capture.name, len(capture.tracks)) for capture in found] == [
        ("a/h200-ddp", 2),
        ("b/h200-ddp", 2),
    ]


def test_the_ranks_in_a_run_are_one_capture(tmp_path: Path) -> None:
    (capture,) = captures_of([run_with(tmp_path / "run", *RANKS)])
    assert (capture.name, len(capture.tracks)) == ("run", 2)


def test_captures_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    files = [document(tmp_path / name / "run") for name in ("monday", "tuesday")]
    assert names(*files) == ["monday/run", "tuesday/run"]
    assert names(files[0], document(tmp_path / "other")) == ["run", "other"]


def test_names_are_told_apart_across_sides(tmp_path: Path) -> None:
    files = [document(tmp_path / name / "run") for name in ("monday", "tuesday", "friday")]
    base, new = sides_of([files[:2], files[2:]])
    assert [each.name for each in (*base, *new)] == ["monday/run", "tuesday/run", "friday/run"]
    assert sides_of([[], []]) == [[], []]


def test_a_trace_of_torch_is_no_document(tmp_path: Path) -> None:
    unpacked = tmp_path / "train.pt.trace.json"
    unpacked.write_bytes(gzip.decompress(KINETO.read_bytes()))
    (packed,), (plain,) = captures_of([KINETO]), captures_of([unpacked])
    assert packed.tracks[0].duration_ns == plain.tracks[0].duration_ns
    assert packed.tracks[0].has_steps


def test_findings_are_computed_where_they_are_needed(tmp_path: Path) -> None:
    (without,), (with_them,) = (captures_of([REPORT], findings=each) for each in (False, True))
    assert without.findings is None
    assert with_them.findings
    assert with_them.tracks == without.tracks
    assert captures_of([document(tmp_path / "run")])[0].findings is None


def test_the_step_can_be_named() -> None:
    (capture,) = captures_of([REPORT], step="forward")
    assert capture.tracks[0].step_name != captures_of([REPORT])[0].tracks[0].step_name
    with pytest.raises(SelectionError, match="no such step"):
        captures_of([REPORT], step="no such step")


def refused(*paths: Path, kind: type[NsysflowError] = ReportError) -> NsysflowError:
    with pytest.raises(kind) as caught:
        captures_of(paths)
    assert caught.value.advice
    return caught.value


@pytest.mark.parametrize("name", ["gone.sqlite", "gone", "gone.json", "gone/report.json"])
def test_what_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    assert str(tmp_path / name) in refused(tmp_path / name).seen


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert str(tmp_path) in refused(tmp_path).seen


def test_a_report_given_twice_is_refused() -> None:
    refused(RANKS[0], RANKS[0], kind=SelectionError)


def test_an_old_document_in_a_folder_is_refused(tmp_path: Path) -> None:
    file = document(tmp_path / "run")
    old = json.loads(text()) | {"schema": 3}
    file.write_text(json.dumps(old), encoding="utf-8")
    for path in (file, file.parent):
        assert str(file) in refused(path, kind=Damaged).seen


def test_a_report_without_gpu_work_has_nothing_to_compare(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "user_annotation", "name": "step", "pid": 7, "tid": 7}
    report = tmp_path / "cpu.pt.trace.json"
    traced = {"schemaVersion": 1, "traceEvents": [{**event, "ts": 1, "dur": 2}]}
    report.write_text(json.dumps(traced), encoding="utf-8")
    error = refused(report)
    assert error.seen.startswith(str(report))
    assert "nothing to compare" in error.seen
    assert error.command.startswith("nsysflow profile")
