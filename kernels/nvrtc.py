"""CUDA C++ from `csrc/`, compiled by NVRTC on first use and kept for the life of the process.

torch includes NVRTC, so a `.cu` file needs no build step and no host compiler: `torch.cuda`
compiles the source for the current device and loads it. Element types, lanes and factors are passed
as -D constants, which the compiler can fold. No argument is a float, which torch passes as float in
some versions and as double in others: numbers that change from call to call are passed as bits.

`torch.cuda._compile_kernel` is private. Around versions 2.11 to 2.13 some of its parameters
disappeared and its result changed from PTX to machine code; only the names used here stayed.
"""

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
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
"""The names of element types in the sources."""


def flags(constants: Mapping[str, str | int | float]) -> tuple[str, ...]:
    """Constants as compiler options, with floats as float32 literals.

    Raises:
        ValueError: a float is infinite or NaN, for which C has no literal.
    """
    return tuple(f"-D{name}={_literal(name, value)}" for name, value in constants.items())


def _literal(name: str, value: str | int | float) -> str:
    if not isinstance(value, float):
        return str(value)
    if value - value != 0:
        raise ValueError(f"{name} must be finite, but is {value}")
    return f"{value!r}f"


def wheel_nvrtc(packages: Path, cuda: str) -> Path | None:
    """The NVRTC library of a CUDA version in NVIDIA's wheels; None if it is not installed."""
    major = cuda.partition(".")[0]
    return next(packages.glob(f"nvidia/*/lib/libnvrtc.so.{major}"), None)


@cache
def _load_nvrtc() -> None:
    """Load NVRTC from the wheels that torch depends on, because torch does not look there.

    github.com/pytorch/pytorch/issues/162367
    """
    library = wheel_nvrtc(Path(torch.__file__).parents[1], torch.version.cuda or "")
    if library is not None:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


@cache
def can_compile() -> bool:
    """Whether this torch compiles kernels and finds a CUDA toolkit, whose headers it passes on."""
    from torch.utils.cpp_extension import CUDA_HOME  # takes a tenth of a second to import

    return hasattr(torch.cuda, "_compile_kernel") and CUDA_HOME is not None


def float_bits(number: float) -> int:
    """A number as float32, for a parameter that is a C int (see above for why)."""
    bits: int = struct.unpack("i", struct.pack("f", number))[0]
    return bits


@cache
def _kernel(
    name: str, options: tuple[str, ...], shared_bytes: int, device: int
) -> Callable[..., None]:
    """Kernel `name` of `csrc/name.cu`, for the current device."""
    del device  # only a key of the cache: a loaded module belongs to one device
    _load_nvrtc()
    source = (SOURCES / f"{name}.cu").read_text()
    kernel: Any = torch.cuda._compile_kernel(
        kernel_source=source, kernel_name=name, nvcc_options=list(options)
    )
    if shared_bytes:
        kernel.set_shared_memory_config(shared_bytes)
    return partial(kernel, shared_mem=shared_bytes)


def launch(
    name: str,
    constants: Mapping[str, str | int | float],
    *,
    blocks: int,
    threads: int,
    shared_bytes: int = 0,
    arguments: Sequence[Tensor | int],
) -> None:
    """Launch `extern "C"` kernel `name` of `csrc/name.cu` on torch's current stream.

    The first launch compiles (tenths of a second) and loads code, so a CUDA graph cannot capture
    it. Call once before capturing, as for any kernel.

    Args:
        name: the name of the file and of the kernel in it.
        constants: macros to define; each set of values is compiled once per device.
        blocks: blocks in the grid, along x.
        threads: threads in a block, along x.
        shared_bytes: shared memory of a block beside what the source declares.
        arguments: tensors on one CUDA device, passed as pointers, and ints, passed as C int.

    Raises:
        RuntimeError: the source does not compile (the message is the compiler's log), or the launch
            failed.
        OSError: NVRTC is missing, or torch finds no CUDA toolkit headers.
    """
    tensors: list[Any] = [argument for argument in arguments if isinstance(argument, Tensor)]
    device = tensors[0].device
    with torch.cuda.device(device):
        kernel = _kernel(name, flags(constants), shared_bytes, device.index)
        kernel(grid=(blocks, 1, 1), block=(threads, 1, 1), args=list(arguments))
