"""The folder that may be read."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from nsysflow.agents.folder import Folder, LruCache, list_reports, stamp
from nsysflow.base.errors import SelectionError
from nsysflow.runs.manifest import write_manifest
from tests.reports import SAMPLES, parquetdir_report
from tests.runs.runs import RUN


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with a report, beside which lies another one."""
    (tmp_path / "secret.sqlite").write_text("outside")
    root = tmp_path / "runs"
    root.mkdir()
    (root / "a.sqlite").write_text("inside")
    return Folder(root)


@pytest.mark.parametrize("typed", ["a.sqlite", "./a.sqlite", "../runs/a.sqlite"])
def test_a_path_inside_is_taken(folder: Folder, typed: str) -> None:
    assert folder.inside(typed) == folder.root / "a.sqlite"


def test_an_absolute_path_inside_is_taken(folder: Folder) -> None:
    assert folder.inside(folder.root / "a.sqlite") == folder.root / "a.sqlite"


def test_the_folder_itself_is_inside(folder: Folder) -> None:
    assert folder.inside(".") == folder.root


@pytest.mark.parametrize(
    "typed",
    [
        "..",
        "../secret.sqlite",
        "../runs2/a.sqlite",
        "/etc/passwd",
        "sub/../../secret.sqlite",
        "a\0b",
    ],
)
def test_a_path_outside_is_refused_whether_it_exists_or_not(folder: Folder, typed: str) -> None:
    with pytest.raises(SelectionError, match="is outside") as refused:
        folder.inside(typed)
    assert refused.value.command == "nsysflow mcp FOLDER"


def test_a_link_that_leads_out_is_refused(folder: Folder) -> None:
    (folder.root / "link.sqlite").symlink_to("../secret.sqlite")
    (folder.root / "up").symlink_to("..")
    for typed in ("link.sqlite", "up/secret.sqlite"):
        assert not folder.holds(folder.root / typed)
        with pytest.raises(SelectionError, match="is outside"):
            folder.inside(typed)


def test_a_link_inside_the_folder_is_followed(folder: Folder) -> None:
    (folder.root / "link.sqlite").symlink_to("a.sqlite")
    assert folder.inside("link.sqlite") == folder.root / "a.sqlite"


def test_links_in_a_circle_are_refused(folder: Folder) -> None:
    (folder.root / "b").symlink_to("c")
    (folder.root / "c").symlink_to("b")
    with pytest.raises(SelectionError, match="is outside"):
        folder.inside("b")


def test_a_file_in_a_run_that_leads_out_is_refused(folder: Folder) -> None:
    run = folder.root / "run"
    run.mkdir()
    write_manifest(run, replace(RUN, reports=("report.sqlite",)))
    (run / "report.sqlite").symlink_to("../../secret.sqlite")
    with pytest.raises(SelectionError, match="is outside"):
        folder.files(run)


def test_a_manifest_that_names_a_file_outside_is_refused(folder: Folder) -> None:
    run = folder.root / "run"
    run.mkdir()
    write_manifest(run, replace(RUN, reports=("../../secret.sqlite",)))
    with pytest.raises(SelectionError, match="is outside"):
        folder.files(run)


def test_a_stamp_changes_with_a_file(folder: Folder) -> None:
    files = folder.files(folder.inside("a.sqlite"))
    before = stamp(files)
    assert stamp(files) == before
    os.utime(files[0], ns=(0, 5))
    assert stamp(files) != before


def test_a_file_that_is_missing_has_no_stamp(folder: Folder) -> None:
    assert stamp(folder.files(folder.inside("b.sqlite"))) == ()


def test_a_result_is_made_once() -> None:
    kept: LruCache[object] = LruCache(2)
    first = kept.get("a", object)
    assert kept.get("a", object) is first


def test_what_was_longest_not_asked_for_goes_first() -> None:
    kept: LruCache[object] = LruCache(2)
    a, b = kept.get("a", object), kept.get("b", object)
    assert kept.get("a", object) is a
    kept.get("c", object)
    assert kept.get("a", object) is a
    assert kept.get("b", object) is not b


def test_threads_that_ask_at_once_get_the_same() -> None:
    kept: LruCache[object] = LruCache(2)
    together = Barrier(4)

    def ask(_: int) -> object:
        together.wait()
        return kept.get("a", object)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1


def test_an_error_is_not_kept() -> None:
    kept: LruCache[int] = LruCache(2)

    def fail() -> int:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        kept.get("a", fail)
    assert kept.get("a", lambda: 1) == 1


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
