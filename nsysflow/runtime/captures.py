"""What starts and stops the recording of a window of steps: nsys, or a torch.profiler.

Both wait for the GPU when they start and when they stop, so that the window holds exactly the work
launched in it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

from nsysflow.runtime.cpu import READER
from nsysflow.runtime.gpu_states import SAMPLER
from nsysflow.runtime.loaders import LOADERS
from nsysflow.runtime.loaders import mark_of as mark_of_loader
from nsysflow.runtime.memory import HISTORY
from nsysflow.runtime.process import scratch_file
from nsysflow.runtime.protocol import (
    DOMAIN,
    KEY,
    MEMORY,
    OPENER,
    OPENING_RANGE,
    RUN_FOLDER,
    SHAPES,
    STACKS,
    Collector,
    rank,
)
from nsysflow.runtime.regions import (
    GAVE_UP,
    SEEN,
    list_noted,
    mark,
    warn_nothing_recorded,
)

if TYPE_CHECKING:
    from nsysflow.runtime.cpu import Values
    from nsysflow.runtime.gpu_states import State

WindowMark = dict[str, Any]
"""What the report says about its window: `capture`, `unprofiled_step_ns`, perhaps `flops`."""

_COMPACT: Final = json.JSONEncoder(separators=(",", ":"))
"""Made once: `json.dumps` makes one each time, which takes 8 us."""

_INSTEAD: Final = "Switch it off for this run, or let nsys record:\n  --collector nsys\n"


class ProfilerCapture(Protocol):
    """One recording, which starts once and stops once."""

    def start(self, about: WindowMark | None) -> None:
        """Start to record; `about` becomes the first thing in the report."""

    def stop(self) -> None:
        """Stop, once the GPU has finished what was launched."""


def new_capture(collector: Collector) -> ProfilerCapture:
    """The capture for this process's collector; `NoCapture` if its package is missing."""
    try:
        if collector == "kineto":
            return KinetoCapture(import_module("torch.profiler"))
        if os.environ.get(OPENER) == "nvtx":
            return NvtxRangeCapture(import_module("nvtx"))
    except ImportError:
        warn_nothing_recorded(collector)
        return NoCapture()
    return CudaProfilerCapture()


def synchronize() -> None:
    """Wait for the GPUs that this process uses through torch: the current one, and all on which it
    holds memory."""
    torch = _torch_on_gpu()
    if torch is None:
        return
    torch.cuda.synchronize()
    for device in range(torch.cuda.device_count()):
        if torch.cuda.memory_reserved(device):
            torch.cuda.synchronize(device)


def mark_reading(key: str, values: Values) -> None:
    """Record a mark with a reading of CPUs."""
    mark_readings(key, [values])


def mark_readings(key: str, readings: Sequence[State]) -> None:
    """Record a mark with readings, such as those of GPUs."""
    mark(_COMPACT.encode({KEY: {key: readings}}))


def mark_loaders(clock_ns: int, about: str) -> None:
    """Record a mark about a loader."""
    mark(mark_of_loader(clock_ns, about))


class CudaProfilerCapture:
    """From `cudaProfilerStart` to `cudaProfilerStop`, for `nsys -c cudaProfilerApi`.

    Without a GPU there is nothing to start, and only the mark is recorded.
    """

    def start(self, about: WindowMark | None) -> None:
        synchronize()
        torch = _torch_on_gpu()
        if torch is not None:
            torch.cuda.profiler.start()
        if about is not None:
            mark(json.dumps({KEY: about}))
        list_noted(mark)
        SAMPLER.begin(mark_readings)
        READER.begin(mark_reading)
        LOADERS.begin(mark_loaders)
        HISTORY.begin(mark)

    def stop(self) -> None:
        SAMPLER.end(mark_readings)
        READER.end(mark_reading)
        LOADERS.end(mark_loaders)
        torch = _torch_on_gpu()
        if torch is None:
            return
        try:
            synchronize()
            HISTORY.save()  # after the last step: the program may be ended once nsys has stopped
        finally:  # a failed kernel raises in the wait; keep what was recorded before it
            torch.cuda.profiler.stop()


class NvtxRangeCapture:
    """An NVTX range, for nsys in a run without a GPU, where there is no CUDA call to wait for."""

    def __init__(self, nvtx: ModuleType) -> None:
        self._nvtx = nvtx

    def start(self, about: WindowMark | None) -> None:
        self._nvtx.push_range(OPENING_RANGE, domain=DOMAIN)
        if about is not None:
            mark(json.dumps({KEY: about}))
        READER.begin(mark_reading)
        LOADERS.begin(mark_loaders)

    def stop(self) -> None:
        READER.end(mark_reading)
        LOADERS.end(mark_loaders)
        self._nvtx.pop_range(domain=DOMAIN)


