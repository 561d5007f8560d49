"""What is on this machine."""

import re
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from nsysflow.base.errors import NsysMissing
from nsysflow.record import machine
from nsysflow.record.machine import Gpus, gpus


def test_the_files_of_linux_and_the_driver_are_understood(tmp_path: Path) -> None:
    status, options = tmp_path / "status", tmp_path / "params"
    status.write_text("Name:\tx\nCapInh:\t0000000000000001\nCapEff:\t0000004000200000\n")
    assert machine._capabilities(status) == {21, 38}
    for line, admin_only in (
        ("RmProfilingAdminOnly: 1", True),
        ("RmProfilingAdminOnly: 0", False),
        ("NVreg_RestrictProfilingToAdminUsers: 0", False),
        ("EnableMSI: 1", None),
    ):
        options.write_text(f"ResmanDebugLevel: 4294967295\n{line}\nMemoryPoolSize: 0\n")
        assert machine._admin_only(options) is admin_only
    (tmp_path / "paranoid").write_text("-1\n")
    assert machine._paranoid(tmp_path / "paranoid") == -1
    gone = tmp_path / "gone"
    assert machine._capabilities(gone) == frozenset()
    assert machine._admin_only(gone) is machine._paranoid(gone) is None


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\nhip = None", "13.0"),
        ('cuda = "12.4"', "12.4"),
        ("cuda: Optional[str] = None\nxpu = '1.0'", None),
        ("debug = False\ncudart = '13.0'", None),
    ],
)
def test_the_cuda_of_torch_is_read_from_its_version_file(text: str, cuda: str | None) -> None:
    found = machine._CUDA_BUILD.search(f"__version__ = '2.13.0'\n{text}\n")
    assert (found[1] if found else None) == cuda


def test_looking_at_this_machine_does_not_import_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Mock(side_effect=NsysMissing("no nsys was found"))
    monkeypatch.setattr("nsysflow.record.machine.find_nsys", nowhere)
    before = set(sys.modules)
    seen = machine.look_at_machine()
    assert isinstance(seen.nsys, NsysMissing)
    assert not {"torch", "triton"} & (set(sys.modules) - before)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", seen.python)
    assert seen.temp_free_bytes > 0


class NVMLError(Exception):
    """Stands in for NVML's own error."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """NVML on a machine with two GPUs."""
    fake = Mock(NVMLError=NVMLError)
    fake.nvmlSystemGetDriverVersion.return_value = "580.95.05"
    fake.nvmlSystemGetCudaDriverVersion.return_value = 13010
    fake.nvmlDeviceGetCount.return_value = 2
    fake.nvmlDeviceGetHandleByIndex.side_effect = int
    fake.nvmlDeviceGetName.side_effect = ("NVIDIA H200", "NVIDIA A100").__getitem__
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_the_gpus_their_driver_and_its_cuda_are_found(nvml: Mock) -> None:
    names = ("NVIDIA H200", "NVIDIA A100")
    assert gpus() == Gpus(names=names, driver="580.95.05", cuda=(13, 1))
    assert nvml.nvmlInit.call_count == nvml.nvmlShutdown.call_count == 1


def test_without_a_gpu_or_its_driver_the_problem_is_said(nvml: Mock) -> None:
    nvml.nvmlDeviceGetCount.return_value = 0
    assert gpus().problem == "the driver sees no GPU"
    assert gpus().driver == "580.95.05"
    nvml.nvmlInit.side_effect = NVMLError("NVML Shared Library Not Found")
    assert gpus() == Gpus(problem="NVML Shared Library Not Found (NVML)")


def test_a_lost_gpu_is_a_problem_and_nvml_is_closed(nvml: Mock) -> None:
    nvml.nvmlDeviceGetName.side_effect = NVMLError("GPU is lost")
    assert gpus() == Gpus(problem="GPU is lost (NVML)")
    assert nvml.nvmlInit.call_count == nvml.nvmlShutdown.call_count == 1


def test_the_installed_nvml_package_answers_with_or_without_a_gpu() -> None:
    found = gpus()
    assert (found.problem is None) == bool(found.names)
