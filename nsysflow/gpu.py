"""The GPUs of this machine and their driver, as NVIDIA's management library (NVML) tells."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """What NVML told.

    Attributes:
        names: of the GPUs, by index, e.g. `NVIDIA H200`.
        driver: its version, e.g. `580.95.05`; None when it does not answer.
        cuda: the newest CUDA that the driver takes, e.g. (13, 0); None when it does not answer.
        problem: why no GPU can be used here, in NVML's words; None when there is one.
    """

    names: tuple[str, ...] = ()
    driver: str | None = None
    cuda: tuple[int, int] | None = None
    problem: str | None = None


def gpus() -> Gpus:
    """Ask NVML, in some 10 ms; it starts no CUDA, so the GPU stays as it is."""
    import pynvml  # nvidia-ml-py: 5 ms, and only profile and doctor ask

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Gpus(problem=f"{error} (NVML)")
    try:
        return _told(pynvml)
    except pynvml.NVMLError as error:
        return Gpus(problem=f"{error} (NVML)")
    finally:
        pynvml.nvmlShutdown()


def _told(nvml: Any) -> Gpus:  # noqa: ANN401
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
