"""A machine without a GPU: its `nsysflow profile` copies captures that were made before."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.action.forge_server import Server, serving
from tests.action.runner import Runner
from tests.cli.running import run
from tests.reports import ROOT, sqlite_report

_NSYSFLOW: Final = """#!/bin/sh
if [ "$1" = profile ] && [ -e "{fakes}/fails" ]; then exit 7; fi
if [ "$1" = profile ] && [ -e "{fakes}/run" ]; then
    printf '%s\\n' "$@" >>"{fakes}/profiled"
    mkdir "$3" && exec cp -r "{fakes}/run/." "$3"
fi
exec "{python}" -P -c "from nsysflow.cli.main import main; main(prog_name='nsysflow')" "$@"
"""

_PYTHON: Final = """#!/bin/sh
case "$1 $2" in
"-m venv") mkdir -p "$3/bin" && ln -s "{fakes}/python3" "{fakes}/nsysflow" "$3/bin"
    ln -s python3 "$3/bin/python" ;;
"-m pip") printf '%s\\n' "$*" >>"{fakes}/installed" ;;
*) exec "{python}" "$@" ;;
esac
"""


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of two runs as `nsysflow profile` leaves them, `slow` and `fast`."""
    made = tmp_path_factory.mktemp("runs")
    for name, sample in (("slow", "nan_check-sync"), ("fast", "nan_check-async")):
        folder = made / name
        folder.mkdir()
        report = sqlite_report(folder, sample).rename(folder / "report.sqlite")
        run("analyze", report, "-o", folder, "--force")
    return made


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A folder for PATH with a `python3` that installs nothing and an `nsysflow` that needs no
    GPU. `run` in it is what the next captures are, `fails` lets them fail; without either it is
    the real one."""
    folder = tmp_path / "fakes"
    folder.mkdir()
    for name, code in (("nsysflow", _NSYSFLOW), ("python3", _PYTHON)):
        program = folder / name
        program.write_text(code.format(python=sys.executable, fakes=folder))
        program.chmod(0o755)
    return folder


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture
def machine(fakes: Path) -> dict[str, str]:
    """The environment of a process on it."""
    return {
        "PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LC_ALL": "C.UTF-8",
        "NO_PROXY": "*",
    }


@pytest.fixture
def runner(server: Server, tmp_path: Path, machine: dict[str, str]) -> Runner:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "nan_check.py").touch()
    return Runner(server=server, workspace=workspace, temp=tmp_path / "temp", env=machine)


@pytest.fixture
def profiles(fakes: Path, runs: Path) -> "Profiles":
    return Profiles(fakes, runs)


class Profiles:
    """What the machine profiles."""

    def __init__(self, fakes: Path, runs: Path) -> None:
        self._fakes = fakes
        self._runs = runs

    def now(self, name: str) -> None:
        """From now on captures are those of `slow` or `fast`."""
        link = self._fakes / "run"
        link.unlink(missing_ok=True)
        link.symlink_to(self._runs / name)

    def fail(self) -> None:
        """From now on the program fails with exit code 7."""
        (self._fakes / "fails").touch()

    @property
    def asked(self) -> str:
        """The arguments of all calls of `nsysflow profile`, one a line."""
        return (self._fakes / "profiled").read_text(encoding="utf-8")
