"""Which file of the working tree a report means."""

from pathlib import Path

import pytest

from nsysflow.cli.working_tree import file_below


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
