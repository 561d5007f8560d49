"""What the backward pass computes again (spec §16.20): plain loops over the kernels of a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ALIKE: Final = 4


@dataclass(frozen=True)
class Kernel:
    """A kernel as the rule sees it; `key` stands for its name and grid, `backward` is None where no
    launch tells."""

    key: int
    step: int
    backward: bool | None
    matrix: bool


def recomputed(stream: Sequence[Kernel]) -> list[bool]:
    """Whether each kernel of a stream repeats some of the forward pass."""
    again = [False] * len(stream)
    seen: dict[bool, list[tuple[int, ...]]] = {False: [], True: []}
    for start in range(len(stream) - ALIKE + 1):
        mine = stream[start : start + ALIKE]
        backward = mine[0].backward
        if backward is None or len({(one.step, one.backward) for one in mine}) > 1:
            continue
        if len({one.key for one in mine}) < 3:
            continue
        four = (mine[0].step, *(one.key for one in mine))
        seen[backward].append(four)
        if backward and seen[True].count(four) <= seen[False].count(four):
            again[start : start + ALIKE] = [True] * ALIKE
    for start in range(len(stream)):
        if again[start] and (start == 0 or not again[start - 1]):
            past = start
            while past < len(stream) and again[past]:
                past += 1
            if not any(one.matrix for one in stream[start:past]):
                again[start:past] = [False] * (past - start)
    return again
