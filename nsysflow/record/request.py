"""A request to `nsysflow profile`: what runs, how it is recorded, whether Python is sampled; what
is refused of it before anything runs, and who records on this machine.
"""

import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Final, Literal

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.base.peaks import Unit
from nsysflow.catalog.catalog import find, find_variant, workloads
from nsysflow.nsys.installations import find_nsys
from nsysflow.nsys.program import ASSUMED, GIL, Nsys, too_old_for
from nsysflow.nsys.run import importer_problem
from nsysflow.record.machine import Gpus
from nsysflow.runtime.protocol import Backtrace, Collector, Window


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run to make.

    Attributes:
        command: the program and its arguments.
        name: the run's name, e.g. `nan_check-sync` or `train`.
        workload: the built-in workload's name; None for any other command.
        on: `cuda`, or `cpu` for a run without a GPU.
        folder: the run's folder.
        window: the steps to capture; None for the whole run.
        record_all: record the program to its end; else the recording ends once it holds enough.
        plain_run: run the program without a profiler first, until some of its steps are timed.
        stop: end the program once its window, or enough, is recorded.
        delay_s: record nothing for so long after the start.
        duration_s: record for so long, then end the program; None for as long as it runs.
        annotate: give PyTorch programs steps and phases of ours.
        collector: who records; None for nsys, or torch.profiler if there is no nsys.
        trace: what nsys traces, e.g. `("cuda", "nvtx", "osrt")`.
        graph_trace: record a CUDA graph as all its nodes, or as one operation.
        backtrace: the CUDA calls whose Python lines to record; None for those that block the host,
            where they can be recorded.
        sample_python: samples of the Python stack per second, 0 for none; None for the default,
            which `sampling.with_sampling` fills in.
        gpu_metrics: sample the GPU's counters.
        memory: record what PyTorch's allocator and CUDA allocate.
        shapes: record the shapes of operators and the memory that PyTorch allocates.
        readings: read in each process clocks, power, temperature and traffic of its GPUs, and how
            long the launching thread waits for a CPU.
        processes: how many ranks torchrun starts; None without torchrun.
        nsys: the nsys to use; found automatically when None.
        nsys_args: passed to `nsys profile` unchanged.
        flops_per_step: the FLOPs of one step of one rank; None if not given.
        flops_dtype: the arithmetic of those FLOPs.
        own: packages and paths that are the program's own, although they are installed ones.
    """

    command: tuple[str, ...]
    name: str
    workload: str | None = None
    on: Literal["cuda", "cpu"] = "cuda"
    folder: Path
    window: Window | None = None
    record_all: bool = False
    plain_run: bool = False
    stop: bool = False
    delay_s: float | None = None
    duration_s: float | None = None
    annotate: bool = False
    collector: Collector | None = None
    trace: tuple[str, ...] = ("cuda", "nvtx")
    graph_trace: Literal["node", "graph"] = "node"
    backtrace: Backtrace | None = None
    sample_python: int | None = None
    gpu_metrics: bool = False
    memory: bool = False
    shapes: bool = False
    readings: bool = True
    processes: int | None = None
    nsys: Path | None = None
    nsys_args: tuple[str, ...] = ()
    flops_per_step: float | None = None
    flops_dtype: Unit | None = None
    own: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether the recording ends by itself once it holds enough, while the program goes on."""
        timed = self.delay_s is not None or self.duration_s is not None
        return not (self.record_all or self.window or timed)

    @property
    def ends_program(self) -> bool:
        """Whether we end the program, once what was asked for is recorded."""
        return self.stop or self.duration_s is not None

    @property
    def needs_json(self) -> bool:
        """Whether its exports need events' JSON, which holds Python frames and the sizes of NCCL's
        messages."""
        lines = self.backtrace != "none" or bool(self.sample_python)
        return lines or self.processes is not None


DEFAULT_HZ: Final = 1_000


def with_sampling(request: Request, nsys: Nsys | None) -> tuple[Request, tuple[str, ...]]:
    """The request with a frequency, and what to tell the user about it.

    nsys samples by default where it can, which costs little. torch.profiler would record every call
    of a Python function instead, so that it does so only if asked.

    Args:
        request: what was asked.
        nsys: the nsys that records; None for torch.profiler.

    Raises:
        CaptureError: samples were asked for, and this nsys cannot record them.
    """
    hz = request.sample_python
    if nsys is None or hz == 0:
        return replace(request, sample_python=hz or 0), ()
    if nsys.samples_python:
        return replace(request, sample_python=hz or DEFAULT_HZ), ()
    missing = f"nsys {nsys.version_text} cannot sample Python and export what it saw"
    if hz:
        raise CaptureError(
            f"--sample-python needs a newer nsys: {missing}",
            "Record without it, or see how to get another nsys",
            "nsysflow doctor",
        )
    note = (
        f"{missing}, so the page will not say what the host ran. Use a newer nsys (see nsysflow"
        " doctor)"
    )
    return replace(request, sample_python=0), (note,)


def require_gil(request: Request, nsys: Nsys | None) -> None:
    """Refuse to trace Python's lock where the profiler cannot.

    Args:
        request: what was asked.
        nsys: the nsys that records; None for torch.profiler.

    Raises:
        CaptureError: it was asked for, and cannot be recorded.
    """
    if GIL not in request.trace or (nsys is not None and nsys.traces_gil):
        return
    if nsys is None:
        seen = "--gil needs nsys, and torch.profiler would record this run"
    else:
        seen = f"--gil needs another nsys: nsys {nsys.version_text} cannot trace Python's lock"
    raise CaptureError(
        seen,
        "Record without it, or see which nsys is here and how to get another",
        "nsysflow doctor",
    )


def workload_command(
    workload: str,
    variant: str | None,
    precision: str | None,
    on: str,
    window: Window | None,
    options: tuple[str, ...],
) -> tuple[str, tuple[str, ...]]:
    """The run's name, and the command.

    Args:
        workload: the workload's name.
        variant: the variant's name; the default one when None.
        precision: `float` or `bf16`; the workload's default when None.
        on: `cuda` or `cpu`.
        window: the steps to run, of which the active ones are captured; its default when None.
        options: the workload's own options, as typed after `--`.

    Raises:
        UnknownWorkload: there is no workload or variant of that name.
    """
    chosen = find_variant(find(workload), variant).name
    typed = {
        "--variant": chosen,
        "--on": on,
        "--precision": precision,
        "--capture": str(window) if window else None,
    }
    words = [word for name, value in typed.items() if value for word in (name, value)]
    # -P: the working folder may contain a `workloads` that must not be imported
    command = (sys.executable, "-P", "-m", "nsysflow.workloads", workload, *words, *options)
    return f"{workload}-{chosen}", command


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
