"""What a program leaves for `nsysflow profile`: its own file, and a trace of torch.profiler."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nsysflow
from nsysflow.handshake import CAPTURE, COLLECTOR, RANK, RUN_FOLDER, Told, take_told
from tests.recording import nvtx_events, record_and_export

LOOP = """
from nsysflow import region, steps
for _ in steps(range(9)):
    with region("forward"):
        pass
"""

PROFILED = {"NSYS_PROFILING_SESSION_ID": "1"}
"""As nsys sets it, with no nsys there: ranges go nowhere, and are counted."""


def run(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NSYS", "NVTX", RANK))}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=kept | {RUN_FOLDER: str(folder)} | variables,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def told_by(code: str, folder: Path, **variables: str) -> list[Told]:
    done = run(code, folder, **variables)
    assert done.returncode == 0, done.stderr
    return take_told(folder)


def test_a_program_tells_what_it_did(tmp_path: Path) -> None:
    asked = {CAPTURE: "1:2:3", RANK: "4"} | PROFILED
    (told,) = told_by(LOOP, tmp_path, **asked)
    assert (told.steps, told.window, told.rank, told.gpu) == (6, "closed", 4, None)
    assert told.ranges == 3 * 6 + 3  # step, data and forward; after the window the body alone
    assert set(told.versions) == {"python", "nvtx"}
    assert told.unprofiled_step_ns is not None
    assert told.unprofiled_step_ns > 0


def test_a_program_that_nobody_profiles_leaves_nothing(tmp_path: Path) -> None:
    assert told_by(LOOP, tmp_path) == []


def test_a_program_that_uses_neither_leaves_nothing(tmp_path: Path) -> None:
    assert told_by("import nsysflow", tmp_path, **PROFILED) == []


def test_a_program_that_fails_inside_the_window_tells_all_the_same(tmp_path: Path) -> None:
    code = LOOP.replace("pass", "raise SystemExit(5)").replace("(9)", "(9), wait=0, warmup=0")
    assert run(code, tmp_path, **PROFILED).returncode == 5
    (told,) = take_told(tmp_path)
    assert (told.steps, told.captured, told.window, told.at_end) == (1, 1, "open", True)


@pytest.mark.parametrize("folder", ["gone", "a file"])
def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a file").touch()
    unusable = {RUN_FOLDER: str(tmp_path / folder)} | PROFILED
    done = run(f"{LOOP}print('trained')", tmp_path, **unusable, **{CAPTURE: "1:2:3"})
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = done.stderr.splitlines()  # of four times that it was tried
    assert line.startswith("nsysflow: what this process did could not be noted down")


def test_the_window_is_told_before_the_program_ends(tmp_path: Path) -> None:
    code = LOOP + "import os; os._exit(0)"
    (told,) = told_by(code, tmp_path, **PROFILED, **{CAPTURE: "0:0:2"})
    assert told.window == "closed"


ENDS = ["import os; os._exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"]
"""Ends of a program at which Python runs nothing more."""


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_hard_before_its_window_has_told_that_it_used_steps(
    tmp_path: Path, end: str
) -> None:
    run(LOOP.replace("pass", end), tmp_path, **PROFILED, **{CAPTURE: "1:2:3"})
    (told,) = take_told(tmp_path)
    assert (told.window, told.steps, told.captured) == ("never", 0, 0)
    assert not told.at_end


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_hard_inside_its_window_has_told_that_it_opened(
    tmp_path: Path, end: str
) -> None:
    code = LOOP.replace("for _", "for i").replace("pass", f"if i == 4:\n            {end}")
    run(code, tmp_path, **PROFILED, **{CAPTURE: "1:2:3"})
    (told,) = take_told(tmp_path)
    # as it was when the window opened: the two that followed are not in it
    assert (told.window, told.steps, told.captured) == ("open", 3, 0)
    assert not told.at_end
    assert told.unprofiled_step_ns is not None


def test_a_second_loop_tells_nothing_more_at_its_beginning(tmp_path: Path) -> None:
    code = f"{LOOP}import os\nfor file in os.listdir(): os.unlink(file)\nsteps([])\nos._exit(0)"
    assert told_by(code, tmp_path, **PROFILED, **{CAPTURE: "9:2:3"}) == []


def test_a_forked_worker_does_not_tell_for_its_parent(tmp_path: Path) -> None:
    code = LOOP + (
        "import os, sys\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit()\n"
        "os.waitpid(child, 0)\n"
        "print(os.getpid())"
    )
    done = run(code, tmp_path, **PROFILED)
    assert [str(told.pid) for told in take_told(tmp_path)] == done.stdout.split()


TRAINS = """
import torch
from nsysflow import region, steps
weight = torch.ones(8, 8)
for _ in steps(range(9)):
    with region("forward"):
        weight = weight @ weight.softmax(0)
