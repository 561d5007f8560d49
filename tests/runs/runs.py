"""A run in which nothing is missing."""

from typing import Final

from nsysflow.runs.manifest import GitState, Manifest
from nsysflow.runtime.process import ChildStatus

CHILD: Final = ChildStatus(pid=7, versions={"nvtx": "0.2.16"}, ranges=24, steps=8, window="closed")
RUN: Final = Manifest(
    name="train", workload=None, command=("python", "train.py"),
    argv=("nsys", "profile", "python", "train.py"), on="cuda", collector="nsys", capture="3:2:5",
    processes=None, trace=("cuda", "nvtx"), gpu_metrics=False,
    git=GitState(commit="abc", changed=True), versions={"nsys": "2023.4.4"}, gpus=("NVIDIA H200",),
    started="2026-11-20T10:00:00+00:00", wall_ns=5, exit_code=0, interrupted=False,
    reports=("report.sqlite",), children=(CHILD,),
)  # fmt: skip
