"""What a kernel's launcher asks of its arguments before it lets the GPU read memory."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

FLOATS: Final = (torch.bfloat16, torch.float16, torch.float32)


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
        device: where it must be; anywhere when None.
        contiguous: whether it must be.

    Raises:
        ValueError: it differs; the message has what it is and what it must be.
    """
    wanted = "(" + ", ".join("any" if side is None else str(side) for side in shape) + ")"
    agrees = len(shape) == tensor.dim() and all(
        side is None or side == given for side, given in zip(shape, tensor.shape, strict=True)
    )
    if not agrees:
        raise ValueError(f"{name} must be {wanted}, and is {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        named = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"{name} must hold {named}, and holds {tensor.dtype}")
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} must be on {device}, and is on {tensor.device}")
    if contiguous and not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, and has strides {tensor.stride()}")
