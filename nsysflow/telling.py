"""What this process tells `nsysflow profile` of itself: kept while it runs, then left in a file."""

import atexit
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

from nsysflow.handshake import RUN_FOLDER, Told, rank, tell


@dataclass(kw_only=True)
class Record:
    """What happened so far; the fields are those of `Told`, and three more.

    Attributes:
        flops: what a step computes, where a built-in workload says so: `unit`, and `phases` with a
            number each.
        warmup_ns: time spent in warm-up steps, over all loops that had some.
        warmup_steps: how many those were.
    """

    ranges: int = 0
    steps: int = 0
    captured: int = 0
    window: Literal["never", "open", "closed"] = "never"
    unprofiled_step_ns: int | None = None
    config: dict[str, Any] | None = None
    flops: dict[str, Any] | None = None
    warmup_ns: int = 0
    warmup_steps: int = 0


RECORD: Final = Record()


@cache
def tell_at_exit() -> None:
    """Leave the file when the process ends; called by whatever has something to tell."""
    atexit.register(_tell_as, os.getpid())


@cache
def tell_at_first_loop() -> None:
    """Leave the file once: a program that is killed before its window still used `steps`."""
    tell_now()


def tell_now(*, at_end: bool = False) -> None:
    """Leave the file in the run's directory, if `nsysflow profile` named one.

    A directory that is gone or full does not stop the program; stderr says so, once.
    """
    folder = os.environ.get(RUN_FOLDER)
    if not folder:
        return
    try:
        tell(Path(folder), _told(at_end=at_end))
    except OSError as error:
        _say_untold(str(error))


@cache
def _say_untold(why: str) -> None:
    sys.stderr.write(f"nsysflow: what this process did could not be noted down: {why}\n")


def _tell_as(pid: int) -> None:
    # a forked DataLoader worker inherits the handler, and must not tell for its parent
    if os.getpid() == pid:
        tell_now(at_end=True)


def _told(*, at_end: bool) -> Told:
    return Told(
        pid=os.getpid(),
        at_end=at_end,
        rank=rank(),
        versions=_versions(),
        gpu=_gpu(),
        ranges=RECORD.ranges,
        steps=RECORD.steps,
        captured=RECORD.captured,
        window=RECORD.window,
        unprofiled_step_ns=RECORD.unprofiled_step_ns,
        config=RECORD.config,
    )


def _versions() -> dict[str, str]:
    """Of Python, and of what this process has loaded."""
    found = {"python": platform.python_version()}
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        if torch.version.cuda is not None:
            found["cuda"] = torch.version.cuda
    for name in ("triton", "nvtx"):
        # both name their distribution so; one loaded from a bare folder has none
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
        # after a failed kernel every CUDA call of the process fails; tell the rest all the same
        return None
