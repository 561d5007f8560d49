"""The plain run: the program without a profiler, before it is recorded."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from shlex import join
from typing import Final

import pytest

import nsysflow
from nsysflow.record import capture
from nsysflow.record.program import Processes
from nsysflow.runs.manifest import PlainRun
from nsysflow.runtime.protocol import PLAIN, RUN_FOLDER
from tests.disks import names
from tests.nsys.fakes import script
from tests.record.fake import command, fake_torchrun, manifest_of, profiled

pytestmark = pytest.mark.usefixtures("machine_with_gpu")

LOOP: Final = """
import os, time
from itertools import count
from nsysflow import steps
print("plain" if "NSYSFLOW_PLAIN" in os.environ else "recorded")
for step in steps(count() if "NSYSFLOW_PLAIN" in os.environ else range(3)):
    time.sleep(0.01)
"""
"""A loop that ends by itself only where it is recorded."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(nsysflow.__file__).parent.parent))


def plain_run() -> PlainRun:
    """The plain run of the run in `out`."""
    found = manifest_of().plain_run
    assert found is not None
    return found


def program(code: str) -> list[str]:
    Path("train.py").write_text(code)
    return ["--", sys.executable, "-P", "train.py"]


def test_the_program_runs_plain_until_its_steps_are_timed_and_is_recorded_then() -> None:
    ran = profiled("--plain-run", "-o", "out", *program(LOOP))
    assert "until 30 steps are timed" in ran.stderr
    assert plain_run().problem is None
    assert (plain_run().step_ns or 0) > 10_000_000
    assert " (plain " in ran.stdout.splitlines()[0]
    logs = [Path("out", name).read_text() for name in ("plain.log", "output.log")]
    assert logs == ["plain\n", "recorded\n"]
    assert not [name for name in names(Path("out")) if name.startswith(("begun", "enough"))]
    profiled("-o", "out", "--force", "--no-analyze", *command())
    assert manifest_of().plain_run is None
    assert not Path("out/plain.log").exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print(1)", "no step was reported in [0-9]+ s, and no process"),
        ("from nsysflow import steps; [*steps([1, 2])]", "2 steps ran in [0-9]+ s[.] At least 10"),
        ("import os, sys; sys.exit(3 * ('NSYSFLOW_PLAIN' in os.environ))", "with exit code 3"),
    ],
)
def test_a_plain_run_that_times_no_step_is_a_note(code: str, said: str) -> None:
    profiled("--plain-run", "-o", "out", "--no-analyze", *program(code))
    assert plain_run().step_ns is None
    note = "the plain run timed no step: "
    assert re.match(f"{note}.*{said}", " ".join((plain_run().problem or "").split()))


def test_all_ranks_run_plain_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = 'while [ "${1#--}" != "$1" ]; do shift; done\n'
    both += 'for rank in 0 1; do LOCAL_RANK=$rank setsid "$@" & done\nwait'
    fake_torchrun(tmp_path, monkeypatch, both)
    slower = LOOP.replace("0.01", "0.01 * (1 + int(os.environ['LOCAL_RANK']))")
    train = script(tmp_path / "train.sh", f"exec {join(program(slower)[1:])}")
    profiled("--plain-run", "--nproc", "2", "-o", "out", "--no-analyze", "--", str(train))
    assert (plain_run().step_ns or 0) > 20_000_000  # the slower one
    assert Path("out/plain.log").read_text().count("plain") == 2  # their lines may interleave


STAYS: Final = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, "-P", sys.argv[0], "worker"], start_new_session=True)
print("ready", flush=True)
time.sleep(60)
"""
"""A program and its worker, which do not end at SIGTERM."""


def test_what_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "GRACE_S", 0.3)
    argv, ours = program(STAYS)[1:], {**os.environ, RUN_FOLDER: str(tmp_path), PLAIN: "1"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=ours, process_group=0) as stays:
        assert stays.stdout is not None
        assert [stays.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        processes = Processes(tmp_path, by_nsys=False)
        capture._end(stays, processes)
        assert stays.returncode == -signal.SIGKILL
        assert not processes.runs()


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("nan_check", True),
        ("nan_check --no-plain-run", False),
        ("nan_check --on cpu", False),
        ("nan_check --collector kineto", True),
        ("-- python train.py", False),
        ("--plain-run -- python train.py", True),
    ],
)
def test_only_workloads_run_plain_by_default(typed: str, plain: bool) -> None:
    ran = profiled("--dry-run", *typed.split())
    plain_lines = [line for line in ran.stdout.splitlines() if f"{PLAIN}=1" in line]
    assert len(plain_lines) == plain
    assert not any(" profile " in line or "NSYSFLOW_COLLECTOR" in line for line in plain_lines)