"""


@pytest.mark.slow
def test_torch_profiler_leaves_a_trace_of_the_active_steps(tmp_path: Path) -> None:
    asked = {COLLECTOR: "kineto", CAPTURE: "1:2:3"}
    (told,) = told_by(TRAINS, tmp_path, **asked)
    (path,) = tmp_path.iterdir()
    assert path.name == "report.pt.trace.json.gz"
    held = json.loads(gzip.decompress(path.read_bytes()))
    assert held["nsysflow"] == {
        "capture": "1:2:3",
        "unprofiled_step_ns": told.unprofiled_step_ns,
    }
    phases = dict(nsysflow.analyze(nsysflow.load(path)).phases.select("path", "instances").rows())
    assert phases == {"step": 3, "step/data": 3, "step/forward": 3}
    assert "torch" in told.versions


@pytest.mark.slow
def test_torch_is_told_of_when_only_its_profiler_imports_it(tmp_path: Path) -> None:
    code = f"{LOOP}import os; os._exit(0)"
    (told,) = told_by(code, tmp_path, **{COLLECTOR: "kineto", CAPTURE: "0:0:20"})
    assert (told.window, told.at_end) == ("open", False)
    assert "torch" in told.versions


@pytest.mark.slow
def test_torch_profiler_leaves_a_ranks_trace_when_the_program_ends_inside_the_window(
    tmp_path: Path,
) -> None:
    asked = {COLLECTOR: "kineto", CAPTURE: "1:2:30", RANK: "1"}
    run(f"{TRAINS}raise SystemExit(5)", tmp_path, **asked)
    (told,) = take_told(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == "rank1.pt.trace.json.gz"
    phases = dict(nsysflow.analyze(nsysflow.load(path)).phases.select("path", "instances").rows())
    assert phases["step"] == told.captured == 6
    assert told.window == "open"


@pytest.mark.slow
def test_a_trace_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    asked = {COLLECTOR: "kineto", CAPTURE: "1:2:3", RUN_FOLDER: str(tmp_path / "gone")}
    done = run(f"{TRAINS}print('trained')", tmp_path, **asked)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "nsysflow: the trace could not be written" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_real_nsys_records_ranges_payloads_and_the_mark(tmp_path: Path) -> None:
    report = record_and_export(
        [sys.executable, "-c", LOOP], tmp_path, **{CAPTURE: "1:2:3", RUN_FOLDER: str(tmp_path)}
    )
    told = take_told(tmp_path)[-1]  # of the last attempt, where nsys broke in one
    phases = dict(nsysflow.analyze(nsysflow.load(report)).phases.select("path", "instances").rows())
    # without a GPU no window opens, and the whole run is recorded
    assert phases == {"step": 6, "step/data": 6, "step/forward": 6, "forward": 3}
    assert sum(phases.values()) == told.ranges
    events = nvtx_events(report)
    assert [payload for name, payload in events if name == "step"] == list(range(6))
    (mark,) = [text for text, _ in events if text and text.startswith('{"nsysflow"')]
    assert json.loads(mark)["nsysflow"] == {
        "capture": "1:2:3",
        "unprofiled_step_ns": told.unprofiled_step_ns,
    }
