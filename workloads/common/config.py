"""What a workload is given, and what it returns."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from nsysflow.base.peaks import Unit
from nsysflow.runtime.protocol import Window

if TYPE_CHECKING:
    from nsysflow.workloads.common.measurement import Table

Options = TypeVar("Options")

On = Literal["cuda", "cpu"]
Precision = Literal["float", "bf16"]


@dataclass(frozen=True, kw_only=True)
class Config(Generic[Options]):
    """One run of a workload.

    Attributes:
        workload: the name of the workload, of its module and of its function.
        variant: which way it does its work; all variants give the same result.
        on: `cuda`, or `cpu` for a smoke run.
        precision: the precision it computes in.
        seed: seed of weights and data.
        window: the run has `wait + warmup + active` steps.
        options: an instance of the workload's own `Options`.
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
        """The dtype of tensors."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @property
    def unit(self) -> Unit:
        """The arithmetic of matrix products: on a GPU, float32 products run as TF32."""
        if self.precision == "bf16":
            return "bf16"
        return "tf32" if self.cuda else "float32"

    @property
    def placed(self) -> dict[str, Any]:
        """Device and dtype, as keyword arguments for functions that create tensors."""
        return {"device": self.on, "dtype": self.dtype}

    @property
    def cuda(self) -> bool:
        """Whether streams, events, graphs and pinned memory are available."""
        return self.on == "cuda"


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Floating-point operations of a step, by formula. Only matrix products count.

    Attributes:
        unit: the arithmetic they run in.
        phases: the operations of each phase by the name of its range. With nested phases, each
            operation counts in one phase only.
    """

    unit: Unit
    phases: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Work:
    """A workload that is set up and has not run a step yet.

    Attributes:
        step: runs one step on the batch fetched for it.
        result: the result after the last step; equal for every variant.
        batches: takes a number of steps and yields one batch for each, in the `data` phase.
        flops: the operations of a step; None if the workload is not about them.
        note: how this run differs from its variant, for the printed line; empty if it does not.
        table: compares and times the phases after all steps are done; None if there is no table.
    """

    step: Callable[[int], None]
    result: Callable[[], Tensor]
    batches: Callable[[int], Iterable[int]] = range
    flops: Flops | None = None
    note: str = ""
    table: "Callable[[], Table] | None" = None
