"""Whole numbers for launches.

Triton's own functions for these take 2 to 4 us a call on the host, as they also take the constants
of a kernel; a step of training makes 15 such calls (2026-11-20).
"""


def cdiv(number: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-number // by)


def next_power_of_2(number: int) -> int:
    """The least power of 2 that is not less than `number`; 1 for 0."""
    return 1 << max(number - 1, 0).bit_length()
