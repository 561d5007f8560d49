"""Configs of toy size, to run workloads in this process."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from nsysflow.catalog.catalog import Workload, workloads
from nsysflow.runtime.protocol import Window
from nsysflow.workloads.common.run import options_of
from nsysflow.workloads.common.training import Config, On, Precision, Work

VARIANTS = [(workload, variant.name) for workload in workloads() for variant in workload.variants]

ROUNDED: Final[Mapping[str, float]] = {
    "fusion": 1e-5,
    "graph_break": 1e-5,
    "rolloutcopy": 1e-5,
    "trainforward": 1e-5,
    "trainstep": 1.7e-4,
}
"""Workloads whose variants round in different places on a GPU, and how far their float32 results
may differ: fused kernels stay in float32 longer and use fused multiply-adds.

`trainstep` is three times the largest distance seen on an H200 (5.6e-5, of PyTorch's own result, in
20 steps of the usual size, 2026-11-20). Muon rounds to bf16 repeatedly: numbers near the border of
two bf16 numbers go either way, and noise near zero is amplified a hundredfold. A float64 curve of
20 steps moved by 1.2e-5 to 3.0e-5 when the gradients were changed by 1e-7 of their size, by as much
for 3e-7, and by 1e-10 without Muon's roundings (1 024 rows, on a CPU)."""


def work_of(config: Config[Any]) -> Work:
    """The work of a workload."""
    module = import_module(f"nsysflow.workloads.{config.workload}")
    work: Work = getattr(module, config.workload)(config)
    return work


def toy(
    workload: Workload,
    variant: str | None = None,
    *,
    on: On = "cpu",
    precision: Precision = "float",
    seed: int = 0,
    steps: int = 4,
    options: Mapping[str, float] | None = None,
) -> Config[Any]:
    """A config of toy size, also on a GPU."""
    return Config(
        workload=workload.name,
        variant=variant or workload.default,
        on=on,
        precision=precision,
        seed=seed,
        window=Window(wait=0, warmup=0, active=steps),
        options=options_of(workload, "cpu", options or {}),
    )
