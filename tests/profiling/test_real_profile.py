"""`nsysflow profile` with the nsys of this machine, on the CPU: what it truly does."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.trace import Trace
from nsysflow.manifest import Manifest, read_manifest
from nsysflow.profiling.outcome import nsys_broke
from tests.nsys.real import ATTEMPTS, real_nsys

pytestmark = pytest.mark.slow

LOOP: Final = """
import sys
from nsysflow import region, steps
for number in steps(range(8)):
    with region("forward"):
        print("step", number)
sys.exit(int(sys.argv[1]))
"""
PLAIN: Final = "print('no range, no step')"
ENDLESS: Final = """
import time
from nsysflow import region
with region("before"):
    pass
print("ready")
time.sleep(120)
"""


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_nsys()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(Path(nsysflow.__file__).parent.parent))


def nsysflow_argv(*words: str) -> list[str]:
    start = "from nsysflow.cli import main; main(prog_name='nsysflow')"
    return [sys.executable, "-P", "-c", start, *words]


def profile(*words: str) -> "subprocess.CompletedProcess[str]":
    """A run that nsys did not break."""
    argv = nsysflow_argv("profile", "--on", "cpu", "-o", "out", "--force", *words)
    return unbroken(lambda: subprocess.run(argv, capture_output=True, text=True, check=False))


def unbroken(
    attempt: "Callable[[], subprocess.CompletedProcess[str]]",
) -> "subprocess.CompletedProcess[str]":
    """What an attempt came to, made again where nsys broke."""
    for _ in range(ATTEMPTS):
        ran = attempt()
        if not nsys_broke(Path("out/output.log").read_text()):
            break
    return ran


def script(text: str, *words: str) -> Iterator[str]:
    Path("script.py").write_text(text)
    return iter(["--", sys.executable, "-P", "script.py", *words])


def the_run() -> tuple[Manifest, Trace]:
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    return manifest, nsysflow.load("out")


def instances(trace: Trace) -> dict[str, int]:
    counted = trace.ranges.group_by("name").len()
    return dict(counted.select(pl.col("name").cast(pl.String), "len").rows())


def test_ranges_of_the_child_arrive_and_a_report_without_gpu_work_reads_well() -> None:
    ran = profile(*script(LOOP, "0"))
    assert ran.returncode == 0, ran.stderr
    manifest, trace = the_run()
    assert instances(trace) == {"step": 8, "data": 8, "forward": 8}
    assert "no GPU work: no kernel" in ran.stdout
    assert "next: profile where a GPU is, without --on cpu" in ran.stdout
    assert "this run was made with --on cpu: only ranges could be recorded" in ran.stdout
    assert re.search(r"^  step +8 .*\n    forward +8 ", ran.stdout, re.MULTILINE)
    assert "Traceback" not in ran.stderr
    (told,) = manifest.told
    assert (told.steps, told.ranges, told.window) == (8, 24, "open")


def test_a_built_in_workload_runs_with_its_phases() -> None:
    ran = profile("nan_check", "--variant", "async")
    assert ran.returncode == 0, ran.stderr
    manifest, trace = the_run()
    (told,) = manifest.told
    assert told.config is not None
    assert (told.config["variant"], told.config["options"]["layers"]) == ("async", 3)
    found = instances(trace)
    assert found["step"] == 10
    assert {"forward", "backward", "optimizer"} <= found.keys()


def test_the_window_holds_the_active_steps_and_what_a_step_takes_without_a_profiler() -> None:
    ran = profile("--capture", "1:2:3", *script(LOOP, "0"))
    assert ran.returncode == 0, ran.stderr
    manifest, trace = the_run()
    assert {name: count for name, count in instances(trace).items() if name != "capture"} == {
        "step": 3,
        "data": 3,
        "forward": 3,
    }
    phases = nsysflow.analyze(trace).phases["path"].to_list()
    assert phases == ["step", "step/data", "step/forward"]
    (told,) = manifest.told
    assert told.window == "closed"
    assert trace.captures["capture"].to_list() == ["1:2:3"]
    assert trace.captures["unprofiled_step_ns"].to_list() == [told.unprofiled_step_ns]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN, "the program did not use nsysflow.steps"),
        (LOOP, "8 steps ran, and --capture 9:1:5 begins with step 11"),
    ],
)
def test_a_range_that_never_opened_is_an_error_that_says_so(text: str, said: str) -> None:
    ran = profile("--capture", "9:1:5", *script(text, "0"))
    assert ran.returncode == 1
    assert "the capture range never opened" in ran.stderr
    assert said in ran.stderr
    assert ran.stdout == ""


def test_a_program_without_any_range_is_profiled_too() -> None:
    ran = profile(*script(PLAIN))
    assert ran.returncode == 0, ran.stderr
    assert "no NVTX ranges in this report" in ran.stdout


def test_the_childs_exit_code_is_ours_and_what_was_captured_is_kept() -> None:
    ran = profile(*script(LOOP, "7"))
    assert ran.returncode == 7
    assert "failed with exit code 7" in ran.stderr
    assert "\n  step 7\n" in ran.stderr.rpartition("nsysflow: ")[2]
    _, trace = the_run()
    assert instances(trace)["step"] == 8


def interrupted(argv: list[str]) -> "subprocess.CompletedProcess[str]":
    """A command that is sent SIGINT once its program is ready, or that ended before."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ours:
        log = Path("out/output.log")
        until = time.monotonic() + 60
        while ours.poll() is None and not (log.exists() and b"ready\n" in log.read_bytes()):
            assert time.monotonic() < until, "the program did not start"
            time.sleep(0.05)
        ours.send_signal(signal.SIGINT)
        page, said = ours.communicate(timeout=60)
    return subprocess.CompletedProcess(argv, ours.returncode, page, said)


