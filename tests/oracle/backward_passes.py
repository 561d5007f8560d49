"""What later backward passes walk through again (spec §16.28): plain loops over a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

PRODUCTS: Final = ("matmul", "conv", "attention")
BETWEEN: Final = ("elementwise", "copy/cast")


@dataclass(frozen=True)
class Kernel:
    """A kernel as the rule sees it; `key` stands for its name and grid."""

    key: int
    step: int
    backward: bool
    thread: int
    kind: str


def walked_again(stream: Sequence[Kernel]) -> list[bool]:
    """Whether each kernel of a stream is in a part that a later backward pass repeats."""
    again = [False] * len(stream)
    first: list[int] | None = None
    at, before = 0, None
    for (step, backward, _), group in groupby(stream, key=lambda k: (k.step, k.backward, k.thread)):
        rows = [at + i for i, _ in enumerate(group)]
        at += len(rows)
        if not any(stream[row].kind in PRODUCTS for row in rows):
            continue
        if not backward or (step, backward) != before:
            first = rows if backward else None
        elif first is not None:
            for row in _repeated(stream, first, rows):
                again[row] = True
        before = (step, backward)
    return again


def _repeated(stream: Sequence[Kernel], first: list[int], later: list[int]) -> list[int]:
    """The rows of the later pass from the first kernel on behind which a gradient is added, of
    those that end it as they end the first."""
    old, new = _marks(stream, first), _marks(stream, later)
    begin, products, added, products_then = None, 0, 0, 0
    for (row, adds), (row_of_first, adds_of_first) in zip(
        reversed(new), reversed(old), strict=False
    ):
        if stream[row].key != stream[row_of_first].key:
            break
        products += stream[row].kind in PRODUCTS
        if adds > adds_of_first:
            begin, added, products_then = row, added + 1, products
    if begin is None or not products_then or 4 * added < products_then:
        return []
    return [row for row in later if row >= begin]


def _marks(stream: Sequence[Kernel], rows: list[int]) -> list[tuple[int, int]]:
    """The kernels that neither compute elementwise nor copy, with how many elementwise ones come
    behind each, up to the next."""
    marks: list[tuple[int, int]] = []
    for row in rows:
        if stream[row].kind not in BETWEEN:
            marks.append((row, 0))
        elif marks and stream[row].kind == "elementwise":
            marks[-1] = (marks[-1][0], marks[-1][1] + 1)
    return marks
