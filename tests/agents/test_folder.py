"""What is inside the folder, and what leads out of it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.agents.folder import Folder, stamp
from nsysflow.base.errors import SelectionError
from nsysflow.runs.manifest import write_manifest
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
