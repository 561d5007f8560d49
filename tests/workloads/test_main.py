"""`python -P -m nsysflow.workloads`: one line for a run, one message for a mistake."""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import nsysflow
from nsysflow.errors import WorkloadError
from nsysflow.handshake import CAPTURE
from nsysflow.workloads import run as running
from nsysflow.workloads.__main__ import main
from nsysflow.workloads.comparing import Compared
from nsysflow.workloads.table import Table
from nsysflow.workloads.timing import Column
from tests.recording import nvtx_events, record_and_export

CHILD = [sys.executable, "-P", "-m", "nsysflow.workloads"]

pytestmark = pytest.mark.slow


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*CHILD, *words], capture_output=True, text=True, check=False)


def printed(*words: str) -> str:
    """What a run prints, in this process: another would take 2 s to import torch."""
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_a_run_prints_one_line_with_what_ran_and_its_result() -> None:
    done = run("nan_check", "--variant", "sync", "--on", "cpu", "--capture", "1:0:3")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"nan_check sync on the CPU: 4 steps, result \d\.\d+\n", done.stdout)


def test_a_variant_that_needs_a_gpu_says_what_ran_instead() -> None:
    said = printed("launch_bound", "--variant", "graph", "--on", "cpu")
    assert "launch_bound graph on the CPU (as eager: no CUDA graphs here): 10" in said


def test_a_workload_s_own_options_are_taken() -> None:
    done = run("nan_check", "--on", "cpu", "--nan-at-step", "2", "--width", "4")
    assert done.returncode == 1
    assert done.stderr == "nsysflow: nan_check stopped in step 2: the loss of step 2 is NaN\n"


def test_as_json_it_is_one_object_on_one_line() -> None:
    words = ("--on", "cpu", "--layers", "2", "--capture", "0:0:1", "--json")
    record = json.loads(printed("trainstep", *words))
    assert (record["workload"], record["variant"], record["steps"]) == ("trainstep", "fused", 1)
    assert record["options"]["layers"] == 2
    assert record["table"] is None


@pytest.mark.parametrize(
    ("error", "verdict", "code"),
    [(1.9e-3, "FAIL", 3), (float("nan"), "FAIL", 3), (1e-4, "PASS", 0)],
)
def test_a_wrong_result_makes_it_exit_with_3_once_the_table_is_printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: float,
    verdict: str,
    code: int,
) -> None:
    table = Table(
        compared=(Compared(what="loss", torch_error=1e-4, error=error),),
        phases=("forward",),
        ends=(),
        columns=tuple(
            Column(name=name, phases_ns=(1_000,), begun_ns=(), step_ns=900)
            for name in ("torch", "fused")
        ),
    )
    right = running.run
    monkeypatch.setattr(running, "run", lambda config: replace(right(config), table=table))
    monkeypatch.setattr(sys, "argv", ["", "h2d", "--on", "cpu"])
    monkeypatch.delitem(sys.modules, "nsysflow.workloads.__main__")  # or runpy warns of it
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("nsysflow.workloads", run_name="__main__")
    said = capsys.readouterr()
    assert (ended.value.code or 0) == code
    assert f"{verdict}\n" in said.out
    assert ("by the table: loss" in said.err) == (code == 3)


def test_where_triton_is_missing_the_message_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from nsysflow.workloads.__main__ import main\n"
        "from nsysflow.errors import WorkloadError\n"
        "try:\n"
        "    main(['trainstep', '--on', 'cpu'], standalone_mode=False)\n"
        "except WorkloadError as error:\n"
        "    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "trainstep needs Triton, which is not installed here:\n  pip install triton\n"
    )


def test_an_unknown_workload_is_one_message() -> None:
    done = run("nan_chek", "--on", "cpu")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Did you mean nan_check?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "typed",
    [
        *(("--variant", "both"), ("--capture", "3:2"), ("--kernels", "1")),
        *(("--width", "0"), ("--data-ms", "-1")),
    ],
)
def test_what_it_does_not_take_is_bad_usage(typed: tuple[str, str]) -> None:
    assert run("nan_check", "--on", "cpu", *typed).returncode == 2


def test_a_width_that_cannot_be_split_is_one_message() -> None:
    with pytest.raises(WorkloadError, match="Choose another --width or --heads"):
        printed("launch_bound", "--on", "cpu", "--heads", "3")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_message_says_how_to_run_without_one() -> None:
    done = run("h2d")
    assert done.returncode == 1
    assert "nsysflow profile h2d --on cpu" in done.stderr


def test_it_imports_no_polars() -> None:
    code = (
        "import sys; from nsysflow.workloads.__main__ import main\n"
        "main(['h2d', '--on', 'cpu'], standalone_mode=False)\n"
        "print('polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


def test_a_real_nsys_records_phases_and_what_the_warm_up_took(tmp_path: Path) -> None:
    report = record_and_export([*CHILD, "nan_check", "--on", "cpu"], tmp_path, **{CAPTURE: "1:2:3"})
    phases = dict(nsysflow.analyze(nsysflow.load(report)).phases.select("path", "instances").rows())
    inside = ("data", "forward", "loss", "backward", "optimizer", "metrics")
    assert phases == {"step": 6} | {f"step/{phase}": 6 for phase in inside}
    (mark,) = [text for text, _ in nvtx_events(report) if text and "nsysflow" in text]
    said = json.loads(mark)["nsysflow"]
    assert said["capture"] == "1:2:3"
    assert said["unprofiled_step_ns"] > 100_000  # the loader alone takes 0.1 ms
