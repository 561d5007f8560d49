"""CUDA C++ from `csrc/`, compiled when first used and kept for the life of the process.

torch brings NVRTC, so a `.cu` needs no build step and no host compiler: `torch.cuda` compiles the
source for the device at hand and loads it. What a kernel is specialised on (element types, lanes,
factors) is given with -D: the compiler folds it, and no argument's C type is left to torch, which
has passed a Python float as float in some versions and as double in others.

`torch.cuda._compile_kernel` is private. Between the versions around 2.11 and 2.13 parameters in the
middle went away and the result became machine code instead of PTX; only the names used here stayed.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

SOURCES: Final = Path(__file__).parent / "csrc"

C_TYPES: Final = {
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.uint8: "u8",
}
"""What the sources call the types of elements."""


def flags(constants: Mapping[str, str | int | float]) -> tuple[str, ...]:
    """Constants as compiler options; floats as float32 literals.

    Raises:
        ValueError: a float that C cannot spell (infinite or NaN).
    """
    return tuple(f"-D{name}={_literal(name, value)}" for name, value in constants.items())


def _literal(name: str, value: str | int | float) -> str:
    if not isinstance(value, float):
        return str(value)
    if value - value != 0:
        raise ValueError(f"{name} must be finite, and is {value}")
    return f"{value!r}f"


def wheel_nvrtc(packages: Path, cuda: str) -> Path | None:
    """NVRTC of a CUDA version among installed packages, as NVIDIA's wheels lay it out."""
    major = cuda.partition(".")[0]
    return next(packages.glob(f"nvidia/*/lib/libnvrtc.so.{major}"), None)


@cache
def _load_nvrtc() -> None:
    """Load the NVRTC of torch's own wheels; torch finds by name only what is loaded or installed.

    github.com/pytorch/pytorch/issues/162367
    """
    found = wheel_nvrtc(Path(torch.__file__).parents[1], torch.version.cuda or "")
    if found is not None:
        ctypes.CDLL(str(found), mode=ctypes.RTLD_GLOBAL)


@cache
def _kernel(name: str, options: tuple[str, ...], device: int) -> Callable[..., None]:
    """`name` of `csrc/name.cu` on a device; the caller has made that device current."""
    del device  # a loaded module belongs to one device: it only keys the cache
    _load_nvrtc()
    source = (SOURCES / f"{name}.cu").read_text()
    kernel: Callable[..., None] = torch.cuda._compile_kernel(
        kernel_source=source, kernel_name=name, nvcc_options=list(options)
    )
    return kernel


def launch(
    name: str,
    constants: Mapping[str, str | int | float],
    *,
    blocks: int,
    threads: int,
    arguments: Sequence[Tensor | int],
) -> None:
    """Launch `extern "C"` kernel `name` of `csrc/name.cu` on torch's current stream.

    A first launch compiles (tenths of a second) and loads code, so it cannot be the one a CUDA
    graph captures: call once before capturing, as for any kernel.

    Args:
        name: of the file and of the kernel in it.
        constants: what to define while compiling; each set of values is compiled once per device.
        blocks: in the grid, along x.
        threads: in a block, along x.
        arguments: tensors of one CUDA device, passed as pointers, and ints, passed as C int.

    Raises:
        RuntimeError: the compiler refused the source (its log is the message), or the launch
            failed.
        OSError: there is no NVRTC, or no CUDA toolkit whose headers torch can find.
    """
    tensors: list[Any] = [each for each in arguments if isinstance(each, Tensor)]
    device = tensors[0].device
    with torch.cuda.device(device):
        kernel = _kernel(name, flags(constants), device.index)
        kernel(grid=(blocks, 1, 1), block=(threads, 1, 1), args=list(arguments))
