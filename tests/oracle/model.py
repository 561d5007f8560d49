"""Canonical rows as plain Python values, and their conversion to and from `Trace`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any, Final, get_args

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.trace import Trace

PROCESS_MASK = ~0xFFFFFF
LOW_24_BITS = 0xFFFFFF


@dataclass(frozen=True)
class Shape:
    """The launch configuration of one kernel."""

    grid_x: int = 1
    grid_y: int = 1
    grid_z: int = 1
    block_x: int = 32
    block_y: int = 1
    block_z: int = 1
    registers: int = 16
    shared_bytes: int = 0


@dataclass(frozen=True)
class Copy:
    """The bytes of one memcpy, and the two kinds of memory."""

    bytes: int
    direction: str
    source_memory: str | None
    target_memory: str | None


@dataclass(frozen=True)
class Op:
    """One GPU operation. Kernels have a `shape`, memcpys a `copy`."""

    kind: str
    start_ns: int
    end_ns: int
    device: int
    process: int | None
    stream: int
    correlation: int | None
    graph_node: int | None
    name: str
    short_name: str
    shape: Shape | None = None
    copy: Copy | None = None


@dataclass(frozen=True)
class Call:
    """One CUDA API call; §1.12: its name has no version suffix."""

    start_ns: int
    end_ns: int
    process: int
    thread: int
    correlation: int | None
    name: str


@dataclass(frozen=True)
class Range:
    """One NVTX range; `end_ns` is None if it never ended."""

    start_ns: int
    end_ns: int | None
    kind: str
    process: int
    thread: int
    domain: str | None
    name: str
    row: int

    @property
    def lasts(self) -> bool:
        """§1.6: whether it is not dropped."""
        return self.end_ns is None or self.end_ns >= self.start_ns


@dataclass(frozen=True)
class Overhead:
    """One stretch of the profiler's own work on a thread of the program."""

    start_ns: int
    end_ns: int
    process: int
    thread: int
    name: str


@dataclass(frozen=True)
class Thread:
    """One named thread."""

    process: int
    thread: int
    name: str


@dataclass(frozen=True)
class Device:
    """One physical GPU."""

    device: int
    name: str | None
    uuid: str | None
    sm_count: int | None
    memory_bytes_per_s: int | None


@dataclass(frozen=True)
class Diagnostic:
    """One message of the profiler about its own recording."""

    severity: int
    text: str


@dataclass(frozen=True)
class Frame:
    """One frame of a Python stack."""

    file: str | None
    line: int | None
    function: str | None


@dataclass(frozen=True)
class Backtrace:
    """One sampled Python stack of a CUDA call, innermost frame first."""

    start_ns: int
    thread: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Sample:
    """One sampled Python stack of a thread, innermost frame first."""

    time_ns: int
    thread: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Running:
    """§17.3: a stretch of time in which a thread ran one innermost operator or function."""

    start_ns: int
    end_ns: int
    thread: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Gradient:
    """§17.14: a stretch in which a thread computed gradients of what ran with these frames."""

    start_ns: int
    end_ns: int
    thread: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class GpuSample:
    """The counters of one GPU at one instant, in percent."""

    time_ns: int
    device: int
    sm_active_pct: int | None = None
    sm_issue_pct: int | None = None
    tensor_active_pct: int | None = None
    dram_read_pct: int | None = None
    dram_write_pct: int | None = None


@dataclass(frozen=True)
class ThreadCpu:
    """§29.1: what the kernel counted of a thread at an instant."""

    time_ns: int
    thread: int
    ran_ns: int
    waited_ns: int


@dataclass(frozen=True)
class ProcessCpu:
    """§29.1: how a process used its CPUs up to an instant."""

    time_ns: int
    process: int
    cores: int
    used_ns: int
    started_ns: int
    busy_ns: int | None = None
    limit_millicores: int | None = None
    throttled_ns: int | None = None


@dataclass(frozen=True)
class GpuState:
    """§25.1: what was read of one GPU at one instant."""

    time_ns: int
    device: int
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: int | None = None
    temperature_c: int | None = None
    limit: str | None = None


@dataclass(frozen=True)
class GpuTraffic:
    """§25.5: what one GPU sent and received until an instant."""

    time_ns: int
    device: int
    past_ns: int
    pcie_tx_bytes_per_s: int | None = None
    pcie_rx_bytes_per_s: int | None = None
    nvlink_tx_bytes_per_s: int | None = None
    nvlink_rx_bytes_per_s: int | None = None


@dataclass(frozen=True)
class LoaderTime:
    """§27.1: a batch of a worker, or without one a wait of the loop."""

    process: int
    loader: int
    worker: int | None
    start_ns: int
    fetched_ns: int | None
    end_ns: int
    workers: int | None = None
    batch_size: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    start_method: str | None = None
    cores: int | None = None


