"""A working folder as the pages describe it."""

import os
import sys
from pathlib import Path

import pytest

from nsysflow.analysis.load.pack import pack
from tests.reports import ROOT, SAMPLES


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `samples` and `report.sqlite`, and `nsysflow` on the PATH."""
    folder, programs = tmp_path / "here", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (folder / "samples").symlink_to(SAMPLES)
    pack(SAMPLES / "nan_check-sync.sqlite.xz", folder / "report.sqlite")
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
