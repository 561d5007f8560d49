"""What fused attention replaces (spec §16.11): plain loops over the kernels of a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_GLUE: Final = 16


@dataclass(frozen=True)
class Kernel:
    """A kernel as the rule sees it: `matmul`, `glue` or `other`; softmaxes are glue."""

    kind: str
    softmax: bool = False
    backward: bool = False


def replaced(stream: Sequence[Kernel]) -> list[bool]:
    """Whether fused attention replaces each kernel of a stream."""
    gone = [False] * len(stream)
    for first in range(len(stream)):
        if stream[first].kind != "matmul":
            continue
        last = _next_matmul(stream, first)
        if last is None or last - first - 1 > MOST_GLUE:
            continue
        softmaxes = [one for one in stream[first:last] if one.softmax]
        if not softmaxes:
            continue
        if any(one.backward for one in softmaxes):
            first, last = _earlier(stream, first), _later(stream, last)
        for at in range(first, last + 1):
            gone[at] = True
    return gone


def _next_matmul(stream: Sequence[Kernel], first: int) -> int | None:
    """The next matmul, if only glue stands before it."""
    for at in range(first + 1, len(stream)):
        if stream[at].kind != "glue":
            return at if stream[at].kind == "matmul" else None
    return None


def _later(stream: Sequence[Kernel], last: int) -> int:
    """The matmul behind this one, if it is near."""
    found = _next_matmul(stream, last)
    return last if found is None or found - last - 1 > MOST_GLUE else found


def _earlier(stream: Sequence[Kernel], first: int) -> int:
    """The matmul before this one, if it is near."""
    turned = [*reversed(stream)]
    return len(stream) - 1 - _later(turned, len(stream) - 1 - first)
