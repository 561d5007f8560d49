"""What this process did so far, and when its status file is written."""

from __future__ import annotations

import atexit
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from nsysflow.runtime.child_status import ChildStatus, WindowState, write_status
from nsysflow.runtime.protocol import RUN_FOLDER, rank


@dataclass
class ProcessState:
    """What is counted here; most fields are those of `ChildStatus`.

    Attributes:
        flops: the FLOPs of a step, if a built-in workload declares them: `unit`, and `phases` with
            a number each.
        warmup_ns: time spent in warm-up steps, summed over loops.
        warmup_steps: how many warm-up steps that was.
        looped: whether the program has used `nsysflow.steps`: it marks its steps itself.
    """

    ranges: int = 0
    steps: int = 0
    captured: int = 0
    window: WindowState = "never"
    unprofiled_step_ns: int | None = None
    config: dict[str, Any] | None = None
    flops: dict[str, Any] | None = None
    warmup_ns: int = 0
    warmup_steps: int = 0
    looped: bool = False


THIS_PROCESS: Final = ProcessState()


@cache
def save_status_at_exit() -> None:
    """Write the status file when the process ends."""
    atexit.register(_save_at_exit_of, os.getpid())


@cache
def save_status_once() -> None:
    """Write the status file, on the first call only.

    Called when the first loop begins: a program that is killed before its window still used
    `steps`.
    """
    save_status()


def save_status(*, at_end: bool = False) -> None:
    """Write the status file into the run's folder, if `nsysflow profile` named one.

    A folder that is gone or full does not stop the program; stderr says so once.
    """
    folder = os.environ.get(RUN_FOLDER)
    if not folder or is_loader_worker():
        return
    try:
        write_status(Path(folder), _status(at_end=at_end))
    except OSError as error:
        _warn_not_saved(str(error))


def is_loader_worker() -> bool:
    """Whether this process fetches batches for a DataLoader of another one."""
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return getattr(worker, "_worker_info", None) is not None


@cache
def _warn_not_saved(why: str) -> None:
    sys.stderr.write(f"nsysflow: cannot save what this process did: {why}. The program goes on\n")


def _save_at_exit_of(pid: int) -> None:
    # a forked DataLoader worker inherits the handler, and must not write for its parent
    if os.getpid() == pid:
        save_status(at_end=True)


def _status(*, at_end: bool) -> ChildStatus:
    return ChildStatus(
        pid=os.getpid(),
        at_end=at_end,
        rank=rank(),
        versions=_versions(),
        gpu=_gpu(),
        ranges=THIS_PROCESS.ranges,
        steps=THIS_PROCESS.steps,
        captured=THIS_PROCESS.captured,
        window=THIS_PROCESS.window,
        unprofiled_step_ns=THIS_PROCESS.unprofiled_step_ns,
        config=THIS_PROCESS.config,
    )


def _versions() -> dict[str, str]:
    """Versions of Python and of the packages that this process has loaded."""
    found = {"python": platform.python_version()}
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        if torch.version.cuda is not None:
            found["cuda"] = torch.version.cuda
    for name in ("triton", "nvtx"):
        # a package loaded from a bare folder has no distribution
        with suppress(PackageNotFoundError):
            if name in sys.modules:
                found[name] = version(name)
    return found


def _gpu() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        return str(torch.cuda.get_device_name())
    except RuntimeError:
        # after a failed kernel every CUDA call of the process fails; the rest is still written
        return None
