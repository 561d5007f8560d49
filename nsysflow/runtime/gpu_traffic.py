"""What a GPU sends and receives over PCIe and NVLink, by the counters of NVML.

Numbers and units are those of `nvml.h` (2026-11). A GPU sends (TX) what a copy to the host moves.
"""

from __future__ import annotations

import ctypes
import math
import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    Reading = tuple[int, int | None, int | None, int | None, int | None]
    """The ns since the last reading, and the bytes per second in them over `COUNTERS`."""

_ALL_LINKS: Final = 0xFFFFFFFF

COUNTERS: Final = ((197, 0), (198, 0), (138, _ALL_LINKS), (139, _ALL_LINKS))
"""NVML's fields of what was sent and received over PCIe in bytes (driver 555 and later), and over
all NVLinks in KiB, each with its scope."""

_PCIE: Final = 2
"""The first two counters are PCIe's, the others NVLink's."""

_KIB: Final = 1024

_WRAPS_AT: Final = 1 << 32
"""PCIe's counters start again from 0 here: those of an H200 and an L40S have 32 bits
(docs/facts.md). A larger value shows that a counter has 64."""

_LANE: Final = 250_000_000
"""The bytes per second of a PCIe lane of generation 1, at most; each generation doubles it."""

_USUAL: Final = 5, 16
"""Generation and lanes where a GPU does not tell them."""

_LATE: Final = 1.3
"""A look may come 1.3 times as late as planned, as its thread waits for Python's lock."""

_SHORTEST_NS: Final = 10_000_000
"""No rate is given over a shorter time: reading the counters takes up to 0.4 ms, 4 % of it."""


class Value(ctypes.Union):
    """The number that NVML gives for a field (`nvmlValue_t`). A counter has one of these types."""

    _fields_ = (("uint", ctypes.c_uint), ("wide", ctypes.c_ulonglong))


class Field(ctypes.Structure):
    """A field that NVML is asked for, and its answer (`nvmlFieldValue_t`)."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("code", ctypes.c_uint),
        ("value", Value),
    )

    def count(self) -> int | None:
        """The value of a counter; None if NVML has none, or one that is no whole number."""
        if self.code or self.kind not in (1, 2, 3, 4):
            return None
        count: int = self.value.uint if self.kind == 1 else self.value.wide
        return count


class Readable(Protocol):
    """The part of `Nvml` that `Traffic` uses."""

    def counters(self, gpu: ctypes.c_void_p) -> list[int | None]:
        """The values of `COUNTERS`."""

    def pcie_rate(self, gpu: ctypes.c_void_p, direction: int) -> int | None:
        """The bytes per second that are sent (0) or received (1)."""

    def pcie_lanes(self, gpu: ctypes.c_void_p) -> tuple[int, int] | None:
        """Generation and width of the link."""


class Traffic:
    """What a GPU sends and receives from reading to reading.

    Attributes:
        looks: how many times per period to look at the counters. They have 32 bits, which a link of
            64 GB/s fills in 67 ms.
    """

    def __init__(self, nvml: Readable, gpu: ctypes.c_void_p, period_s: float) -> None:
        """Look for the first time.

        Args:
            nvml: what says it.
            gpu: its handle.
            period_s: the time between two readings.
        """
        self._nvml, self._gpu = nvml, gpu
        generation, width = nvml.pcie_lanes(gpu) or _USUAL
        self._most_per_s = (_LANE << generation - 1) * width
        self._counts: list[int | None] = []
        self._moved: list[int | None] = []
        self._at_ns = self._since_ns = 0
        self.look(afresh=True)
        counts = self._counts[:_PCIE] != [None] * _PCIE
        self.looks = math.ceil(period_s * _LATE * self._most_per_s / _WRAPS_AT) if counts else 1
        self._by_call: int | None = None if counts else 0
        """Without counters: the direction to ask for next. A call takes 20 ms, so that each
        reading has one of them."""

    def look(self, *, afresh: bool = False) -> None:
        """Add what was counted since the last look, or count from now on."""
        counts, now_ns = self._nvml.counters(self._gpu), time.monotonic_ns()
        if afresh:
            self._since_ns = now_ns
            self._moved = [0] * len(COUNTERS)
        else:
            most = self._most_per_s * (now_ns - self._at_ns) // 1_000_000_000
            for at, (before, after) in enumerate(zip(self._counts, counts)):
                moved, so_far = _moved(before, after, at < _PCIE, most), self._moved[at]
                self._moved[at] = None if moved is None or so_far is None else so_far + moved
        self._counts, self._at_ns = counts, now_ns

    def reading(self, *, may_wait: bool = True) -> Reading | None:
        """What was moved since the last reading; None if nothing is known of it.

        Args:
            may_wait: whether the driver may count for 20 ms where it has no counters.
        """
        self.look()
        past_ns = self._at_ns - self._since_ns
        if past_ns < _SHORTEST_NS:
            return None
        rates = [None if n is None else n * 1_000_000_000 // past_ns for n in self._moved]
        if self._by_call is not None and may_wait:
            rates[self._by_call] = self._nvml.pcie_rate(self._gpu, self._by_call)
            self._by_call = 1 - self._by_call
        self._since_ns, self._moved = self._at_ns, [0] * len(COUNTERS)
        if rates == [None] * len(COUNTERS):
            return None
        pcie_tx, pcie_rx, nvlink_tx, nvlink_rx = rates
        return past_ns, pcie_tx, pcie_rx, nvlink_tx, nvlink_rx


def _moved(before: int | None, after: int | None, is_pcie: bool, most: int) -> int | None:
    """The bytes between two values of a counter; None if that is not known.

    Args:
        before: the value at the last look.
        after: the value now.
        is_pcie: whether it counts bytes and may have 32 bits; else it counts KiB.
        most: what PCIe can have moved meanwhile.
    """
    if before is None or after is None:
        return None
    if is_pcie and max(before, after) < _WRAPS_AT:
        return (after - before) % _WRAPS_AT if most < _WRAPS_AT else None
    moved = after - before if is_pcie else (after - before) * _KIB
    return moved if moved >= 0 else None
