"""Kernels in passes of a loop (spec §16.25): every begin and length of a pass is tried."""

from collections.abc import Sequence


def pass_lengths(names: Sequence[str], simple: Sequence[bool]) -> list[int | None]:
    """Of each kernel that a phase launches in a row, how many a pass of its loop launches: the
    fewest with which ten passes or more follow each other, nine tenths of them as a pass before,
    that part of one included which is left over. None of a kernel in no loop."""
    found: list[int | None] = [None] * len(names)
    for length in range(1, 61):
        for begin in range(len(names) - 10 * length + 1):
            end = begin + 10 * length
            alike = [names[k] == names[k - length] for k in range(begin + length, end)]
            enough = alike[0] and alike[-1] and 10 * sum(alike) >= 9 * len(alike)
            if enough and all(simple[begin:end]):
                for kernel in range(begin, end):
                    found[kernel] = found[kernel] or length
    return found
