"""A request to `nsysflow profile`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nsysflow.base.peaks import Unit
from nsysflow.nsys import Backtrace
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
        stop: end the program once its window is recorded.
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
    def ends_program(self) -> bool:
        """Whether we end the program, once what was asked for is recorded."""
        return self.stop or self.duration_s is not None

    @property
    def needs_json(self) -> bool:
        """Whether its exports need events' JSON, which holds Python frames and the sizes of NCCL's
        messages."""
        lines = self.backtrace != "none" or bool(self.sample_python)
        return lines or self.processes is not None