def test_sigint_keeps_what_was_captured() -> None:
    argv = nsysflow_argv("profile", "--on", "cpu", "-o", "out", "--force", *script(ENDLESS))
    ran = unbroken(lambda: interrupted(argv))
    assert ran.returncode == 130, ran.stderr
    assert "was interrupted" in ran.stderr
    assert "the run was interrupted" in ran.stdout
    manifest, trace = the_run()
    assert manifest.interrupted
    assert instances(trace) == {"before": 1}


def test_each_rank_has_its_report() -> None:
    ran = profile("--nproc", "2", *script(LOOP, "0"))
    assert ran.returncode == 0, ran.stderr
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    said = Path("out/output.log").read_text()
    assert manifest.reports == ("rank0.sqlite", "rank1.sqlite"), said
    assert [told.rank for told in manifest.told] == [0, 1]
    for rank in manifest.reports:
        assert instances(nsysflow.load(Path("out") / rank))["step"] == 8


def test_ddp_starts_two_ranks_by_itself_and_each_says_what_its_step_computes() -> None:
    ran = profile("ddp", "--variant", "bucketed", "--capture", "1:1:2")
    assert ran.returncode == 0, ran.stderr
    manifest = read_manifest(Path("out"))
    assert manifest is not None
    assert manifest.reports == ("rank0.sqlite", "rank1.sqlite")
    for rank in manifest.reports:
        trace = nsysflow.load(Path("out") / rank)
        assert {"step": 2, "backward": 2}.items() <= instances(trace).items()
        product = 2 * 8 * 16 * 16
        assert dict(trace.flops.select("phase", "flops").rows()) == {
            "forward": 3 * product,
            "backward": 5 * product,
        }


def test_torch_profiler_records_the_window_of_a_workload() -> None:
    ran = profile("nan_check", "--collector", "kineto", "--capture", "1:1:2")
    assert ran.returncode == 0, ran.stderr
    _, trace = the_run()
    assert instances(trace)["step"] == 2
    assert trace.flops["phase"].to_list() == ["forward", "backward"]
    assert trace.captures["capture"].to_list() == ["1:1:2"]
