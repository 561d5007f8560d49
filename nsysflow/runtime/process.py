"""What each process of a profiled program does and leaves in the run's folder."""

from __future__ import annotations

import atexit
import json
import os
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

from nsysflow.runtime.durations import Durations, LaterSteps
from nsysflow.runtime.protocol import RUN_FOLDER, rank

SCRATCH_FILES: Final = ".nsysflow-child-*"
"""What a killed process leaves; `*` is its id, its thread and an ending."""


@contextmanager
def scratch_file(folder: Path, suffix: str) -> Iterator[Path]:
    """A free path in `folder` for the block to write and rename; removed if it is still there."""
    own = f"{os.getpid()}-{threading.get_ident()}{suffix}"
    path = folder / SCRATCH_FILES.replace("*", own)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


FILES: Final = "child-*.json"
"""The names of status files; `*` is the process id."""

WindowState = Literal["never", "open", "closed"]


@dataclass(frozen=True)
class ChildStatus:
    """What one process did, as of its last write.

    A process writes when its first loop begins, when the window opens and closes, and when it ends.

    Attributes:
        pid: the process id.
        versions: of python, and of torch, cuda, triton and nvtx if it loaded them.
        at_end: whether this was written when Python ended by itself. False after a signal or
            `os._exit`: the process may have done more than is counted here.
        rank: its rank under torchrun.
        gpu: the name of the GPU that it used.
        ranges: how many NVTX ranges it opened through `nsysflow.region` and `steps`.
        steps: how many steps began.
        captured: how many of them began inside the window.
        window: `never` opened, `open` (the program ended inside it) or `closed`. Counted in steps:
            without a GPU a profiler that waits for CUDA records none of it.
        unprofiled_step_ns: mean wall time of a warm-up step, with no capture running.
        plain_step_ns: mean wall time of a step after the recording, or in a plain run; None where
            too few ran. Steps with an evaluation in them are left out where they are the fewer.
        plain_wait_ns: how long such a step waited for batches of DataLoaders, in the mean.
        evaluations: how many steps had an evaluation in them.
        later: the steps after the recording; None without one.
        config: the settings of a built-in workload, with shapes and seed; None for other programs.
    """

    pid: int
    versions: dict[str, str]
    at_end: bool = True
    rank: int | None = None
    gpu: str | None = None
    ranges: int = 0
    steps: int = 0
    captured: int = 0
    window: WindowState = "never"
    unprofiled_step_ns: int | None = None
    plain_step_ns: int | None = None
    plain_wait_ns: int | None = None
    evaluations: int = 0
    later: LaterSteps | None = None
    config: dict[str, Any] | None = None


def write_status(folder: Path, status: ChildStatus) -> None:
    """Write the status file, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with scratch_file(folder, ".json") as scratch:
        scratch.write_text(json.dumps(asdict(status)), encoding="utf-8")
        scratch.replace(folder / FILES.replace("*", str(status.pid)))


@dataclass
class ProcessState:
    """What is counted here; most fields are those of `ChildStatus`.

    Attributes:
        flops: the FLOPs of a step, if a built-in workload declares them: `unit`, and `phases` with
            a number each.
        warmup_ns: time spent in warm-up steps, summed over loops.
        warmup_steps: how many warm-up steps that was.
        recorded: whether the recording has ended: ranges are opened in vain from then on, so none
            is.
        later: the steps after the recording.
        evaluates: whether a model was switched to evaluation since the last step began.
        waited_ns: how long the program has waited for batches of DataLoaders so far.
        looped: whether the program has used `nsysflow.steps`: it marks its steps itself.
    """

    ranges: int = 0
    steps: int = 0
    captured: int = 0
    window: WindowState = "never"
    unprofiled_step_ns: int | None = None
    plain_step_ns: int | None = None
    plain_wait_ns: int | None = None
    evaluations: int = 0
    config: dict[str, Any] | None = None
    flops: dict[str, Any] | None = None
    warmup_ns: int = 0
    warmup_steps: int = 0
    recorded: bool = False
    later: Durations | None = None
    evaluates: bool = False
    waited_ns: int = 0
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
        plain_step_ns=THIS_PROCESS.plain_step_ns,
        plain_wait_ns=THIS_PROCESS.plain_wait_ns,
        evaluations=THIS_PROCESS.evaluations,
        later=THIS_PROCESS.later.summary() if THIS_PROCESS.later is not None else None,
        config=THIS_PROCESS.config,
    )


def _versions() -> dict[str, str]:
    """Versions of Python and of the packages that this process has loaded."""
    versions = {"python": platform.python_version()}
    torch = sys.modules.get("torch")
    if torch is not None:
        versions["torch"] = str(torch.__version__)
        if torch.version.cuda is not None:
            versions["cuda"] = torch.version.cuda
    for name in ("triton", "nvtx"):
        # a package loaded from a bare folder has no distribution
        with suppress(PackageNotFoundError):
            if name in sys.modules:
                versions[name] = version(name)
    return versions


def _gpu() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        return str(torch.cuda.get_device_name())
    except RuntimeError:
        # after a failed kernel every CUDA call of the process fails; the rest is still written
        return None
