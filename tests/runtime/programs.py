"""Programs that use `nsysflow.region` and `steps`, and how to run them."""

import os
import subprocess
import sys
from pathlib import Path

import nsysflow
from nsysflow.runs.manifest import take_statuses
from nsysflow.runtime.process import ChildStatus
from nsysflow.runtime.protocol import RANK, RUN_FOLDER
from tests.torch_programs import run_with_torch

LOOP = """
from nsysflow import region, steps
for _ in steps(range(9)):
    with region("forward"):
        pass
"""


PROFILED = {"NSYS_PROFILING_SESSION_ID": "1"}
"""The environment as nsys sets it. Without an nsys, ranges are only counted."""


def environment(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NSYS", "NVTX", RANK))}
    return kept | {RUN_FOLDER: str(folder)} | variables


def run(code: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(folder, variables),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


def run_torch(code: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return run_with_torch(code, folder, environment(folder, variables))


def statuses_of(code: str, folder: Path, **variables: str) -> list[ChildStatus]:
    done = run(code, folder, **variables)
    assert done.returncode == 0, done.stderr
    return take_statuses(folder)


def instances(report: Path) -> dict[str, int]:
    """How often each phase ran."""
    phases = nsysflow.analyze(nsysflow.load(report)).phases
    return dict(phases.select("path", "instances").rows())


TRAINS = """
import torch
from nsysflow import region, steps
weight = torch.ones(8, 8)
for _ in steps(range(9)):
    with region("forward"):
        weight = weight @ weight.softmax(0)
"""
