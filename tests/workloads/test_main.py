"""`python -P -m nsysflow.workloads`: one line for a run, one message for a mistake."""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from nsysflow.base.errors import WorkloadError
from nsysflow.workloads.__main__ import main
from nsysflow.workloads.common import run as running
from nsysflow.workloads.common.accuracy import Comparison
from nsysflow.workloads.common.measurement import Column, Table

pytestmark = pytest.mark.slow


def printed(*words: str) -> str:
    """The output of a run in this process: another would take 2 s to import torch."""
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


WITHOUT_TRITON = """
import runpy, sys

sys.modules["triton"] = None
for name in ("nan_check", "trainstep"):
    sys.argv[1:] = [name, "--on", "cpu", "--capture", "1:0:3"]
    try:
        runpy.run_module("nsysflow.workloads", run_name="__main__", alter_sys=True)
    except SystemExit as error:
        print("exit code", error.code or 0)
print("polars" in sys.modules)
"""


@pytest.mark.long
def test_a_run_prints_one_line_imports_no_polars_and_says_if_it_lacks_triton() -> None:
    argv = [sys.executable, "-P", "-c", WITHOUT_TRITON]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    line, *rest = done.stdout.splitlines()
    assert re.fullmatch(r"nan_check sync on the CPU: 4 steps, result \d\.\d+", line)
    assert rest == ["exit code 0", "exit code 1", "False"]
    assert done.stderr == (
        "nsysflow: trainstep needs Triton, which is not installed here. Install it:\n"
        "  pip install triton\n"
    )


def test_a_variant_that_needs_a_gpu_says_what_ran_instead() -> None:
    line = printed("launch_bound", "--variant", "graph", "--on", "cpu")
    assert "launch_bound graph on the CPU (as eager: no CUDA graphs here): 10" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nan_check --nan-at-step 2 --width 4", "^nan_check stopped in step 2: the loss of step 2"),
        ("launch_bound --heads 3", "Choose another --width or --heads"),
    ],
)
def test_a_run_that_cannot_go_on_is_one_message(words: str, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        printed(*words.split(), "--on", "cpu")


def test_json_is_one_object_on_one_line() -> None:
    words = ("--on", "cpu", "--layers", "2", "--capture", "0:0:1", "--json")
    record = json.loads(printed("trainstep", *words))
    assert (record["workload"], record["variant"], record["steps"]) == ("trainstep", "fused", 1)
    assert record["options"]["layers"] == 2
    assert record["table"] is None


@pytest.mark.parametrize(
    ("error", "verdict", "code"),
    [(1.9e-3, "FAIL", 3), (float("nan"), "FAIL", 3), (1e-4, "PASS", 0)],
)
def test_a_wrong_result_exits_with_3_after_printing_the_table(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: float,
    verdict: str,
    code: int,
) -> None:
    column = Column(name="torch", phases_ns=(1_000,), begun_ns=(), step_ns=900)
    compared = (Comparison(what="loss", torch_error=1e-4, error=error),)
    columns = (column, replace(column, name="fused"))
    table = Table(compared=compared, phases=("forward",), ends=(), columns=columns)
    run = running.run
    monkeypatch.setattr(running, "run", lambda config: replace(run(config), table=table))
    monkeypatch.setattr(sys, "argv", ["", "h2d", "--on", "cpu"])
    monkeypatch.delitem(sys.modules, "nsysflow.workloads.__main__")  # or runpy warns
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("nsysflow.workloads", run_name="__main__")
    output = capsys.readouterr()
    assert (ended.value.code or 0) == code
    assert f"{verdict}\n" in output.out
    assert ("too far from the float64 result in loss" in output.err) == (code == 3)
