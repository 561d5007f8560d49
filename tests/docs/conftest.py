"""A working folder as the pages describe it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nsysflow.analysis.load.pack import pack
from tests.reports import ROOT, SAMPLES
from tests.sharing import shared_analyses


@contextmanager
def unpacked_report(folder: Path) -> Iterator[Path]:
    """The `report.sqlite` of all pages. It, the samples and their runs are analysed once."""
    report = folder / "report.sqlite"
    pack(SAMPLES / "nan_check-sync.sqlite.xz", report)
    with shared_analyses(report, *SAMPLES.glob("runs/*.xz")):
        yield report


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The report of the pages of a module."""
    with unpacked_report(tmp_path_factory.mktemp("unpacked")) as report:
        yield report


@pytest.fixture
def here(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the pages describe it."""
    return described_folder(tmp_path, unpacked, monkeypatch)


def described_folder(parent: Path, report: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a new folder with `samples` and `report.sqlite`, and with `nsysflow` on the PATH."""
    folder, programs = parent / "here", parent / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "samples").symlink_to(SAMPLES)
    (folder / "report.sqlite").symlink_to(report)
    program = programs / "nsysflow"
    code = "from nsysflow.cli.main import main; main(prog_name='nsysflow')"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -c "{code}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder
