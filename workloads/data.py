"""Batches, and the host work that fetching one takes."""

import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Loader:
    """Numbers of batches, each given after some work of the host, as reading and decoding are.

    Attributes:
        count: how many.
        work_ms: what each takes. The host spins, so that it takes as long on every machine.
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
