"""The machine that the benchmark runs on."""

from importlib.metadata import version

import pynvml
import torch

import nsysflow
from nsysflow.kernels.bench.cases import Bench
from nsysflow.kernels.bench.rows import Machine
from nsysflow.kernels.bench.stopwatch import copy_bytes_per_s, stopwatch


def bench_here(*, on_gpu: bool) -> Bench:
    """This machine: its GPU and its copy bandwidth, or its CPU."""
    if not on_gpu:
        machine = Machine(gpu="", versions=_versions(driver=""), copy_bytes_per_s=None)
        return Bench(device=torch.device("cpu"), machine=machine, watch=None)
    device = torch.device("cuda", torch.cuda.current_device())
    watch = stopwatch(device)
    machine = Machine(
        gpu=torch.cuda.get_device_name(device),
        versions=_versions(driver=_driver()),
        copy_bytes_per_s=copy_bytes_per_s(watch),
    )
    return Bench(device=device, machine=machine, watch=watch)


def _versions(driver: str) -> dict[str, str]:
    return {
        "driver": driver,
        "cuda": torch.version.cuda or "",
        "torch": torch.__version__,
        "triton": version("triton"),
        "nsysflow": nsysflow.__version__,
    }


def _driver() -> str:
    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()
