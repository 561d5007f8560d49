"""A request to `nsysflow profile`: what runs, how it is recorded, and whether Python is sampled."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from nsysflow.base.errors import CaptureError
from nsysflow.base.peaks import Unit
from nsysflow.catalog.catalog import find, find_variant
from nsysflow.nsys.argv import Backtrace
from nsysflow.nsys.program import Nsys
from nsysflow.runtime.collectors import Collector
from nsysflow.runtime.protocol import Window


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
