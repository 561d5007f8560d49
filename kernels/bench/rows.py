"""A row of results: as a table for people, and in the files that rows are appended to."""

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Final, Literal

from rich.table import Table

from nsysflow.base.errors import OutputError
from nsysflow.base.peaks import Unit, peak_flops
from nsysflow.kernels.bench.problem import Cost, Direction, Shape, Variant

WARM_UP_NS: Final = 25_000_000
BUDGET_NS: Final = 100_000_000
REPETITIONS: Final = (5, 50)
PLACEMENTS: Final = 25
"""Placements per run, of two runs. Over placements the worst kernel varies by 3.3 % (standard
deviation, H200), the median of 50 placements by 0.6 %."""
REPLAYS: Final = 2
"""Replays of the graph of each placement."""
PASSES: Final = 10
"""Passes per run. They are few where a sample is a mean over all placements, or where calls are
launched one by one, which takes the host longer than the GPU."""
SAMPLE_NS: Final = 1_000_000
CALLS_MAX: Final = 100


@dataclass(frozen=True, kw_only=True)
class Stats:
    """Statistics of the samples of one kind over several runs, in ns.

    Attributes:
        spread_pct: the difference between the runs' largest and smallest median, in per cent of
            the smallest.
    """

    n: int
    median_ns: float
    mean_ns: float
    min_ns: float
    max_ns: float
    std_ns: float
    spread_pct: float


def stats_of(runs: Sequence[Sequence[float]]) -> Stats:
    """The statistics of all samples of all runs.

    Raises:
        ValueError: a run is empty, or there are fewer than two samples.
    """
    samples = [sample for run in runs for sample in run]
    medians = [median(run) for run in runs]
    return Stats(
        n=len(samples),
        median_ns=median(samples),
        mean_ns=fmean(samples),
        min_ns=min(samples),
        max_ns=max(samples),
        std_ns=stdev(samples),
        spread_pct=100 * (max(medians) - min(medians)) / min(medians) if min(medians) else 0.0,
    )


def repetitions(call_ns: float) -> int:
    """How often to measure a call of this duration: for about 100 ms, 5 to 50 times."""
    fewest, most = REPETITIONS
    return max(fewest, min(most, round(BUDGET_NS / max(call_ns, 1.0))))


def warm_ups(call_ns: float) -> int:
    """How often to call before measuring: for about 25 ms."""
    return max(1, round(WARM_UP_NS / max(call_ns, 1.0)))


def calls_a_sample(call_ns: float) -> int:
    """How many calls with warm L2 one sample averages, so that they take about 1 ms.

    A pair of events adds 1.5 to 2 us. That is 0.2 % of 1 ms, and 0.6 % of 100 calls of 3 us.
    """
    return max(1, min(CALLS_MAX, round(SAMPLE_NS / max(call_ns, 1.0))))


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


HEADS: Final = {
    "device": "device",
    "span_cold": "span cold",
    "span_warm": "span warm",
    "graph_cold": "graph cold",
    "graph_warm": "graph warm",
}


def table_of(rows: Sequence[Row]) -> Table:
    """The rows of one kernel: whether they are correct and, if timed, medians in us."""
    timed = any(row.measured for row in rows)
    title = f"{rows[0].kernel}  medians in us" if timed else rows[0].kernel
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("shape", "dtype", "direction", "variant"):
        table.add_column(head, no_wrap=True)
    for head in ("error / tolerance", *_heads(timed=timed)):
        table.add_column(head, justify="right")
    for row in rows:
        cells = [shown(row.shape), row.dtype, row.direction, row.variant, _verdict(row)]
        table.add_row(*cells, *(_times(row) if timed else ()))
    return table


def _heads(*, timed: bool) -> tuple[str, ...]:
    rates = ("least host", "spread %", "GB/s", "% of copy", "TFLOP/s", "% of peak", "peak MB")
    return (*HEADS.values(), *rates) if timed else ()


def _verdict(row: Row) -> str:
    if row.error is None:
        return "[red]failed[/]"
    share = f"{100 * row.error:.3g} %"
    return share if row.outcome == "right" else f"[red]{share} WRONG[/]"


def _times(row: Row) -> list[str]:
    if row.measured is None:
        return []
    columns: dict[str, Any] = flat(row, peak_flops(row.machine.gpu, row.unit))
    medians = [_number(columns[f"{name}_median_ns"], 1e-3) for name in MEASURES]
    return [
        *medians,
        _number(columns["host_min_ns"], 1e-3),
        f"{row.measured.device.spread_pct:.1f}",
        _number(columns["bytes_per_s"], 1e-9),
        _number(columns["copy_pct"], 1),
        _number(columns["flops_per_s"], 1e-12),
        _number(columns["peak_pct"], 1),
        _number(columns["peak_memory_bytes"], 1e-6),
    ]


def _number(value: float | None, scale: float) -> str:
    """A number with three digits, or more if it is larger than 999."""
    if value is None:
        return ""
    scaled = value * scale
    return f"{scaled:.0f}" if abs(scaled) >= 100 else f"{scaled:.3g}"


def notes_of(rows: Sequence[Row]) -> list[str]:
    """One line per row that is wrong, failed or incomplete."""
    return [f"{row.case}: {row.outcome}: {row.note}" for row in rows if row.note]


def spread_of(rows: Sequence[Row]) -> str | None:
    """How far two runs of the same measurement differ; None if nothing was timed."""
    spreads = {
        (name, row.case): stats.spread_pct
        for row in rows
        for name in ("device", "graph_warm")
        if (stats := getattr(row.measured, name, None)) is not None
    }
    if not spreads:
        return None
    name, case = max(spreads, key=lambda key: spreads[key])
    return (
        f"run-to-run spread of the medians (device, graph warm): median"
        f" {median(spreads.values()):.2f} %, largest {spreads[name, case]:.2f} %"
        f" ({HEADS[name]}, {case})"
    )
