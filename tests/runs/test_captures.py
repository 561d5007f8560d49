"""What paths name: reports and documents become captures, ranks of a run become one."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from nsysflow.base.errors import ReportError, SelectionError
from nsysflow.report.document import compared_json
from nsysflow.runs.captures import captures_of, sides_of
from nsysflow.runs.manifest import write_manifest
from tests.analyses import run_of
from tests.exports import write_export
from tests.reports import PACKED
from tests.runs.runs import RUN

pytestmark = pytest.mark.usefixtures("shared")

REPORT = PACKED["nan_check-sync"]


@cache
def text() -> str:
    """The document of `REPORT`."""
    return compared_json(run_of("nan_check-sync"))


def document(folder: Path) -> Path:
    """That document as the report.json of a folder."""
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(text(), encoding="utf-8")
    return folder / "report.json"


def reports(folder: Path, *names: str) -> list[Path]:
    """Tiny reports of one kernel in the folder of a run that has no others."""
    folder.mkdir()
    write_manifest(folder, replace(RUN, reports=names))
    return [write_export(folder / name, kernels=[{}], nvtx=[{"text": "step"}]) for name in names]


def names(*paths: Path) -> list[str]:
    return [capture.name for capture in captures_of(paths)]


def test_a_report_and_the_document_of_it_are_the_same_capture(tmp_path: Path) -> None:
    (recorded,) = captures_of([REPORT])
    (read,) = captures_of([document(tmp_path / "nan_check-sync")])
    assert read == recorded
    assert recorded.name == "nan_check-sync"


def test_findings_are_computed_where_needed_and_the_step_can_be_named(tmp_path: Path) -> None:
    (found,) = captures_of([REPORT], findings=True)
    (read,) = captures_of([document(tmp_path / "run")])
    assert found.findings
    assert read.findings is None
    assert found.tracks == read.tracks
    (other,) = captures_of([REPORT], step="forward")
    assert other.tracks[0].step_name != read.tracks[0].step_name
    with pytest.raises(SelectionError, match="no such step"):
        captures_of([REPORT], step="no such step")


def test_a_folder_means_the_document_in_it_which_may_have_another_name(tmp_path: Path) -> None:
    file = document(tmp_path / "made.nsysflow")
    assert captures_of([file.parent]) == captures_of([file])
    assert names(file) == ["made"]
    assert names(file.rename(tmp_path / "before.json")) == ["before"]


def test_a_run_is_read_from_its_reports_even_if_it_was_analysed(tmp_path: Path) -> None:
    run = reports(tmp_path / "run", "report.sqlite")[0].parent
    (run / "report.json").write_text("an older nsysflow wrote this", encoding="utf-8")
    (capture,) = captures_of([run])
    assert (capture.name, len(capture.tracks)) == ("run", 1)


def test_ranks_of_one_folder_are_one_capture(tmp_path: Path) -> None:
    ranks = [reports(tmp_path / folder, "ddp-rank0.sqlite", "ddp-rank1.sqlite") for folder in "ab"]
    (alone,) = captures_of(ranks[0])
    assert alone.name == "ddp"
    assert [track.report for track in alone.tracks] == ["ddp-rank0", "ddp-rank1"]
    in_turn = [rank for both in zip(*ranks, strict=True) for rank in both]
    for paths, expected in ((in_turn, ["a/ddp", "b/ddp"]), ([tmp_path / "a"], ["a"])):
        found = captures_of(paths)
        assert [(capture.name, len(capture.tracks)) for capture in found] == [
            (name, 2) for name in expected
        ]


def test_captures_of_one_name_are_told_apart_by_their_folders_across_sides(tmp_path: Path) -> None:
    files = [document(tmp_path / name / "run") for name in ("monday", "tuesday", "friday")]
    assert names(*files[:2]) == ["monday/run", "tuesday/run"]
    assert names(files[0], document(tmp_path / "other")) == ["run", "other"]
    base, new = sides_of([files[:2], files[2:]])
    assert [each.name for each in (*base, *new)] == ["monday/run", "tuesday/run", "friday/run"]
    assert sides_of([[], []]) == [[], []]


@pytest.mark.parametrize("name", ["gone.sqlite", "gone", "gone.json", "gone/report.json", ""])
def test_what_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReportError) as caught:
        captures_of([tmp_path / name])
    assert caught.value.advice
    assert str(tmp_path / name) in caught.value.seen
