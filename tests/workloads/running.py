"""Run workloads in this process, at toy size."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from nsysflow.catalog import Workload, workloads
from nsysflow.handshake import Window
from nsysflow.workloads.config import Config, On, Precision
from nsysflow.workloads.run import options_of

VARIANTS = [(workload, variant.name) for workload in workloads() for variant in workload.variants]

without_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


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
    """A config of toy size, on a GPU too."""
    return Config(
        workload=workload.name,
        variant=variant or workload.default,
        on=on,
        precision=precision,
        seed=seed,
        window=Window(wait=0, warmup=0, active=steps),
        options=options_of(workload, "cpu", options or {}),
    )
