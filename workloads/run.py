"""Run a workload: a function from a config to steps, driven through `nsysflow.steps`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from nsysflow.catalog import Workload
from nsysflow.errors import WorkloadError
from nsysflow.handshake import rank
from nsysflow.stepping import steps
from nsysflow.telling import RECORD
from nsysflow.workloads.config import Config, On, Work
from nsysflow.workloads.table import Table


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run gave.

    Attributes:
        device: the GPU's name, or `the CPU`.
        steps: how many were run.
        result: on the CPU; the same for every variant.
        note: where the run fell short of its variant.
        table: its phases compared and timed, if the workload does that.
    """

    config: Config[Any]
    device: str
    steps: int
    result: Tensor
    note: str
    table: Table | None

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "workload": self.config.workload,
            "variant": self.config.variant,
            "precision": self.config.precision,
            "seed": self.config.seed,
            "options": asdict(self.config.options),
            "device": self.device,
            "note": self.note,
            "steps": self.steps,
            "result": self.result.double().mean().item(),
            "table": self.table.record if self.table else None,
        }

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        table = f"\n\n{self.table}" if self.table else ""
        return (
            f"{self.config.workload} {self.config.variant} on {self.device}{note}:"
            f" {self.steps} steps, result {self.result.double().mean().item():.6g}{table}"
        )


def options_of(workload: Workload, on: On, typed: Mapping[str, float]) -> Any:  # noqa: ANN401
    """The workload's `Options`: what was typed, and else the catalog's values for `on`."""
    values = {o.name: o.toy if on == "cpu" else o.default for o in workload.options}
    return _module(workload.name).Options(**(values | dict(typed)))


def run(config: Config[Any]) -> Outcome:
    """Run the steps of a workload.

    Raises:
        WorkloadError: it is to run on a GPU and there is none, or it stopped itself.
    """
    RECORD.config = asdict(config)
    device = _use_gpu(config) if config.cuda else _use_cpu()
    torch.manual_seed(config.seed)
    work: Work = getattr(_module(config.workload), config.workload)(config)
    if work.flops is not None:
        RECORD.flops = {"unit": work.flops.unit, "phases": dict(work.flops.phases)}
    window = config.window
    count = window.wait + window.warmup + window.active
    batches = work.batches(count)
    for batch in steps(batches, wait=window.wait, warmup=window.warmup, active=window.active):
        work.step(batch)
    result = work.result().detach().cpu()
    # only now, so that no step that was captured waits for it
    table = work.table() if work.table else None
    return Outcome(
        config=config, device=device, steps=count, result=result, note=work.note, table=table
    )


def _use_gpu(config: Config[Any]) -> str:
    """Choose this rank's GPU, and say its name."""
    if not torch.cuda.is_available():
        msg = (
            f"torch {torch.__version__} sees no GPU here, and {config.workload} is to run on one."
            " For a smoke run at toy size:\n"
            f"  nsysflow profile {config.workload} --on cpu"
        )
        raise WorkloadError(msg)
    torch.cuda.set_device(rank() or 0)
    if config.precision == "float":
        # TF32: by the H200's data sheet full float32 has a seventh of its rate (67 against 495
        # TFLOP/s), and what the host costs would be small beside such long kernels
        torch.set_float32_matmul_precision("high")
    return torch.cuda.get_device_name()


def _use_cpu() -> str:
    # at toy size a second thread has nothing to do, and the wait for it took up to 200 ms a layer
    # on two busy cores (torch 2.13.0, 2026-11-20)
    torch.set_num_threads(1)
    return "the CPU"


def _module(workload: str) -> Any:  # noqa: ANN401
    try:
        return import_module(f"nsysflow.workloads.{workload}")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        msg = f"{workload} needs Triton, which is not installed here:\n  pip install triton"
        raise WorkloadError(msg) from error