@dataclass(frozen=True)
class MemoryChange:
    """§26: a change of the memory that a process has on a GPU."""

    time_ns: int
    row: int
    device: int
    process: int | None
    source: str
    bytes: int
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    thread: int | None = None
    correlation: int | None = None
    address: int | None = None
    frames: tuple[Frame, ...] | None = None


@dataclass(frozen=True)
class Failure:
    """§26.13: an allocation that failed."""

    time_ns: int
    device: int
    process: int | None
    thread: int | None
    bytes: int
    free_bytes: int | None = None
    frames: tuple[Frame, ...] | None = None


@dataclass(frozen=True)
class GpuMemory:
    """§26.15: how much memory of a GPU a process can have."""

    process: int
    device: int
    usable_bytes: int


@dataclass(frozen=True)
class Gil:
    """§28.1: a stretch in which a thread holds the GIL or waits for it."""

    start_ns: int
    end_ns: int | None
    thread: int
    state: str


@dataclass(frozen=True)
class Capture:
    """§8.6: the mark of a process that captured a window of its steps."""

    process: int | None
    capture: str
    unprofiled_step_ns: int | None


@dataclass(frozen=True)
class Flops:
    """§8.7: the FLOPs that a process declares for a phase of its step."""

    process: int
    phase: str
    flops: int
    unit: str


@dataclass(frozen=True)
class Message:
    """§9.1: the message of NCCL's range of that thread and start."""

    start_ns: int
    thread: int
    bytes: int
    communicator: int | None


@dataclass(frozen=True)
class EventRecord:
    """§1: a record of a CUDA event on a stream."""

    process: int
    device: int
    correlation: int | None
    stream: int | None
    record: int | None


class EventWait(EventRecord):
    """§1: a wait, of a stream or of the host, for the record of an event."""


@dataclass(frozen=True)
class OperatorShape:
    """§24: an operator's name, and what it was called with, as JSON."""

    name: str
    dims: str | None
    types: str | None = None
    strides: str | None = None
    concrete: str | None = None


@dataclass(frozen=True)
class Operator:
    """§24.1: the operator in which a call launched something; §24.9: only the kernel at `at_ns`."""

    process: int
    correlation: int
    operator: int
    shape: OperatorShape
    at_ns: int | None = None


@dataclass(frozen=True)
class GraphNode:
    """§7.13: the creation of a node of a CUDA graph."""

    start_ns: int
    process: int | None
    thread: int | None
    node: int
    original: int | None = None


