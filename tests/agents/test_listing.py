"""`list_reports`: what counts as a report or a run."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from nsysflow.agents.folder import Folder
from nsysflow.agents.listing import list_reports
from nsysflow.runs.manifest import write_manifest
from tests.reports import SAMPLES, parquetdir_report
from tests.runs.runs import RUN


def made(folder: Path, *names: str, at: int = 0) -> None:
    """Files of these names, written at second `at`."""
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"12345")
        os.utime(file, (at, at))


def kinds(folder: Path) -> dict[str, str]:
    """What is listed, with its kind."""
    return {each.path: each.kind for each in list_reports(Folder(folder), 100).data.found}


def test_reports_of_every_kind_are_found_at_any_depth(tmp_path: Path) -> None:
    names = ("a.sqlite", "b/c.sqlite.xz", "b/d/e.nsys-rep", "b/x.pt.trace.json.gz")
    made(tmp_path, *names, "notes.txt", "b/config.json", ".hidden/f.sqlite", "__pycache__/g.sqlite")
    assert kinds(tmp_path) == dict.fromkeys(names, "report")


def test_a_run_is_one_entry_with_its_ranks_and_command(tmp_path: Path) -> None:
    made(tmp_path, "run/rank0.sqlite", "run/rank1.sqlite")
    write_manifest(tmp_path / "run", replace(RUN, reports=("rank0.sqlite", "rank1.sqlite")))
    (run,) = list_reports(Folder(tmp_path), 100).data.found
    assert (run.path, run.kind, run.bytes) == ("run", "run", 10)
    assert run.reports == ("rank0.sqlite", "rank1.sqlite")
    assert run.command == ("python", "train.py")


def test_a_parquetdir_is_a_report(tmp_path: Path) -> None:
    folder = parquetdir_report(tmp_path)
    assert kinds(tmp_path) == {str(folder.relative_to(tmp_path)): "report"}


def test_an_analysis_is_listed_by_its_report_json(tmp_path: Path) -> None:
    made(tmp_path, "a.sqlite.nsysflow/report.json", "a.sqlite.nsysflow/gaps.csv")
    assert kinds(tmp_path) == {"a.sqlite.nsysflow/report.json": "report.json"}


def test_links_that_lead_out_are_not_listed(tmp_path: Path) -> None:
    made(tmp_path, "secret.sqlite", "secrets/b.sqlite", "runs/a.sqlite")
    (tmp_path / "runs" / "link.sqlite").symlink_to("../secret.sqlite")
    (tmp_path / "runs" / "folder").symlink_to("../secrets")
    assert kinds(tmp_path / "runs") == {"a.sqlite": "report"}


def test_a_manifest_outside_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "runs" / "run").mkdir(parents=True)
    write_manifest(tmp_path, RUN)
    (tmp_path / "runs" / "run" / "manifest.json").symlink_to("../../manifest.json")
    assert kinds(tmp_path / "runs") == {}


def test_the_newest_come_first_and_the_others_are_counted(tmp_path: Path) -> None:
    for second in range(5):
        made(tmp_path, f"{second}.sqlite", at=second)
    answer = list_reports(Folder(tmp_path), 2)
    assert [each.path for each in answer.data.found] == ["4.sqlite", "3.sqlite"]
    assert answer.data.total == 5
    assert "3 older ones" in answer.text


def test_an_empty_folder_says_what_to_type(tmp_path: Path) -> None:
    assert "nsysflow profile" in list_reports(Folder(tmp_path), 2).text


def test_the_samples_are_all_listed(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES, tmp_path / "samples")
    packed = {str(each.relative_to(SAMPLES)) for each in SAMPLES.rglob("*.sqlite.xz")}
    assert {each.removeprefix("samples/") for each in kinds(tmp_path)} == packed
