"""What the backward pass computes again (spec §16.20): plain loops over the kernels of a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ALIKE: Final = 4


@dataclass(frozen=True)
class Kernel:
    """A kernel as the rule sees it; `key` stands for its name and grid."""

    key: int
    backward: bool
    matrix: bool


def recomputed(stream: Sequence[Kernel]) -> list[bool]:
    """Whether each kernel of a stream repeats some of the forward pass."""
    again = [False] * len(stream)
    for start in range(len(stream) - ALIKE + 1):
        mine = stream[start : start + ALIKE]
        if all(one.backward for one in mine) and _in_forward(stream, [one.key for one in mine]):
            again[start : start + ALIKE] = [True] * ALIKE
    for start in range(len(stream)):
        if again[start] and (start == 0 or not again[start - 1]):
            past = start
            while past < len(stream) and again[past]:
                past += 1
            if not any(one.matrix for one in stream[start:past]):
                again[start:past] = [False] * (past - start)
    return again


def _in_forward(stream: Sequence[Kernel], keys: list[int]) -> bool:
    """Whether neighbours outside the backward pass have these keys, in this order."""
    for start in range(len(stream) - ALIKE + 1):
        other = stream[start : start + ALIKE]
        if not any(one.backward for one in other) and [one.key for one in other] == keys:
            return True
    return False
