"""A step as phases, each a range and what it does: to be run, or timed one by one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from nsysflow.regions import region


class Own(StrEnum):
    """The workloads' own names of ranges, beside the vocabulary of `Region`."""

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
        name: of its range.
        work: what it does.
        empty: whether that launches nothing, as another phase does it too.
    """

    name: str
    work: Callable[[], None]
    empty: bool = False

    def __call__(self) -> None:
        """Do it, in its range."""
        with region(self.name):
            self.work()


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Several on end, in a range of their own."""

    name: str
    parts: tuple[Phase, ...]

    def __call__(self) -> None:
        """Do them, in their ranges."""
        with region(self.name):
            for part in self.parts:
                part()


AnyPhase = Phase | Phases


def parts_of(phases: Sequence[AnyPhase]) -> Iterator[Phase]:
    """The phases without parts, in order."""
    for phase in phases:
        if isinstance(phase, Phases):
            yield from phase.parts
        else:
            yield phase
