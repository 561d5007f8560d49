"""CUDA C++ without a GPU: a kernel's source is compiled for the host and run warp by warp."""

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import Tensor

from nsysflow.kernels.nvrtc import SOURCES, flags

HERE = Path(__file__).parent


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
    arguments: list[Tensor | int],
) -> None:
    _library(name, flags(constants), driver).run(
        blocks,
        threads,
        *(
            ctypes.c_void_p(each.data_ptr()) if isinstance(each, torch.Tensor) else each
            for each in arguments
        ),
    )


@cache
def _library(name: str, options: tuple[str, ...], driver: str) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    source = f'#include "{HERE / "host_warp.h"}"\n#include "{SOURCES / name}.cu"\n{driver}'
    shared = ("-std=c++20", "-pthread", "-shared", "-fPIC", "-w")
    with TemporaryDirectory() as folder:
        built = f"{folder}/{name}.so"
        argv = [compiler, *shared, *options, "-o", built, "-x", "c++", "-"]
        subprocess.run(argv, input=source.encode(), check=True)
        return ctypes.CDLL(built)
