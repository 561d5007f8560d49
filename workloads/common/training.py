"""What a workload is given and returns, and work that workloads share: a training step, long
kernels, batches, steps that are lists of phases, and their FLOPs.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from nsysflow.base.peaks import Unit
from nsysflow.runtime.protocol import Window
from nsysflow.runtime.regions import Region, region
from nsysflow.workloads.common.measurement import AnyPhase, Phase, Table, WorkloadRegion, captured

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
    table: Callable[[], Table] | None = None


class Matmuls:
    """The same matrix product, repeated into the same output.

    Attributes:
        out: the product (size, size). Its elements have variance 1.
    """

    def __init__(self, config: Config[Any], size: int) -> None:
        self._left = torch.randn(size, size, **config.placed)
        self._right = torch.randn(size, size, **config.placed) / size**0.5
        self.out = torch.zeros_like(self._left)

    def launch(self, times: int) -> None:
        """Multiply `times` times, with one or two kernels each."""
        for _ in range(times):
            torch.mm(self._left, self._right, out=self.out)


@dataclass(frozen=True, kw_only=True)
class Loader:
    """The numbers of the batches; each takes some host work, as reading and decoding would.

    Attributes:
        count: how many batches.
        work_ms: the time that each takes. The host spins, so it is the same on every machine.
    """

    count: int
    work_ms: float

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for index in range(self.count):
            until_ns = time.perf_counter_ns() + round(self.work_ms * 1_000_000)
            while time.perf_counter_ns() < until_ns:
                pass
            yield index


def product(m: int, n: int, k: int) -> int:
    """Operations of the product of (m, k) and (k, n)."""
    return 2 * m * n * k


def perceptron_flops(rows: int, widths: Sequence[int]) -> dict[str, int]:
    """Operations of a training step of linear layers, by phase.

    Backward computes a gradient for each weight and for each input except the first.

    Args:
        rows: rows of the batch.
        widths: widths of the input, between the layers, and of the output.
    """
    layers = [product(rows, fan_out, fan_in) for fan_in, fan_out in pairwise(widths)]
    return {Region.FORWARD: sum(layers), Region.BACKWARD: 2 * sum(layers) - layers[0]}


class Training:
    """Linear layers with ReLU between them, squared error and AdamW. No step waits for the GPU.

    Attributes:
        flops: the operations of a step.
    """

    def __init__(
        self,
        config: Config[Any],
        widths: Sequence[int],
        batch: int,
        *,
        bias: bool = True,
        parallel: Callable[[nn.Module], nn.Module] | None = None,
        reduce: Callable[[list[Tensor]], None] | None = None,
    ) -> None:
        """Create weights and a target on the device.

        Args:
            config: device and precision.
            widths: widths of the input, between the layers, and of the output.
            batch: rows of a batch.
            bias: whether the layers have biases.
            parallel: wraps the model for training on several ranks.
            reduce: called with the weights at the end of backward, to reduce their gradients.
        """
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out, bias=bias, **config.placed), nn.ReLU()]
        self.flops = Flops(unit=config.unit, phases=perceptron_flops(batch, widths))
        model = nn.Sequential(*layers[:-1])
        self._model = parallel(model) if parallel else model
        self._reduce = reduce
        # fused: two launches for all parameters
        self._optimizer = torch.optim.AdamW(self._model.parameters(), fused=config.cuda)
        self._target = torch.randn(batch, widths[-1], **config.placed)
        self._loss = torch.zeros((), **config.placed)

    def loss(self) -> Tensor:
        """The loss of the last step, a scalar on the device."""
        return self._loss

    def weights(self) -> list[Tensor]:
        """The weights, first layer first."""
        return [*self._model.parameters()]

    def step(self, batch: Tensor) -> Tensor:
        """Train on `batch` (batch, widths[0]) and return the loss, a scalar on the device."""
        with region(Region.FORWARD):
            out = self._model(batch)
        with region(Region.LOSS):
            loss = functional.mse_loss(out, self._target)
        with region(Region.BACKWARD):
            loss.backward()
            if self._reduce:
                self._reduce(self.weights())
        with region(Region.OPTIMIZER):
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        self._loss = loss.detach()
        return self._loss


def runnable_variant(config: Config[Any]) -> str:
    """The variant that can run here: without a GPU it is always `torch`."""
    return config.variant if config.cuda else "torch"


def work_of_phases(
    config: Config[Any],
    phases: Sequence[AnyPhase],
    *,
    restart: Callable[[], None],
    result: Callable[[], Tensor],
    table: Callable[[], Table],
) -> Work:
    """A workload whose step runs these phases.

    Args:
        config: the variant `graph` captures all phases once and replays them in one range.
        phases: the phases of `runnable_variant`.
        restart: undoes the effect of running the phases once.
        result: as in `Work`.
        table: as in `Work`; it needs a GPU.
    """

    def launch() -> None:
        for phase in phases:
            phase()

    step: Callable[[], None] = launch
    if runnable_variant(config) == "graph":
        step = Phase(name=WorkloadRegion.REPLAY, work=captured(launch))
        restart()
    return Work(
        step=lambda _batch: step(),
        result=result,
        note="" if runnable_variant(config) == config.variant else "as torch: no GPU here",
        table=table if config.cuda else None,
    )
