"""What was asked of `nsysflow profile`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nsysflow.handshake import Window
from nsysflow.peaks import Unit


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run to be made.

    Attributes:
        command: the program and its arguments.
        name: what to call the run, e.g. `nan_check-sync` or `train`.
        workload: the built-in workload's name; None for any other command.
        on: what it computes on.
        folder: the run's directory.
        window: the steps to capture; None for the whole run.
        collector: who records; None for nsys, and torch.profiler where there is no nsys.
        trace: what nsys traces, e.g. `("cuda", "nvtx", "osrt")`.
        graph_trace: whether a CUDA graph is one operation or all its nodes.
        backtrace: record the Python line of each CUDA call.
        gpu_metrics: sample the GPU's counters.
        processes: how many ranks torchrun starts; None without torchrun.
        nsys: the nsys to use; found by itself when None.
        nsys_args: handed to `nsys profile` as they are.
        flops_per_step: what one step of one rank computes; None where nobody said.
        flops_dtype: in which arithmetic.
    """

    command: tuple[str, ...]
    name: str
    workload: str | None = None
    on: Literal["cuda", "cpu"] = "cuda"
    folder: Path
    window: Window | None = None
    collector: Literal["nsys", "kineto"] | None = None
    trace: tuple[str, ...] = ("cuda", "nvtx")
    graph_trace: Literal["node", "graph"] = "node"
    backtrace: bool = False
    gpu_metrics: bool = False
    processes: int | None = None
    nsys: Path | None = None
    nsys_args: tuple[str, ...] = ()
    flops_per_step: float | None = None
    flops_dtype: Unit | None = None

    @property
    def wants_json(self) -> bool:
        """Whether its exports are to hold events' JSON: Python frames stand there, and the sizes of
        NCCL's messages."""
        return self.backtrace or self.processes is not None
