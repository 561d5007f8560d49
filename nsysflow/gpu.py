"""The GPUs of this machine and their driver, from NVIDIA's management library (NVML)."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The GPUs of a machine.

    Attributes:
        names: their names, by index, e.g. `NVIDIA H200`.
        driver: the driver's version, e.g. `580.95.05`; None if it does not answer.
        cuda: the newest CUDA that the driver supports, e.g. (13, 0); None if it does not answer.
        problem: why no GPU can be used, in NVML's words; None if one can.
    """

    names: tuple[str, ...] = ()
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    problem: str | None = None


def gpus() -> Gpus:
    """Ask NVML, which takes about 10 ms and does not start CUDA."""
    import pynvml  # takes 5 ms, and only profile and doctor need it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(problem=f"{error} (NVML)")
    try:
        return _gpus_of(pynvml)
    except pynvml.NVMLError as error:
        return Gpus(problem=f"{error} (NVML)")
    finally:
        pynvml.nvmlShutdown()


def _gpus_of(nvml: Any) -> Gpus:
    driver = nvml.nvmlSystemGetDriverVersion()
    version = nvml.nvmlSystemGetCudaDriverVersion()  # 13000 is 13.0, 12040 is 12.4
    names = tuple(
        nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index))
        for index in range(nvml.nvmlDeviceGetCount())
    )
    return Gpus(
        names=names,
        driver=driver,
        cuda=(version // 1000, version % 1000 // 10),
        problem=None if names else "the driver sees no GPU",
    )
