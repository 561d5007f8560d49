"""What a kernel's launcher asks of its arguments before it lets the GPU read memory."""

from collections.abc import Sequence
from typing import Final, Literal

import torch
import triton.language as tl
from torch import Tensor

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
        name: what the launcher calls it.
        tensor: what was given.
        shape: what it must be; None for a side of any length.
        dtypes: what it may hold.
        device: where it must be. When None anywhere a launch can go: see `require_current`.
        contiguous: whether it must be.

    Raises:
        ValueError: it differs; the message has what it is and what it must be.
    """
    if not _agree(tensor.shape, shape):
        wanted = ", ".join("any" if side is None else str(side) for side in shape)
        raise ValueError(f"{name} must be ({wanted}), and is {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        named = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"{name} must hold {named}, and holds {tensor.dtype}")
    if device is None:
        require_current(name, tensor.device)
    elif tensor.device != device:
        raise ValueError(f"{name} must be on {device}, and is on {tensor.device}")
    if contiguous and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, and has strides {tensor.stride()}")


def _agree(given: Sequence[int], wanted: Sequence[int | None]) -> bool:
    if len(given) != len(wanted):
        return False
    for length, side in zip(given, wanted, strict=True):  # `all` would take twice as long
        if side is not None and side != length:
            return False
    return True


def require_current(name: str, device: torch.device) -> None:
    """Refuse a GPU that is not the current one: launches go there, whatever they are given.

    Args:
        name: what is on the device.
        device: a GPU, or anything else, which is let pass.

    Raises:
        ValueError: it is another GPU.
    """
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        current = torch.cuda.current_device()
        raise ValueError(
            f"{name} must be on the current GPU, cuda:{current}, and is on {device}: call"
            f" torch.cuda.set_device({device.index}), or use `with torch.cuda.device(...)`"
        )


def backend_for(backend: Backend, device: torch.device) -> Literal["triton", "cuda"]:
    """What is to run on a device of the two backends that a kernel with a `.cu` has.

    "auto" is Triton for each of them: on an H200 CUDA C++ was at no size more than 3 % faster both
    with L2 cold and warm (docs/facts.md), and it asks for a CUDA toolkit where it runs.

    Raises:
        ValueError: there is no such backend, or it cannot run there.
    """
    if backend not in ("auto", "triton", "cuda"):
        raise ValueError(f"backend must be auto, triton or cuda, and is {backend!r}")
    if backend == "cuda" and device.type != "cuda":
        raise ValueError(f"backend cuda needs a CUDA device, and the tensors are on {device}")
    return "cuda" if backend == "cuda" else "triton"
