"""A step as phases, and work captured as a CUDA graph."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

from nsysflow.runtime.regions import region


class WorkloadRegion(StrEnum):
    """Names of ranges that only the workloads use, in addition to `Region`."""

    ENCODER = "encoder"
    RNN = "rnn"
    DECODER = "decoder"
    COMPUTE_ADVANTAGE = "compute_advantage"
    COMPUTE_PRIO = "compute_prio"
    SELECT_AND_COPY = "train_select_and_copy"
    REPLAY = "replay"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a step.

    Attributes:
        name: the name of its range.
        work: runs it.
        empty: whether it launches nothing, because another phase does its work too.
    """

    name: str
    work: Callable[[], None]
    empty: bool = False

    def __call__(self) -> None:
        """Run it in its range."""
        with region(self.name):
            self.work()


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Several phases in a row, inside one range."""

    name: str
    parts: tuple[Phase, ...]

    def __call__(self) -> None:
        """Run the parts, each in its range."""
        with region(self.name):
            for part in self.parts:
                part()


AnyPhase = Phase | Phases


def parts_of(phases: Sequence[AnyPhase]) -> Iterator[Phase]:
    """The phases that contain no others, in order."""
    for phase in phases:
        if isinstance(phase, Phases):
            yield from phase.parts
        else:
            yield phase


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """A function that replays `work` as a CUDA graph, with one launch.

    Args:
        work: launches kernels on static tensors. It must not allocate memory that outlives it, and
            must not wait. It runs once before the capture, because code loads lazily.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
