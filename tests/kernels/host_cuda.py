"""CUDA C++ without a GPU: a kernel's source is compiled for the host and runs on the CPU."""

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from torch import Tensor

from nsysflow.kernels.nvrtc import SOURCES, flags

HERE = Path(__file__).parent
OPTIONS = ("-std=c++20", "-w", "-shared", "-fPIC", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE")
CHECKED = ("-O1", "-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error")
"""For clusters, which run long enough to be worth the longer compilation. A trap needs no library
of the sanitizer's, which not every g++ comes with."""


def launch_on_host(monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    """Let `nvrtc.launch` run on the CPU.

    `driver` is C++ that defines `run(int blocks, int threads, <the kernel's arguments>)`.
    """
    monkeypatch.setattr("nsysflow.kernels.nvrtc.launch", partial(_launch, driver))


def _launch(
    driver: str,
    name: str,
    constants: Mapping[str, str | int | float],
    *,
    blocks: int,
    threads: int,
    shared_bytes: int = 0,
    arguments: list[Tensor | int],
) -> None:
    header = "host_cluster.h" if shared_bytes else "host_warp.h"
    library = _library(name, flags(constants), header, driver)
    fault = (ctypes.c_char * 200).in_dll(library, "host_fault")
    fault.value = b""
    held = (ctypes.c_void_p(t.data_ptr()) if isinstance(t, Tensor) else t for t in arguments)
    library.run(blocks, threads, *held)
    assert not fault.value, fault.value.decode()


@cache
def _library(name: str, options: tuple[str, ...], header: str, driver: str) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    source = f'#include "{HERE / header}"\n#include "{SOURCES / name}.cu"\n{driver}'
    checked = CHECKED if header == "host_cluster.h" else ()
    argv = [compiler, *OPTIONS, *checked, *options, "-x", "c++", "-", "-o"]
    with TemporaryDirectory() as folder:
        built = f"{folder}/{name}.so"
        subprocess.run([*argv, built], input=source.encode(), check=True)
        return ctypes.CDLL(built)
