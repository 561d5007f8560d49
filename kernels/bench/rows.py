"""A row of results, and the files that rows are appended to."""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

from nsysflow.base.errors import OutputError
from nsysflow.base.peaks import Unit
from nsysflow.kernels.bench.calls import Variant
from nsysflow.kernels.bench.problem import Cost, Direction, Shape
from nsysflow.kernels.bench.statistics import Stats

MEASURES: Final = ("device", "span_cold", "span_warm", "graph_cold", "graph_warm")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How long a call takes, measured in five ways that are never mixed.

    Attributes:
        device: the sum of the durations of its kernels, with L2 flushed before.
        span_cold: the time from event to event divided by the number of calls, for consecutive
            launches on different memory, with L2 flushed before. The host is ahead, so this is the
            GPU's time: kernels and the pauses between them. With more than the 1000 launches that
            fit into the GPU's queue, it includes the host's time.
        span_warm: the same for repeated calls on the same memory.
        graph_cold: like `span_cold`, replayed as a CUDA graph; None if it cannot be captured.
        graph_warm: like `span_warm`, replayed as a CUDA graph; None if it cannot be captured.
        why_no_graph: why it cannot be captured: CUDA's message.
        host_min_ns: the shortest time in which the host issued the call. If it is longer than
            `span_warm`, a program that only repeats the call takes this long per call.
        peak_memory_bytes: the most memory that a call allocates in addition.
    """

    device: Stats
    span_cold: Stats
    span_warm: Stats
    graph_cold: Stats | None
    graph_warm: Stats | None
    why_no_graph: str | None
    host_min_ns: int
    peak_memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine of a measurement.

    Attributes:
        gpu: the name of the GPU; empty if there is none.
        versions: the versions of driver, cuda, torch, triton and nsysflow.
        copy_bytes_per_s: the bytes that a large copy reads and writes per second in this run.
    """

    gpu: str
    versions: dict[str, str]
    copy_bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A case and its outcome: `right`, `wrong`, or `failed` if it raised an error."""

    date: str
    kernel: str
    shape: Shape
    dtype: str
    direction: Direction
    variant: Variant
    outcome: Literal["right", "wrong", "failed"]
    error: float | None
    note: str | None
    cost: Cost | None
    unit: Unit
    measured: Measured | None
    machine: Machine

    @property
    def case(self) -> str:
        """The case in words, for messages."""
        return f"{self.kernel} {self.variant} {self.direction} {self.dtype} {shown(self.shape)}"


def shown(shape: Shape) -> str:
    """A shape as text, such as `S=8192 T=64`."""
    return " ".join(f"{name}={size}" for name, size in shape.items())


def flat(row: Row, peak_flops_per_s: float | None) -> dict[str, Any]:
    """A row as a flat dict with the same keys for every row, in ns, bytes and per cent.

    Args:
        row: the row.
        peak_flops_per_s: the peak of the GPU in the row's unit.
    """
    device_ns = row.measured.device.median_ns if row.measured else None
    bytes_per_s = _rate(row.cost.bytes if row.cost else None, device_ns)
    flops_per_s = _rate(row.cost.flops if row.cost else None, device_ns)
    columns: dict[str, Any] = {
        "date": row.date,
        "gpu": row.machine.gpu,
        **row.machine.versions,
        "kernel": row.kernel,
        "shape": shown(row.shape),
        "dtype": row.dtype,
        "direction": row.direction,
        "variant": row.variant,
        "outcome": row.outcome,
        "error_of_allowed": None if row.error in (None, inf) else _rounded(row.error, 4),
        "bytes": row.cost.bytes if row.cost else None,
        "flops": row.cost.flops if row.cost else None,
        "unit": row.unit,
    }
    for name in MEASURES:
        stats: Stats | None = getattr(row.measured, name, None)
        for column in fields(Stats):
            value = getattr(stats, column.name, None)
            columns[f"{name}_{column.name}"] = _rounded(value, 1)
    return columns | {
        "host_min_ns": row.measured.host_min_ns if row.measured else None,
        "bytes_per_s": _rounded(bytes_per_s, 0),
        "copy_bytes_per_s": _rounded(row.machine.copy_bytes_per_s, 0),
        "copy_pct": _share(bytes_per_s, row.machine.copy_bytes_per_s),
        "flops_per_s": _rounded(flops_per_s, 0),
        "peak_pct": _share(flops_per_s, peak_flops_per_s),
        "peak_memory_bytes": row.measured.peak_memory_bytes if row.measured else None,
    }


def _rate(amount: int | None, ns: float | None) -> float | None:
    return None if amount is None or not ns else amount / ns * 1e9


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else round(100 * part / whole, 2)


def _rounded(value: float | None, digits: int) -> float | None:
    return value if value is None or isinstance(value, int) else round(value, digits)


def check_file(file: Path, columns: Iterable[str] | None) -> None:
    """Refuse a file that rows cannot be appended to.

    Args:
        file: the file; it is created if it does not exist.
        columns: the columns of the rows, if the file is CSV.

    Raises:
        OutputError: it has other columns, or cannot be read or written.
    """
    try:
        with file.open("a", encoding="utf-8"):
            pass
        with file.open(encoding="utf-8") as lines:
            header = lines.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        seen = f"cannot append results to {file}: {error}"
        raise OutputError(seen, "Name another file") from error
    if columns is not None and header not in ("", ",".join(columns)):
        seen = f"{file} has other columns than the rows of this version; nothing ran"
        raise OutputError(seen, "Name another file, or move this one away")


def add_to_csv(file: Path, row: dict[str, Any]) -> None:
    """Append a row to a CSV file, with a header if the file is new."""
    with file.open("a", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, row, lineterminator="\n")
        if lines.tell() == 0:
            writer.writeheader()
        writer.writerow(row)


def add_to_json(file: Path, row: dict[str, Any]) -> None:
    """Append a row to a file, as one JSON object on one line."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")
