"""The GPUs as NVML reports them, or why it does not."""

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from nsysflow.gpu import Gpus, gpus


class NVMLError(Exception):
    """Stands in for NVML's own error."""


def fails(text: str) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise NVMLError(text)

    return call


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """NVML on a machine with two GPUs; `open` counts its open sessions."""
    fake = SimpleNamespace(NVMLError=NVMLError, open=0)

    def opened(by: int) -> None:
        fake.open += by

    fake.nvmlInit = lambda: opened(1)
    fake.nvmlShutdown = lambda: opened(-1)
    fake.nvmlSystemGetDriverVersion = lambda: "580.95.05"
    fake.nvmlSystemGetCudaDriverVersion = lambda: 13010
    fake.nvmlDeviceGetCount = lambda: 2
    fake.nvmlDeviceGetHandleByIndex = lambda index: index
    fake.nvmlDeviceGetName = lambda handle: ("NVIDIA H200", "NVIDIA A100")[handle]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_the_gpus_their_driver_and_its_cuda_are_found(nvml: SimpleNamespace) -> None:
    names = ("NVIDIA H200", "NVIDIA A100")
    assert gpus() == Gpus(names=names, driver="580.95.05", cuda=(13, 1))
    assert nvml.open == 0


def test_a_driver_without_a_gpu_is_a_problem(nvml: SimpleNamespace) -> None:
    nvml.nvmlDeviceGetCount = lambda: 0
    found = gpus()
    assert found.problem == "the driver sees no GPU"
    assert found.driver == "580.95.05"


def test_without_a_driver_the_problem_is_in_nvmls_words(nvml: SimpleNamespace) -> None:
    nvml.nvmlInit = fails("NVML Shared Library Not Found")
    assert gpus() == Gpus(problem="NVML Shared Library Not Found (NVML)")


def test_a_lost_gpu_is_a_problem_and_nvml_is_closed(nvml: SimpleNamespace) -> None:
    nvml.nvmlDeviceGetName = fails("GPU is lost")
    assert gpus() == Gpus(problem="GPU is lost (NVML)")
    assert nvml.open == 0


def test_the_installed_nvml_package_answers_with_or_without_a_gpu() -> None:
    found = gpus()
    assert (found.problem is None) == bool(found.names)
