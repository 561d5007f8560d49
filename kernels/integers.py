"""Integer functions for launch sizes.

Triton's own versions take 2 to 4 us per call on the host, because they also accept constants of a
kernel. A training step makes 15 such calls (2026-11-20).
"""


def cdiv(number: int, by: int) -> int:
    """`number / by`, rounded up."""
    return -(-number // by)


def next_power_of_2(number: int) -> int:
    """The smallest power of 2 that is at least `number`; 1 for 0."""
    return 1 << max(number - 1, 0).bit_length()
