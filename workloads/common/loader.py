"""Batches that take the host time to fetch."""

import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Loader:
    """The numbers of the batches; each takes some host work, as reading and decoding would.

    Attributes:
        count: how many batches.
        work_ms: the time that each takes. The host spins, so it is the same on every machine.
    """

    count: int
    work_ms: float

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for index in range(self.count):
            until_ns = time.perf_counter_ns() + round(self.work_ms * 1_000_000)
            while time.perf_counter_ns() < until_ns:
                pass
            yield index
