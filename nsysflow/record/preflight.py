"""What is refused before anything runs, and who records on this machine."""

import shutil
from pathlib import Path
from shlex import join
from typing import Final

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.catalog.catalog import workloads
from nsysflow.nsys.installations import find_nsys
from nsysflow.nsys.program import ASSUMED, Nsys, too_old_for
from nsysflow.nsys.run import importer_problem
from nsysflow.record.machine import Gpus
from nsysflow.record.request import Request

_BY_KINETO: Final = (
    "no nsys was found, so torch.profiler records this run: only a window of steps,"
    " without source lines and GPU metrics (nsysflow doctor says how to get nsys)"
)
_ASSUMED: Final = (
    "no nsys was found here; the commands name it `nsys` (nsysflow doctor says how to get it)"
)


def require_program(request: Request) -> None:
    """Refuse a command that cannot be started.

    Raises:
        CaptureError: there is no such program.
    """
    first = request.command[0]
    if shutil.which(first) is not None:
        return
    if first in (workload.name for workload in workloads()):
        raise CaptureError(
            f"{first} is a built-in workload",
            "Name it before --, or without --",
            f"nsysflow profile {first}",
        )
    if Path(first).is_file():
        raise CaptureError(
            f"{first} is a file that cannot be started",
            "If it is a Python script, start it with python",
            f"nsysflow profile -- python {join(request.command)}",
        )
    raise CaptureError(
        f"there is no program {first!r}, neither in this folder nor on PATH",
        "After -- comes the command as you would type it, for example:"
        " nsysflow profile -- python train.py",
    )


def require_gpu(request: Request, gpus: Gpus) -> None:
    """Refuse a run on a GPU without one, and more ranks of a workload than GPUs.

    Raises:
        CaptureError: there are too few GPUs.
    """
    if request.on == "cpu":
        return
    ranks, count = request.processes or 1, len(gpus.names)
    if request.workload and not gpus.problem and ranks > count:
        raise CaptureError(
            f"--nproc {ranks} needs {ranks} GPUs, one per rank, and this machine has {count}"
            f" ({', '.join(gpus.names)})",
            "Start fewer ranks",
            f"nsysflow profile {request.workload} --nproc {count}",
        )
    if not gpus.problem:
        return
    what = request.workload or f"-- {join(request.command)}"
    on_cpu = f"{what} --on cpu" if request.workload else f"--on cpu {what}"
    raise CaptureError(
        f"no NVIDIA GPU can be used here: {gpus.problem}",
        "Profile on a machine with a GPU (nsysflow doctor says what is missing here), or try it"
        " without one, which records NVTX ranges only",
        f"nsysflow profile {on_cpu}",
    )


def choose_nsys(
    request: Request, gpus: Gpus, *, dry_run: bool = False
) -> tuple[Nsys | None, tuple[str, ...]]:
    """The nsys that will record, or None for torch.profiler; and what to tell the user about it.

    Args:
        request: what was asked.
        gpus: this machine's.
        dry_run: nothing will be started, so without an nsys one is assumed.

    Raises:
        CaptureError: nothing can record it here.
    """
    if request.collector == "kineto":
        return None, ()
    try:
        nsys = find_nsys(request.nsys)
    except NsysMissing:
        if request.collector is None and _kineto_can_record(request, gpus):
            return None, (_BY_KINETO,)
        if dry_run:
            return ASSUMED, (_ASSUMED,)
        raise
    problem = importer_problem(nsys)
    if problem is not None:
        raise CaptureError(
            f"{nsys.path} (nsys {nsys.version_text}) would record and then write no report:"
            f" {problem.text}",
            "See what to install",
            "nsysflow doctor",
        )
    return nsys, _warnings(nsys, gpus)


def _kineto_can_record(request: Request, gpus: Gpus) -> bool:
    """Whether torch.profiler records something of use: GPU work, or steps that it can begin at."""
    if request.on == "cpu":
        return bool(request.workload or request.window)
    return not gpus.problem


def _warnings(nsys: Nsys, gpus: Gpus) -> tuple[str, ...]:
    if not too_old_for(nsys, gpus.cuda) or nsys.cupti is None or gpus.cuda is None:
        return ()
    knows, has = (".".join(map(str, version)) for version in (nsys.cupti, gpus.cuda))
    return (
        f"nsys {nsys.version_text} knows CUDA up to {knows}, and this driver has CUDA {has}: it may"
        " record no kernels, without saying so. Use a newer nsys (see nsysflow doctor)",
    )
