"""Arguments of kernels: what they must be, which backend runs, and how they are launched."""

from collections.abc import Sequence
from functools import cache
from typing import Final, Literal

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

TRITON_TYPES: Final = {
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float32: tl.float32,
}
FLOATS: Final = tuple(TRITON_TYPES)

Backend = Literal["auto", "triton", "cuda"]


def require(
    name: str,
    tensor: Tensor,
    shape: Sequence[int | None],
    *,
    dtypes: Sequence[torch.dtype] = FLOATS,
    device: torch.device | None = None,
    contiguous: bool = True,
) -> None:
    """Refuse a tensor that the kernel would misread.

    Args:
        name: the name of the argument.
        tensor: the argument.
        shape: the required shape; None for a side of any length.
        dtypes: the allowed dtypes.
        device: the required device. None allows every device that a launch can go to: see
            `require_current`.
        contiguous: whether it must be contiguous.

    Raises:
        ValueError: it differs. The message says what it is and what it must be.
    """
    if not _agree(tensor.shape, shape):
        wanted = ", ".join("any" if side is None else str(side) for side in shape)
        raise ValueError(f"{name} must be ({wanted}), but is {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        named = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"{name} must be {named}, but is {tensor.dtype}")
    if device is None:
        require_current(name, tensor.device)
    elif tensor.device != device:
        raise ValueError(f"{name} must be on {device}, but is on {tensor.device}")
    if contiguous and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, but has strides {tensor.stride()}")


def _agree(given: Sequence[int], wanted: Sequence[int | None]) -> bool:
    if len(given) != len(wanted):
        return False
    for length, side in zip(given, wanted, strict=True):  # `all` takes twice as long
        if side is not None and side != length:
            return False
    return True


def require_current(name: str, device: torch.device) -> None:
    """Refuse a GPU other than the current one: a launch always goes to the current one.

    Args:
        name: the argument that is on the device.
        device: the device; anything but a GPU passes.

    Raises:
        ValueError: it is another GPU.
    """
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        current = torch.cuda.current_device()
        raise ValueError(
            f"{name} must be on the current GPU, cuda:{current}, but is on {device}: call"
            f" torch.cuda.set_device({device.index}), or use `with torch.cuda.device(...)`"
        )


def backend_for(backend: Backend, device: torch.device) -> Literal["triton", "cuda"]:
    """The backend to run on a device, for a kernel that also has a `.cu` file.

    "auto" always takes Triton. On an H200, CUDA C++ was more than 3 % faster, with L2 cold and with
    L2 warm, at only one of twenty sizes, by 0.1 us (kernels/RESULTS.md). It also needs a CUDA
    toolkit at run time.

    Raises:
        ValueError: there is no such backend, or it cannot run there.
    """
    if backend not in ("auto", "triton", "cuda"):
        raise ValueError(f"backend must be auto, triton or cuda, but is {backend!r}")
    if backend == "cuda" and device.type != "cuda":
        raise ValueError(f"backend cuda needs a CUDA device, but the tensors are on {device}")
    return "cuda" if backend == "cuda" else "triton"


@cache
def _can_overlap(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def overlap(device: torch.device) -> dict[str, bool]:
    """The options that let a launch begin before the previous one has ended (programmatic dependent
    launch), if the GPU can: from Hopper on. The kernel must wait for that end, as `follow` does."""
    able = _can_overlap(device)
    return {"OVERLAP": able, "launch_pdl": able}


@cache
def sms(device: torch.device) -> int:
    """The number of SMs of a GPU. 2 in the interpreter, so that programs loop there too."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def follow(OVERLAP: tl.constexpr):
    """Wait for the end of the previous launch.

    The next one may begin when this one ends. Let in earlier, its programs took room on the SMs: a
    training step took 135.6 us instead of 127.5 (H200, 2026-11-28).
    """
    if OVERLAP:
        gdc_wait()


def cdiv(number: int, by: int) -> int:
    """`number / by`, rounded up.

    This and `next_power_of_2` are for launch sizes. Triton's own take 2 to 4 us per call on the
    host, as they also accept constants of a kernel; a training step makes 15 calls (2026-11-20).
    """
    return -(-number // by)


def padded(side: int) -> int:
    """The side of a product of tiles: a power of two, at least 16."""
    return max(next_power_of_2(side), 16)


def operand(x: Tensor) -> tl.dtype:
    """The dtype in which a product takes x. On the CPU that is float32: the interpreter multiplies
    the bits of bf16 as integers."""
    return tl.float32 if x.device.type == "cpu" else TRITON_TYPES[x.dtype]


def next_power_of_2(number: int) -> int:
    """The smallest power of 2 that is at least `number`; 1 for 0."""
    return 1 << max(number - 1, 0).bit_length()
