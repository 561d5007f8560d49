"""What opens and closes the window of steps that is captured: nsys's range, or a torch.profiler.

Waiting for the GPU on both sides keeps work launched before the window out of it, and work
launched in it inside.
"""

import gc
import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from nsysflow.handshake import DOMAIN, KEY, OPENER, OPENING_RANGE, RUN_FOLDER, rank
from nsysflow.recorders import Collector
from nsysflow.regions import mark, say_that_nothing_is_recorded

Announcement = dict[str, Any]
"""What the report is to say of its window: `capture`, `unprofiled_step_ns`, perhaps `flops`."""

_INSTEAD: Final = "Take that out for this run, or let nsys record:\n  --collector nsys\n"


class Capture(Protocol):
    """One capture, which starts once and stops once."""

    def start(self, announcement: Announcement | None) -> None:
        """Begin to record; the announcement is the first thing in the report."""

    def stop(self) -> None:
        """End it, once the GPU has done what was launched."""


def capture_with(collector: Collector) -> Capture:
    """A capture by whoever profiles this process; by nobody, and stderr says so, where the package
    for it is missing."""
    try:
        if collector == "kineto":
            return KinetoTrace(import_module("torch.profiler"))
        if os.environ.get(OPENER) == "nvtx":
            return NvtxRange(import_module("nvtx"))
    except ImportError:
        say_that_nothing_is_recorded(collector)
        return Unrecorded()
    return CudaProfilerRange()


def synchronize() -> None:
    """Wait for every GPU that this process uses through torch: the current one, and those on which
    it holds memory."""
    torch = _torch_on_gpu()
    if torch is None:
        return
    torch.cuda.synchronize()
    for device in range(torch.cuda.device_count()):
        if torch.cuda.memory_reserved(device):
            torch.cuda.synchronize(device)


class CudaProfilerRange:
    """From `cudaProfilerStart` to `cudaProfilerStop`: nsys records that with `-c cudaProfilerApi`.

    Without a GPU there is nothing to start, and only the mark is left.
    """

    def start(self, announcement: Announcement | None) -> None:
        synchronize()
        torch = _torch_on_gpu()
        if torch is not None:
            torch.cuda.profiler.start()
        if announcement is not None:
            mark(json.dumps({KEY: announcement}))

    def stop(self) -> None:
        torch = _torch_on_gpu()
        if torch is None:
            return
        try:
            synchronize()
        finally:  # a failed kernel is reported by the wait; what was recorded until then is kept
            torch.cuda.profiler.stop()


class NvtxRange:
    """An NVTX range that nsys waits for where no CUDA call can tell it: a run without a GPU."""

    def __init__(self, nvtx: ModuleType) -> None:
        self._nvtx = nvtx

    def start(self, announcement: Announcement | None) -> None:
        self._nvtx.push_range(OPENING_RANGE, domain=DOMAIN)
        if announcement is not None:
            mark(json.dumps({KEY: announcement}))

    def stop(self) -> None:
        self._nvtx.pop_range(domain=DOMAIN)


class KinetoTrace:
    """A trace of torch.profiler, left in the run's directory or else where the program runs.

    One torch.profiler at a time records in a process. A second one takes the first one's place, and
    to export the first one's trace is then a segmentation fault (torch 2.13.0, 2026-11): the
    program's own goes before ours.
    """

    def __init__(self, profiler: ModuleType) -> None:
        self._profiler = profiler
        self._profile: Any = None

    def start(self, announcement: Announcement | None) -> None:
        torch = import_module("torch")
        if torch.autograd._profiler_enabled() or _prepared(torch):
            sys.stderr.write(
                "nsysflow: the program's own torch.profiler runs where the window begins, and only"
                f" one can: this process is not recorded. {_INSTEAD}"
            )
            return
        activities = [self._profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(self._profiler.ProfilerActivity.CUDA)
        synchronize()
        self._profile = self._profiler.profile(activities=activities)
        self._profile.start()
        if announcement is not None:
            self._profile.add_metadata_json(KEY, json.dumps(announcement))

    def stop(self) -> None:
        if self._profile is None:
            return
        try:
            synchronize()
        finally:
            if self._goes_on():
                self._profile.stop()
                self._export()
            else:
                sys.stderr.write(
                    "nsysflow: torch.profiler no longer recorded where the window ended, so this"
                    " process has no trace: the program started a torch.profiler of its own, or"
                    f" the thread that opened the window had ended. {_INSTEAD}"
                )

    def _goes_on(self) -> bool:
        torch = import_module("torch")
        enabled: bool = torch.autograd._profiler_enabled()
        return enabled and _prepared(torch) == [self._profile.profiler]

    def _export(self) -> None:
        name = "report" if rank() is None else f"rank{rank()}"
        folder = Path(os.environ.get(RUN_FOLDER, "."))
        scratch = folder / f".{name}-{os.getpid()}.pt.trace.json.gz"
        try:
            self._profile.export_chrome_trace(str(scratch))
            scratch.replace(_claimed(folder, name))
        except OSError as error:  # the program's work is worth more than its trace
            sys.stderr.write(f"nsysflow: the trace could not be written: {error}\n")


def _claimed(folder: Path, name: str) -> Path:
    """A file of this process's own: another one of the run may have left a trace under `name`."""
    for own in (name, f"{name}-{os.getpid()}"):
        path = folder / f"{own}.pt.trace.json.gz"
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            break
    return path


def _prepared(torch: ModuleType) -> list[object]:
    """The profilers of torch that record or warm up for it: those are in each other's way too.

    torch keeps no list of them, and its flag leaves out those that warm up.
    """
    kind = torch.autograd.profiler.profile
    return [
        profile
        for profile in gc.get_referrers(kind)
        if type(profile) is kind and profile.enabled  # else it has no more attributes
        if profile.entered and profile.kineto_results is None
    ]


class Unrecorded:
    """A window in which nobody records."""

    def start(self, announcement: Announcement | None) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""


def _torch_on_gpu() -> ModuleType | None:
    """torch, once it has started CUDA in this process: asking must not start it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None
