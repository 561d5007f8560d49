"""An .nsys-rep is exported with the nsys at hand, or the error says how to do it."""

import os
from pathlib import Path

import pytest

from nsysflow.analysis.load import load, nsys_rep
from nsysflow.errors import Damaged, ReportError
from tests.exports import write_export


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"not SQLite at all")
    return path


@pytest.fixture
def nsys(tmp_path: Path) -> Path:
    """A program that exports what lies in `export.sqlite` beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    write_export(folder / "export.sqlite", kernels=[{}])
    return script(folder / "nsys", 'cp "$(dirname "$0")/export.sqlite" "$5"')


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _no_nsys_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_rep, "_INSTALLED", ())
    monkeypatch.delenv("NSYSFLOW_NSYS", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: name if os.access(name, os.X_OK) else None)


def test_the_nsys_that_was_asked_for_exports_it(report: Path, nsys: Path) -> None:
    trace = load(report, nsys=str(nsys))
    assert trace.report == "run"
    assert trace.ops.height == 1
    assert sorted(path.name for path in report.parent.iterdir()) == ["bin", "run.nsys-rep"]


def test_the_environment_names_an_nsys(
    report: Path, nsys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYSFLOW_NSYS", str(nsys))
    assert load(report).ops.height == 1


def test_the_newest_installed_nsys_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("2023.4.4", "2025.10.1", "2025.3.1"):
        (tmp_path / version).mkdir()
        script(tmp_path / version / "nsys", "")
    pattern = str((tmp_path / "*" / "nsys").relative_to("/"))
    monkeypatch.setattr(nsys_rep, "_INSTALLED", (pattern,))
    found = nsys_rep.find_nsys()
    assert found is not None
    assert "2025.10.1" in found


def test_without_an_nsys_the_error_says_how_to_export_by_hand(report: Path) -> None:
    with pytest.raises(ReportError, match="no nsys was found") as caught:
        load(report)
    assert f"nsys export --type sqlite {report}" in str(caught.value)


def test_an_nsys_that_fails_is_quoted(report: Path, tmp_path: Path) -> None:
    failing = script(tmp_path / "failing", "echo 'Unknown file format' >&2; exit 3")
    with pytest.raises(Damaged, match="ended with 3 and said: Unknown file format"):
        load(report, nsys=str(failing))
