"""`nsysflow profile` with a real nsys, on the CPU."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shlex import join
from typing import Final, TypeVar

import polars as pl
import pytest
from click.testing import CliRunner, Result

import nsysflow
from nsysflow.analysis.trace import Trace
from nsysflow.cli.main import main
from nsysflow.record.failure import nsys_crashed
from nsysflow.runs.manifest import Annotation, Manifest
from nsysflow.runtime.process import ChildStatus
from nsysflow.runtime.protocol import ANNOTATE
from tests.nsys.fakes import script as shell_script
from tests.nsys.real import ATTEMPTS, real_nsys
from tests.record.fake import fake_torchrun, manifest_of, profiled

pytestmark = pytest.mark.long

Ran = TypeVar("Ran")

LOOP: Final = """
import sys
from nsysflow import region, steps
for number in steps(range(8)):
    with region("forward"):
        print("step", number)
sys.exit(int(sys.argv[1]))
"""
UNENDING: Final = """
import signal, sys, time
from itertools import count
from nsysflow import steps
def end(*_):
    time.sleep(0.3)
    sys.exit("saved in step")
signal.signal(signal.SIGTERM, end)
for number in steps(count()):
    time.sleep(0.01)
"""
"""A loop without an end, which saves a checkpoint when it is told to end."""
TRAINING: Final = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(4):
    model(torch.ones(4)).backward()
    optimizer.step()
"""
ENDLESS: Final = """
import time
from nsysflow import region
with region("before"):
    pass
print("ready")
time.sleep(120)
"""


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_nsys()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(nsysflow.__file__).parent.parent))


def profile(*words: str, code: int = 0) -> Result:
    """A run in which nsys did not crash; it ends with this exit code."""
    argv = ["profile", "--on", "cpu", "-o", "out", "--force", *words]
    ran = retried(lambda: CliRunner().invoke(main, argv, catch_exceptions=False))
    assert ran.exit_code == code, ran.stderr
    return ran


def retried(attempt: Callable[[], Ran]) -> Ran:
    """The result of an attempt, repeated if nsys crashed in it."""
    for _ in range(ATTEMPTS):
        ran = attempt()
        if not nsys_crashed(Path("out/output.log").read_text()):
            break
    return ran


def script(text: str, *words: str) -> list[str]:
    Path("script.py").write_text(text)
    return ["--", sys.executable, "-P", "script.py", *words]


def the_run() -> tuple[Manifest, Trace]:
    return manifest_of(), nsysflow.load("out")


def only_child(manifest: Manifest) -> ChildStatus:
    (child,) = manifest.children
    return child


def instances(trace: Trace) -> dict[str, int]:
    counted = trace.ranges.group_by("name").len()
    return dict(counted.select(pl.col("name").cast(pl.String), "len").rows())


def test_a_failed_program_has_its_ranges_and_the_page_no_gpu_work() -> None:
    ran = profile(*script(LOOP, "7"), code=7)
    assert "failed with exit code 7" in ran.stderr
    assert ran.stderr.endswith("\n  step 7\n")
    manifest, trace = the_run()
    assert instances(trace) == {"step": 8, "data": 8, "forward": 8}
    assert "No GPU work (no kernel" in ran.stdout
    assert "next: profile on a machine with a GPU, without --on cpu" in ran.stdout
    assert re.search(r"^  step +8 .*\n    forward +8 ", ran.stdout, re.MULTILINE)
    child = only_child(manifest)
    assert (child.steps, child.ranges, child.window) == (8, 24, "open")


def test_a_built_in_workload_runs_with_its_phases() -> None:
    profile("nan_check", "--variant", "async")
    manifest, trace = the_run()
    config = only_child(manifest).config
    assert config is not None
    assert (config["variant"], config["options"]["layers"]) == ("async", 3)
    found = instances(trace)
    assert found["step"] == 10
    assert {"forward", "backward", "optimizer"} <= found.keys()


def test_the_window_holds_the_active_steps_and_the_unprofiled_time_of_a_step() -> None:
    profile("--capture", "1:2:3", *script(LOOP, "0"))
    manifest, trace = the_run()
    assert instances(trace) == {"capture": 1, "step": 3, "data": 3, "forward": 3}
    phases = nsysflow.analyze(trace).phases["path"].to_list()
    assert phases == ["step", "step/data", "step/forward"]
    child = only_child(manifest)
    assert child.window == "closed"
    assert trace.captures["capture"].to_list() == ["1:2:3"]
    assert trace.captures["unprofiled_step_ns"].to_list() == [child.unprofiled_step_ns]


def test_a_pytorch_program_has_phases_without_being_prepared() -> None:
    profile(*script(TRAINING))
    manifest, trace = the_run()
    assert manifest.annotation == Annotation(hooked=True, torch=True)
    assert {"forward": 4, "backward": 4, "optimizer": 4}.items() <= instances(trace).items()
    assert only_child(manifest).at_end
    plain = profiled("--dry-run", "--no-annotate", "--on", "cpu", *script(TRAINING)).stdout
    assert ANNOTATE not in plain


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--capture 1:1:3 --stop-after-capture", "ended the program with SIGTERM"),
        ("--delay 0.5 --duration 2", "the first 0.5 s of the run are not recorded"),
    ],
)
def test_the_program_is_ended_after_its_window_or_a_time_if_asked(words: str, said: str) -> None:
    ran = profile(*words.split(), *script(UNENDING))
    manifest, trace = the_run()
    assert manifest.stopped
    assert (instances(trace)["step"] == 3) == words.startswith("--capture")
    assert only_child(manifest).window == "closed"
    assert said in ran.stdout
    assert "saved in step" in Path("out/output.log").read_text()


def interrupted(argv: list[str]) -> "subprocess.CompletedProcess[str]":
    """The command, sent SIGINT once its program is ready."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ours:
        log = Path("out/output.log")
        until = time.monotonic() + 60
        while ours.poll() is None and not (log.exists() and b"ready\n" in log.read_bytes()):
            assert time.monotonic() < until, "the program did not start"
            time.sleep(0.05)
        ours.send_signal(signal.SIGINT)
        page, said = ours.communicate(timeout=60)
    return subprocess.CompletedProcess(argv, ours.returncode, page, said)


def test_ctrl_c_keeps_what_was_captured() -> None:
    command = "from nsysflow.cli.main import main; main(prog_name='nsysflow')"
    words = ["profile", "--on", "cpu", "-o", "out", "--force", *script(ENDLESS)]
    ran = retried(lambda: interrupted([sys.executable, "-P", "-c", command, *words]))
    assert ran.returncode == 130, ran.stderr
    assert "was interrupted" in ran.stderr
    assert "the run was interrupted" in ran.stdout
    manifest, trace = the_run()
    assert manifest.interrupted
    assert instances(trace) == {"before": 1}


def test_each_rank_has_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torchrun(tmp_path, monkeypatch)
    program = shell_script(tmp_path / "train.sh", f"exec {join(script(LOOP, '0')[1:])}")
    profile("--nproc", "2", "--", str(program))
    manifest, output = manifest_of(), Path("out/output.log").read_text()
    assert manifest.reports == ("rank0.sqlite", "rank1.sqlite"), output
    assert [child.rank for child in manifest.children] == [0, 1]
    for rank in manifest.reports:
        assert instances(nsysflow.load(Path("out") / rank))["step"] == 8
