"""CUPTI is taken out of a process only where it is nsys's, and only if that goes well."""

import ctypes
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from nsysflow.runtime import cupti as cupti_module
from nsysflow.runtime.cupti import detach_cupti

NSYS, TORCH = "/opt/nsys 2025/target-linux-x64", "/usr/lib/python3/site-packages/nvidia/lib"
INJECTION = f"{NSYS}/libToolsInjection64.so"
OURS, OTHER = f"{NSYS}/libcupti.so.13.0", f"{TORCH}/libcupti.so.12"


class Process:
    """What is mapped into a process, and what happens there, in order."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.happened: list[str] = []
        self.result = 0
        self.unloaded = False

    def open(self, path: str, mode: int) -> Mock:
        self.opened.append(path)
        if self.unloaded:
            raise OSError
        return Mock(cuptiFinalize=self.finalize)

    def finalize(self) -> int:
        self.happened.append("finalized")
        return self.result


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    """A process that uses torch on a GPU, into which nsys has loaded its libraries."""
    process = Process()
    maps(tmp_path, INJECTION, OTHER, OURS, OURS)
    monkeypatch.setattr(cupti_module, "MAPS", tmp_path / "maps")
    monkeypatch.setattr(cupti_module, "torch_on_gpu", lambda: "torch")
    monkeypatch.setattr(
        cupti_module, "synchronize", lambda: process.happened.append("synchronized")
    )
    monkeypatch.setattr(ctypes, "CDLL", process.open)
    return process


def maps(folder: Path, *paths: str) -> None:
    """Write these files as Linux lists them."""
    lines = [
        f"7f{at:010x}-7f{at + 1:010x} r-xp 00000000 08:01 131 {'':>20}{path}\n"
        for at, path in enumerate(paths)
    ]
    own = (
        "7ffe0000-7ffe1000 rw-p 00000000 00:00 0 \n7fff0000-7fff1000 r-xp 00000000 00:00 0 [vdso]\n"
    )
    (folder / "maps").write_text("".join(lines) + own)


def test_nsyss_own_cupti_is_detached_once_the_gpu_is_done(process: Process) -> None:
    assert detach_cupti()
    assert process.opened == [OURS]
    assert process.happened == ["synchronized", "finalized"]


@pytest.mark.parametrize("mapped", [(OTHER, OURS), (INJECTION, OTHER), ()])
def test_a_cupti_that_is_not_nsyss_is_left_alone(
    tmp_path: Path, process: Process, mapped: tuple[str, ...]
) -> None:
    maps(tmp_path, *mapped)
    assert not detach_cupti()
    assert process.opened == []


def test_a_cupti_that_stays_is_no_plain_process(process: Process) -> None:
    process.result = 15
    assert not detach_cupti()
    process.unloaded = True
    assert not detach_cupti()


def test_a_process_without_torch_on_a_gpu_is_left_alone(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cupti_module, "torch_on_gpu", lambda: None)
    assert not detach_cupti()
    assert process.opened == []


def test_no_process_starts_with_ctypes_because_of_us() -> None:
    code = "import sys; before = set(sys.modules); import nsysflow.runtime.bound;"
    code += "print('ctypes' in sys.modules, 'ctypes' in before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False False\n"
