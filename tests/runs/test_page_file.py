"""Range names are read quickly, and only those that the analysis knows too."""

from pathlib import Path

from nsysflow.runs.manifest import write_manifest
from nsysflow.runs.page_file import range_names
from tests.exports import write_export
from tests.runs.runs import RUN

NVTX = [{"text": "train"}, {"text": "train"}, {"text": "iteration 3"}, {"text": "eval"}]


def test_the_names_of_an_export_are_those_without_numbers(tmp_path: Path) -> None:
    report = write_export(tmp_path / "r.sqlite", nvtx=NVTX)
    assert range_names(report) == ["eval", "train"]


def test_a_run_has_the_names_of_its_report(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    write_export(tmp_path / "report.sqlite", nvtx=NVTX)
    assert range_names(tmp_path) == ["eval", "train"]


def test_the_phases_of_an_earlier_analysis_win(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUN)
    write_export(tmp_path / "report.sqlite", nvtx=NVTX)
    (tmp_path / "phases.csv").write_text("report,path\nr,step/fwd\n")
    assert range_names(tmp_path) == ["fwd", "step/fwd"]


def test_a_report_that_is_no_database_has_no_names_to_complete(tmp_path: Path) -> None:
    (tmp_path / "r.sqlite").write_bytes(b"x" * 5000)
    assert range_names(tmp_path / "r.sqlite") == []
    assert range_names(tmp_path / "none.sqlite") == []
