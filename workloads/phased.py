"""Workloads that are phases on end: launched one by one, or as one CUDA graph."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from nsysflow.workloads.config import Config, Work
from nsysflow.workloads.graphs import captured
from nsysflow.workloads.phases import AnyPhase, Own, Phase
from nsysflow.workloads.table import Table


def variant_here(config: Config[Any]) -> str:
    """What can run: without a GPU, PyTorch's own operations."""
    return config.variant if config.cuda else "torch"


def phased(
    config: Config[Any],
    phases: Sequence[AnyPhase],
    *,
    restart: Callable[[], None],
    result: Callable[[], Tensor],
    table: Callable[[], Table],
) -> Work:
    """A workload whose step is these phases.

    Args:
        config: variant `graph` captures all of them, once, and has one range `replay` in a step.
        phases: of `variant_here`.
        restart: undoes what running them once did.
        result: as in `Work`.
        table: as in `Work`; it needs a GPU.
    """

    def launch() -> None:
        for phase in phases:
            phase()

    step: Callable[[], None] = launch
    if variant_here(config) == "graph":
        step = Phase(name=Own.REPLAY, work=captured(launch))
        restart()
    return Work(
        step=lambda _batch: step(),
        result=result,
        note="" if variant_here(config) == config.variant else "as torch: no GPU here",
        table=table if config.cuda else None,
    )
