"""A program is ended once what was asked for is recorded, and gets time to end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from nsysflow.profiling.ending import Ending
from nsysflow.profiling.program import ProgramEnd, run_program
from nsysflow.runtime.child_status import ChildStatus, WindowState, write_status
from nsysflow.runtime.protocol import RUN_FOLDER

PROGRAM: Final = """
import signal, sys, time
from pathlib import Path
def end(*_):
    time.sleep(0.3)
    print("checkpoint saved", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
Path("ready").touch()
time.sleep(60)
"""
NSYS: Final = """
import os, subprocess, sys, time
from pathlib import Path
marked = os.environ | {"NSYS_PROFILING_SESSION_ID": "1"}
program = [sys.executable, "-S", "-c", sys.argv[1]]
subprocess.Popen(program, env=marked, start_new_session=True)
while not Path("ready").exists():
    time.sleep(0.01)
print("Generated:\\n    report.nsys-rep", flush=True)
"""
"""As nsys: the program has a process group of its own, and lives on when the report is done."""


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(argv: list[str], folder: Path, ending: Ending) -> ProgramEnd:
    return run_program(
        [sys.executable, "-S", "-c", *argv], {RUN_FOLDER: str(folder)}, Path("log"), ending
    )


def test_a_program_that_outlives_nsys_is_ended_when_the_report_is_complete(tmp_path: Path) -> None:
    ending = Ending(tmp_path, "nsys", [Path("report.nsys-rep")])
    ended = run([NSYS, PROGRAM], tmp_path, ending)
    assert ended.stopped
    assert ended.exit_code == 0
    assert ended.last_lines == ("checkpoint saved",)
    assert not ending.runs()


def test_a_program_that_ends_before_its_report_is_complete_was_not_ended_by_us(
    tmp_path: Path,
) -> None:
    ended = run(
        ["print('report.nsys-rep')"], tmp_path, Ending(tmp_path, "nsys", [Path("report.nsys-rep")])
    )
    assert not ended.stopped


def test_without_nsys_a_program_is_ended_when_it_says_that_its_window_is_closed(
    tmp_path: Path,
) -> None:
    write_status(tmp_path, ChildStatus(pid=1, versions={}, window="closed"))
    ended = run(
        [PROGRAM],
        tmp_path,
        Ending(tmp_path, "kineto", []),
    )
    assert ended.stopped


@pytest.fixture
def running(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that nsys started for the run in `tmp_path`."""
    marks = {RUN_FOLDER: str(tmp_path), "NSYS_PROFILING_SESSION_ID": "1"}
    sleeps = [sys.executable, "-S", "-c", "print(flush=True); import time; time.sleep(60)"]
    with subprocess.Popen(
        sleeps, env=os.environ | marks, process_group=0, stdout=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        one.stdout.readline()
        yield one
        one.kill()


@pytest.mark.parametrize(
    ("windows", "output", "nsys_ended", "ended"),
    [
        (["closed"], b"a report.nsys-rep b", False, True),
        ([], b"a report.nsys-rep b", True, True),
        (["closed"], b"another.nsys-rep", False, False),
        (["closed", "open"], b"report.nsys-rep", True, False),
        (["never"], b"Connection to Agent lost", True, True),
    ],
)
def test_it_waits_for_every_report_and_every_open_window_unless_nsys_crashed(
    tmp_path: Path,
    running: "subprocess.Popen[bytes]",
    windows: list[WindowState],
    output: bytes,
    nsys_ended: bool,
    ended: bool,
) -> None:
    for pid, window in enumerate(windows):
        write_status(tmp_path, ChildStatus(pid=pid, versions={}, window=window))
    ending = Ending(tmp_path, "nsys", [Path("report.nsys-rep")])
    ending.hear(output)
    ending.look(nsys_ended=nsys_ended)
    assert ending.begun == ended
    if ended:
        assert running.wait(timeout=30) == -15
    assert running.poll() == (-15 if ended else None)


@pytest.mark.usefixtures("running")
def test_programs_of_other_runs_and_collectors_are_left_alone(tmp_path: Path) -> None:
    assert Ending(tmp_path, "nsys", []).runs()
    assert not Ending(tmp_path / "other", "nsys", []).runs()
    assert not Ending(tmp_path, "kineto", []).runs()