class KinetoCapture:
    """A trace of torch.profiler, written to the run's folder or else to the working folder.

    A process can have one active torch.profiler. A second one replaces it, and exporting the trace
    of the first is then a segmentation fault (torch 2.13.0, 2026-11): if the program uses its own,
    we do not start ours.
    """

    def __init__(self, profiler: ModuleType) -> None:
        self._profiler = profiler
        self._profile: Any = None
        self._about: WindowMark = {}
        self._readings: dict[str, list[tuple[int, Sequence[int | None]]]] = {}
        self._loaders: list[tuple[int, dict[str, Any]]] = []

    def start(self, about: WindowMark | None) -> None:
        torch = import_module("torch")
        if torch.autograd._profiler_enabled() or _active_profilers(torch):
            sys.stderr.write(
                "nsysflow: this process is not recorded: the program's own torch.profiler is"
                f" running when the window opens, and only one can record. {_INSTEAD}"
            )
            return
        activities = [self._profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(self._profiler.ProfilerActivity.CUDA)
        synchronize()
        self._profile = self._profiler.profile(
            activities=activities,
            record_shapes=SHAPES in os.environ,
            profile_memory=SHAPES in os.environ or MEMORY in os.environ,
            with_stack=STACKS in os.environ,
        )
        self._profile.start()
        if about is not None:
            self._about = about
            self._profile.add_metadata_json(KEY, json.dumps(about))
        SAMPLER.begin(self._keep_all)
        READER.begin(self._keep)
        LOADERS.begin(self._keep_loaders)

    def _keep_all(self, key: str, readings: Sequence[State]) -> None:
        for reading in readings:
            self._keep(key, reading)

    def _keep(self, key: str, values: Sequence[int | None]) -> None:
        """Keep a reading with the time of the system's clock, which Kineto's is."""
        self._readings.setdefault(key, []).append((time.time_ns(), values))

    def _keep_loaders(self, clock_ns: int, about: str) -> None:
        """Keep what is new of a loader, with both clocks at the same time."""
        now_ns = time.time_ns()
        self._loaders.append((now_ns, {"clock_ns": clock_ns, **json.loads(about)}))

    def stop(self) -> None:
        if self._profile is None:
            return
        SAMPLER.end(self._keep_all)
        READER.end(self._keep)
        LOADERS.end(self._keep_loaders)
        try:
            synchronize()
        finally:
            if self._still_records():
                beside = {
                    **self._readings,
                    "loaders": self._loaders,
                    "gave_up": GAVE_UP,
                    **SEEN,
                }
                if any(beside.values()):
                    about = {**self._about, **{key: kept for key, kept in beside.items() if kept}}
                    self._profile.add_metadata_json(KEY, json.dumps(about))
                self._profile.stop()
                self._export()
            else:
                sys.stderr.write(
                    "nsysflow: this process has no trace: our torch.profiler stopped before the"
                    " window closed. Either the program started its own torch.profiler, or the"
                    f" thread that opened the window ended. {_INSTEAD}"
                )

    def _still_records(self) -> bool:
        torch = import_module("torch")
        enabled: bool = torch.autograd._profiler_enabled()
        return enabled and _active_profilers(torch) == [self._profile.profiler]

    def _export(self) -> None:
        name = "report" if rank() is None else f"rank{rank()}"
        folder = Path(os.environ.get(RUN_FOLDER, "."))
        try:
            with scratch_file(folder, ".json.gz") as scratch:
                self._profile.export_chrome_trace(str(scratch))
                scratch.replace(_unused_file(folder, name))
        except OSError as error:  # the program's work is worth more than its trace
            sys.stderr.write(f"nsysflow: cannot write the trace: {error}\n")


def _unused_file(folder: Path, name: str) -> Path:
    """A new, empty trace file: another process of the run may already have left a `name`."""
    for own in (name, f"{name}-{os.getpid()}"):
        path = folder / f"{own}.pt.trace.json.gz"
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            break
    return path


def _active_profilers(torch: ModuleType) -> list[object]:
    """torch's profilers that record, or warm up and will record.

    torch keeps no list of them, and its flag does not count those that warm up.
    """
    kind = torch.autograd.profiler.profile
    return [
        profile
        for profile in gc.get_referrers(kind)
        if type(profile) is kind and profile.enabled  # a disabled one lacks the other attributes
        if profile.entered and profile.kineto_results is None
    ]


class NoCapture:
    """A window that nobody records."""

    def start(self, about: WindowMark | None) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""


def _torch_on_gpu() -> ModuleType | None:
    """torch, if it has already started CUDA in this process; asking must not start it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None
