"""Run a workload: set it up from a config and drive its steps through `nsysflow.steps`."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Final

import torch
from torch import Tensor

from nsysflow.base.errors import WorkloadError
from nsysflow.catalog.catalog import Workload
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import PLAIN, rank
from nsysflow.runtime.steps import steps
from nsysflow.workloads.common.measurement import Table
from nsysflow.workloads.common.training import Config, On, Work

ENDLESS: Final = 10**9
"""The steps of a plain run, which `nsysflow profile` ends."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a run.

    Attributes:
        device: the GPU's name, or `the CPU`.
        steps: how many steps ran.
        result: on the CPU; equal for every variant.
        note: how the run differed from its variant.
        table: its phases compared and timed, if the workload has a table.
    """

    config: Config[Any]
    device: str
    steps: int
    result: Tensor
    note: str
    table: Table | None

    @property
    def record(self) -> dict[str, Any]:
        """The outcome as JSON."""
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


def options_of(workload: Workload, on: On, typed: Mapping[str, float]) -> Any:
    """The workload's `Options`: the typed values, and the catalog's values for the rest."""
    values = {o.name: o.toy if on == "cpu" else o.default for o in workload.options}
    return _module(workload.name).Options(**(values | dict(typed)))


def run(config: Config[Any]) -> Outcome:
    """Run the steps of a workload.

    Raises:
        WorkloadError: it needs a GPU and there is none, or it stopped itself.
    """
    THIS_PROCESS.config = asdict(config)
    device = _use_gpu(config) if config.cuda else _use_cpu()
    torch.manual_seed(config.seed)
    work: Work = getattr(_module(config.workload), config.workload)(config)
    if work.flops is not None:
        THIS_PROCESS.flops = {"unit": work.flops.unit, "phases": dict(work.flops.phases)}
    window = config.window
    count = ENDLESS if PLAIN in os.environ else window.wait + window.warmup + window.active
    batches = work.batches(count)
    for batch in steps(batches, wait=window.wait, warmup=window.warmup, active=window.active):
        work.step(batch)
    result = work.result().detach().cpu()
    # after the steps, so that no captured step waits for it
    table = work.table() if work.table else None
    return Outcome(
        config=config, device=device, steps=count, result=result, note=work.note, table=table
    )


def _use_gpu(config: Config[Any]) -> str:
    """Select this rank's GPU and return its name."""
    if not torch.cuda.is_available():
        raise WorkloadError(
            f"torch {torch.__version__} finds no GPU here, and {config.workload} needs one",
            "Run it at toy size on the CPU",
            f"nsysflow profile {config.workload} --on cpu",
        )
    torch.cuda.set_device(rank() or 0)
    if config.precision == "float":
        # TF32: by the H200's data sheet float32 has a seventh of its rate (67 against 495 TFLOP/s);
        # host costs would be small next to kernels that long
        torch.set_float32_matmul_precision("high")
    return torch.cuda.get_device_name()


def _use_cpu() -> str:
    # at toy size a second thread has nothing to do, and waiting for it took up to 200 ms per layer
    # on two busy cores (torch 2.13.0, 2026-11-20)
    torch.set_num_threads(1)
    return "the CPU"


def _module(workload: str) -> Any:
    try:
        return import_module(f"nsysflow.workloads.{workload}")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        seen = f"{workload} needs Triton, which is not installed here"
        raise WorkloadError(seen, "Install it", "pip install triton") from error
