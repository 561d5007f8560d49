"""What a workload is given, and what it makes of that."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from nsysflow.handshake import Window
from nsysflow.peaks import Unit

if TYPE_CHECKING:
    from nsysflow.workloads.table import Table

Options = TypeVar("Options")

On = Literal["cuda", "cpu"]
Precision = Literal["float", "bf16"]


@dataclass(frozen=True, kw_only=True)
class Config(Generic[Options]):
    """One run of a workload.

    Attributes:
        workload: its name, and its module's, and its function's.
        variant: which way it does its work; the result is the same for all.
        on: `cuda`, or `cpu` for a smoke run.
        precision: of what it computes with.
        seed: of its weights and data.
        window: it runs `wait + warmup + active` steps.
        options: its own; each workload's module has its `Options`.
    """

    workload: str
    variant: str
    on: On
    precision: Precision
    seed: int = 0
    window: Window
    options: Options

    @property
    def dtype(self) -> torch.dtype:
        """What tensors hold."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @property
    def unit(self) -> Unit:
        """What matrix products are computed in: float32 ones as TF32, where there is that."""
        if self.precision == "bf16":
            return "bf16"
        return "tf32" if self.cuda else "float32"

    @property
    def placed(self) -> dict[str, Any]:
        """Where tensors live and what they hold, for whatever makes one."""
        return {"device": self.on, "dtype": self.dtype}

    @property
    def cuda(self) -> bool:
        """Whether there are streams, events, graphs and pinned memory."""
        return self.on == "cuda"


@dataclass(frozen=True, kw_only=True)
class Flops:
    """What a step computes, by formula: what its matrix products need, and nothing else.

    Attributes:
        unit: in which arithmetic.
        phases: the number of each phase that computes something, by the name of its range; of
            phases inside one another, each operation in one of them.
    """

    unit: Unit
    phases: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a workload makes of its config: all is set up, and no step done yet.

    Attributes:
        step: one step, given what was fetched for it.
        result: what came out, once the steps are done; equal for every variant.
        batches: from a number of steps to what is fetched, a batch each, in the `data` phase.
        flops: what a step computes; None where that is not what it is about.
        note: where this run falls short of its variant, for the printed line; empty if nowhere.
        table: compares and times its phases, once all else is done; None where it has none.
    """

    step: Callable[[int], None]
    result: Callable[[], Tensor]
    batches: Callable[[int], Iterable[int]] = range
    flops: Flops | None = None
    note: str = ""
    table: "Callable[[], Table] | None" = None
