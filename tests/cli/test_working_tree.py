"""Which file of the working tree a report means."""

from pathlib import Path

import pytest

from nsysflow.cli.working_tree import file_below, file_in_repository


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (
        "src/train.py",
        "src/a/model.py",
        "src/b/model.py",
        "src/retrain.py",
        ".git/hidden.py",
        "env/pyvenv.cfg",
        "env/lib/installed.py",
        "env/pip.py",
    ):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("train.py", "src/train.py"),
        ("a/model.py", "src/a/model.py"),
        ("model.py", None),
        ("rain.py", None),
        ("hidden.py", None),
        ("installed.py", None),
        ("pip.py", None),
        ("missing.py", None),
    ],
)
def test_it_is_the_only_one_that_ends_so(name: str, found: str | None) -> None:
    assert file_below(name) == found


def test_a_file_is_named_from_the_root_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert file_in_repository("train.py") == "src/train.py"
    monkeypatch.chdir(tmp_path / "src")
    assert file_in_repository("train.py") == "src/train.py"
    assert file_in_repository(str(tmp_path / "src" / "a" / "model.py")) == "src/a/model.py"


def test_outside_of_a_repository_it_is_named_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git" / "hidden.py").unlink()
    (tmp_path / ".git").rmdir()
    monkeypatch.chdir(tmp_path / "src")
    assert file_in_repository("train.py") == "train.py"


def test_a_whole_path_outside_of_the_repository_is_none_of_its_files(tmp_path: Path) -> None:
    assert file_in_repository(__file__) is None
    assert file_in_repository(str(tmp_path / "src" / "missing.py")) is None


def test_a_link_is_named_as_the_file_that_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "linked.py").symlink_to(tmp_path / "src" / "train.py")
    assert file_in_repository("linked.py") == "src/train.py"