@dataclass(frozen=True)
class PlainTrace:
    """One report as canonical rows, in any order."""

    report: str = "plain"
    ops: tuple[Op, ...] = ()
    calls: tuple[Call, ...] = ()
    failed_calls: tuple[Call, ...] = ()
    ranges: tuple[Range, ...] = ()
    gil: tuple[Gil, ...] = ()
    overhead: tuple[Overhead, ...] = ()
    threads: tuple[Thread, ...] = ()
    devices: tuple[Device, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    backtraces: tuple[Backtrace, ...] = ()
    samples: tuple[Sample, ...] = ()
    running: tuple[Running, ...] = ()
    gradients: tuple[Gradient, ...] = ()
    gpu_samples: tuple[GpuSample, ...] = ()
    gpu_states: tuple[GpuState, ...] = ()
    gpu_traffic: tuple[GpuTraffic, ...] = ()
    thread_cpu: tuple[ThreadCpu, ...] = ()
    process_cpu: tuple[ProcessCpu, ...] = ()
    loader_times: tuple[LoaderTime, ...] = ()
    memory: tuple[MemoryChange, ...] = ()
    out_of_memory: tuple[Failure, ...] = ()
    gpu_memory: tuple[GpuMemory, ...] = ()
    captures: tuple[Capture, ...] = ()
    messages: tuple[Message, ...] = ()
    flops: tuple[Flops, ...] = ()
    event_records: tuple[EventRecord, ...] = ()
    waits: tuple[EventWait, ...] = ()
    operators: tuple[Operator, ...] = ()
    graph_nodes: tuple[GraphNode, ...] = ()
    graph_ranges: tuple[Range, ...] = ()

    @property
    def stacks(self) -> tuple[tuple[Frame, ...], ...]:
        """The frames of everything that was recorded with a stack."""
        rows: tuple[Backtrace | Sample | Running | Gradient | MemoryChange | Failure, ...]
        rows = (*self.backtraces, *self.samples, *self.running, *self.gradients)
        rows += (*self.memory, *self.out_of_memory)
        return tuple(row.frames for row in rows if row.frames is not None)


EMPTY: Final = Trace(report="")
ROWS: Final[dict[str, type]] = {
    field.name: get_args(field.type)[0]
    for field in fields(PlainTrace)
    if field.name not in ("report", "ops", "operators")
}
"""What stands for each row of these frames of a `Trace`; for a stack's number, its frames."""


def side_by_side(models: Iterable[PlainTrace]) -> PlainTrace:
    """All of them in one report, each in processes and on GPUs of its own."""
    rows: dict[str, Any] = defaultdict(tuple)
    for number, model in enumerate(models):
        for field in fields(PlainTrace)[1:]:
            rows[field.name] += tuple(_apart(row, number) for row in getattr(model, field.name))
    return PlainTrace(**rows)


def _apart(row: Any, number: int) -> Any:
    """The row as it is in the model of that number."""
    pids = 16 * number
    offsets = {
        "process": pids << 24,
        "thread": pids << 24 | pids,
        "device": 2 * number,
        "row": 10**7 * number,
    }
    given = {name: getattr(row, name, None) for name in offsets}
    moved = {name: value + offsets[name] for name, value in given.items() if value is not None}
    return replace(row, **moved)


def to_trace(trace: PlainTrace) -> Trace:
    """The same report as a `Trace`, for the analysis."""
    shapes = [op.shape for op in trace.ops if op.shape is not None]
    copies = [op.copy for op in trace.ops if op.copy is not None]
    of_shapes, of_copies = count(), count()
    details = [
        next(of_shapes) if op.shape else next(of_copies) if op.copy else None for op in trace.ops
    ]
    ops = zip(trace.ops, details, strict=True)
    kernels = {(op.process, op.correlation, op.start_ns): detail for op, detail in ops}
    called = {row.shape: number for number, row in enumerate(trace.operators)}
    operators = [
        (
            *(row.process, row.correlation),
            None if row.at_ns is None else kernels[row.process, row.correlation, row.at_ns],
            *(row.operator, called[row.shape]),
        )
        for row in trace.operators
    ]
    stacks: dict[Any, int] = {of: at for at, of in enumerate(dict.fromkeys(trace.stacks))}
    frames = [
        (stack, depth, frame.file, frame.line, frame.function)
        for frames, stack in stacks.items()
        for depth, frame in enumerate(frames)
    ]
    rest: dict[str, Any] = {}
    for name in ROWS:
        rows = getattr(trace, name)
        rest[name] = _frame(
            name, rows, stack=[stacks.get(getattr(row, "frames", None)) for row in rows]
        )
    return Trace(
        report=trace.report,
        ops=_frame("ops", trace.ops, detail=details),
        shapes=_frame("shapes", shapes),
        copy_details=_frame("copy_details", copies),
        frames=pl.DataFrame(frames, schema=schema.FRAMES, orient="row"),
        operators=pl.DataFrame(operators, schema=schema.OPERATORS, orient="row"),
        operator_shapes=_frame("operator_shapes", [row.shape for row in trace.operators]),
        **rest,
    )


def _frame(name: str, rows: Sequence[Any], **numbers: list[int | None]) -> pl.DataFrame:
    """The frame of that name; `numbers` are columns that rows do not have."""
    empty: pl.DataFrame = getattr(EMPTY, name)
    of = empty.schema
    if not rows:
        return empty
    columns = {
        column: numbers[column] if column in numbers else [getattr(row, column) for row in rows]
        for column in of
    }
    return pl.DataFrame(columns, schema=of)


def from_trace(trace: Trace) -> PlainTrace:
    """The same report as a `PlainTrace`, for the oracle."""
    stacks: dict[int | None, tuple[Frame, ...] | None] = {None: None}
    for stack, _, *frame in trace.frames.sort("stack", "depth").iter_rows():
        stacks[stack] = (*(stacks.get(stack) or ()), Frame(*frame))

    def rows(of: type, frame: pl.DataFrame) -> tuple[Any, ...]:
        named = frame.to_dicts()
        for row in named if "stack" in frame.columns else ():
            row["frames"] = stacks[row.pop("stack")]
        return tuple(of(**row) for row in named)

    shapes = rows(Shape, trace.shapes)
    copies = rows(Copy, trace.copy_details)
    ops = []
    for row in trace.ops.iter_rows(named=True):
        detail = row.pop("detail")
        has_detail = detail is not None
        shape = shapes[detail] if has_detail and row["kind"] == "kernel" else None
        copy = copies[detail] if has_detail and row["kind"] == "memcpy" else None
        ops.append(Op(**row, shape=shape, copy=copy))
    called = rows(OperatorShape, trace.operator_shapes)
    begun = {row["detail"]: row["start_ns"] for row in trace.ops.filter(kind="kernel").to_dicts()}
    operators = [
        Operator(process, correlation, operator, called[shape], begun.get(detail))
        for process, correlation, detail, operator, shape in trace.operators.iter_rows()
    ]
    given: dict[str, Any] = {name: rows(of, getattr(trace, name)) for name, of in ROWS.items()}
    return PlainTrace(report=trace.report, ops=tuple(ops), operators=tuple(operators), **given)
