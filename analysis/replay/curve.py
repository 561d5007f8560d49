"""How long collectives take on so many ranks; `nsysflow.workloads.common.collectives` measures."""

import csv
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from nsysflow.base.errors import SelectionError

_COLUMNS: Final = ("operation", "ranks", "bytes", "gpu_ns", "host_ns", "delay_pct")
_MOST: Final = 1 << 53
"""Beyond every size and time of a collective, and exact as a float."""


@dataclass(frozen=True, kw_only=True)
class CollectiveTime:
    """A collective of one size.

    Attributes:
        bytes: of the message, as NCCL counts them.
        gpu_ns: how long it takes on the GPU.
        host_ns: how long the host takes to ask for it.
        delay_pct: by how much of `gpu_ns` work beside it is later; None where nobody measured it.
    """

    bytes: int
    gpu_ns: float
    host_ns: float
    delay_pct: float | None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Collectives on so many ranks.

    Attributes:
        ranks: how many ranks each is of.
        rows: by NCCL's name of the operation its times, by size.
    """

    ranks: int
    rows: tuple[tuple[str, tuple[CollectiveTime, ...]], ...]

    @classmethod
    def read(cls, file: Path, ranks: int) -> Self:
        """The rows of a CSV file that are of so many ranks.

        Raises:
            SelectionError: the file is no such table, or has none for so many ranks.
        """
        try:
            with file.open(newline="", encoding="utf-8-sig") as lines:
                rows = [*_rows(csv.DictReader(lines), file)]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise SelectionError(f"{file} cannot be read: {error}", *_measure(ranks)) from error
        times: dict[str, dict[int, CollectiveTime]] = {}
        for operation, of_ranks, time in rows:
            if of_ranks == ranks:
                times.setdefault(operation, {})[time.bytes] = time
        if not times:
            known = ", ".join(map(str, sorted({of_ranks for _, of_ranks, _ in rows}))) or "none"
            seen = f"{file} has no times for {ranks} ranks, only for {known}"
            raise SelectionError(seen, *_measure(ranks))
        sizes = (
            (name, tuple(of_size[size] for size in sorted(of_size)))
            for name, of_size in times.items()
        )
        return cls(ranks=ranks, rows=tuple(sizes))

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that it has times of."""
        return tuple(name for name, _ in self.rows)

    def at(self, operation: str, size_bytes: int) -> CollectiveTime:
        """The time of a collective of a size: between two that were measured on the straight line,
        below the smallest as that, above the largest on the last line."""
        times = dict(self.rows)[operation]
        delayed = [time for time in times if time.delay_pct is not None]
        delay_pct = None
        if delayed:
            near = _clipped(size_bytes, delayed)
            delay_pct = _between(near, delayed, [time.delay_pct or 0 for time in delayed])
        least = max(size_bytes, times[0].bytes)
        return CollectiveTime(
            bytes=size_bytes,
            gpu_ns=_between(least, times, [time.gpu_ns for time in times]),
            host_ns=_between(_clipped(size_bytes, times), times, [time.host_ns for time in times]),
            delay_pct=delay_pct,
        )


LEAST_DELAY: Final = 0.75
"""Of the delay that was measured beside plain work, that of a program is so much at least: delays
of neighbouring sizes differ by a quarter (docs/facts.md)."""


@dataclass(frozen=True, kw_only=True)
class Collectives:
    """What collectives take, and how much later work beside them is.

    Attributes:
        curve: their times.
        delay: of that, between the least (0) and the most (1).
    """

    curve: Curve
    delay: float = 0.5

    def delay_of(self, time: CollectiveTime) -> float:
        """How much later work is per time that a collective runs beside it. At most all of that
        time, when the two take turns, or what was measured."""
        measured = (time.delay_pct or 0) / 100
        least, most = LEAST_DELAY * measured, max(1.0, measured)
        return least + self.delay * (most - least)


def _measure(ranks: int) -> tuple[str, str]:
    """How to measure a curve."""
    command = (
        f"torchrun --nproc-per-node {ranks} -m nsysflow.workloads.common.collectives curve.csv"
    )
    return "Measure them where so many GPUs are", command


def _rows(table: "csv.DictReader[str]", file: Path) -> Iterator[tuple[str, int, CollectiveTime]]:
    """Operation, ranks and time of each row."""
    missing = [name for name in _COLUMNS if name not in (table.fieldnames or ())]
    if missing:
        raise SelectionError(f"{file} has no column {missing[0]}", *_measure(2))
    for row in table:
        try:
            ranks, size = int(row["ranks"]), int(row["bytes"])
            gpu_ns, host_ns = float(row["gpu_ns"]), float(row["host_ns"])
            delay_pct = float(row["delay_pct"]) if row["delay_pct"] else None
        except (TypeError, ValueError) as error:
            seen = f"line {table.line_num} of {file} has no number where one belongs"
            raise SelectionError(seen, *_measure(2)) from error
        if not all(0 <= value <= _MOST for value in (ranks, size, gpu_ns, host_ns, delay_pct or 0)):
            seen = f"line {table.line_num} of {file} has a number that is no size and no time"
            raise SelectionError(seen, *_measure(2))
        time = CollectiveTime(bytes=size, gpu_ns=gpu_ns, host_ns=host_ns, delay_pct=delay_pct)
        yield row["operation"], ranks, time


def _clipped(size_bytes: int, times: Sequence[CollectiveTime]) -> int:
    return min(max(size_bytes, times[0].bytes), times[-1].bytes)


def _between(size_bytes: int, times: Sequence[CollectiveTime], values: Sequence[float]) -> float:
    """A value at a size, on the line through its two neighbours, or the last two."""
    if len(times) == 1:
        return values[0]
    place = bisect_right(times, size_bytes, key=lambda time: time.bytes)
    above = min(max(place, 1), len(times) - 1)
    low, high = times[above - 1].bytes, times[above].bytes
    part = (size_bytes - low) / (high - low)
    return values[above - 1] + part * (values[above] - values[above - 1])
