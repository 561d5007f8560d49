"""CUDA C++ without a GPU: a kernel's source is compiled for the host and run warp by warp."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nsysflow.kernels.nvrtc import SOURCES, flags

HERE = Path(__file__).parent


@cache
def _library(name: str, options: tuple[str, ...], driver: str, folder: Path) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    built = folder / f"{name}-{abs(hash(options))}.so"
    source = f'#include "{HERE / "host_warp.h"}"\n#include "{SOURCES / name}.cu"\n{driver}'
    shared = ("-std=c++20", "-pthread", "-shared", "-fPIC", "-w")
    subprocess.run(
        [compiler, *shared, *options, "-o", str(built), "-x", "c++", "-"],
        input=source.encode(),
        check=True,
    )
    return ctypes.CDLL(str(built))


def runner(folder: Path, driver: str) -> Callable[..., None]:
    """A replacement for `nvrtc.launch` that runs on the CPU.

    Args:
        folder: the folder to build in.
        driver: C++ that defines `run(int blocks, int threads, <the kernel's arguments>)`.
    """

    def launch(
        name: str,
        constants: Mapping[str, str | int | float],
        *,
        blocks: int,
        threads: int,
        arguments: list[Tensor | int],
    ) -> None:
        library = _library(name, flags(constants), driver, folder)
        library.run(
            blocks,
            threads,
            *(
                ctypes.c_void_p(each.data_ptr()) if isinstance(each, torch.Tensor) else each
                for each in arguments
            ),
        )

    return launch
