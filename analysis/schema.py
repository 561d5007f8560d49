"""The canonical frames: a loader fills them, and the analysis knows nothing else of a report."""

from collections.abc import Mapping
from operator import mul
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.base.units import POSSIBLE_NS


class Frame(pl.Schema):
    """The columns of a frame with their types, and what a row is.

    Attributes:
        about: what a row is, and what its columns mean where the name does not say it.
    """

    def __init__(self, about: str, columns: Mapping[str, pl.DataType]) -> None:
        super().__init__(columns)
        self.about = " ".join(about.split())


OP_KIND: Final = pl.Enum(["kernel", "memcpy", "memset", "graph"])
"""Kinds of GPU operation; `graph` is a whole CUDA graph traced as one."""

MEMORY_KIND: Final = pl.Enum(["pageable", "pinned", "device", "array", "managed", "unknown"])
"""Where one side of a copy lives."""

RANGE_KIND: Final = pl.Enum(["push_pop", "start_end"])
"""How an NVTX range was opened: on a thread's stack, or by itself."""

CAUSE: Final = pl.Enum([*CAUSES])
"""Why a GPU idles, in the order that breaks ties."""

KIND_OF_WAIT: Final = pl.Enum(["host", "communication", "copy", "other", "start", "unresolved"])
"""What the next compute operation waited for (spec §15)."""

ATTRIBUTION: Final = pl.Enum(["own", "borrowed", "process_range", "captured"])
"""How an operation got its phase (spec §7)."""

COPY_LABEL: Final = pl.Enum(
    ["pageable_blocking", "pageable_async", "pinned_blocking", "pinned_async", "device"]
)
"""The host's memory in a copy, and whether the host waited for it (spec §4)."""

STEP_KIND: Final = pl.Enum(["steady", "start-up", "one-off", "cut-off", "incomplete"])
"""Whether a step is typical, or why it is not (spec §8.4)."""

STEP_PART: Final = pl.Enum(["compute", "communication", "copies", "idle"])
"""What a step's time is split into: compute, exposed communication and copies, idle (spec §2)."""

CLOCK_LIMIT: Final = pl.Enum(
    ["thermal", "power_brake", "hardware", "power_cap", "sync_boost", "setting", "idle", "none"]
)
"""What keeps a GPU's clock from rising, by NVML; of several the first one here (spec §25.1)."""

MEMORY_SOURCE: Final = pl.Enum(["allocator", "cuda"])
"""Who says how much memory is in use: PyTorch's caching allocator, or CUDA (spec §26)."""

METRICS: Final = (
    "sm_active_pct",
    "sm_issue_pct",
    "tensor_active_pct",
    "dram_read_pct",
    "dram_write_pct",
)
"""The sampled GPU counters that are read, each a percentage of the GPU's maximum."""

OPS: Final = Frame(
    """One row per GPU operation, in any order. `device` is the physical GPU. `correlation` is null
    where the export has NULL or 0. `name` is a kernel's full (demangled) name and `short_name` a
    short one that still tells kernels apart; for copies both are e.g. `memcpy HtoD`, for memsets
    `memset`, for graphs `graph`. `detail` is the row of a kernel in SHAPES and of a memcpy in
    COPY_DETAILS; null otherwise.""",
    {
        "kind": OP_KIND,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "device": pl.Int32(),
        "process": pl.Int64(),
        "stream": pl.Int64(),
        "correlation": pl.Int64(),
        "graph_node": pl.Int64(),
        "name": pl.Categorical(),
        "short_name": pl.Categorical(),
        "detail": pl.UInt32(),
    },
)

GRID: Final = ("grid_x", "grid_y", "grid_z")
"""The blocks of a kernel, columns of SHAPES."""

BLOCK: Final = ("block_x", "block_y", "block_z")
"""The threads of a block."""

SHAPES: Final = Frame(
    """How kernels were launched, one row per kernel. `shared_bytes` is static plus dynamic shared
    memory per block.""",
    {
        **dict.fromkeys([*GRID, *BLOCK], pl.Int32()),
        "registers": pl.Int32(),
        "shared_bytes": pl.Int64(),
    },
)

MOVES_MANAGED_MEMORY: Final = r"^(?:memcpy )?UVM "
"""How the directions and names of copies begin that the driver makes: no call launches them."""

COPY_DETAILS: Final = Frame(
    """What memcpys moved, one row per memcpy. `direction` is `HtoD`, `DtoH`, `DtoD`, `HtoH`,
    `PtoP`, …; of pages of managed memory, which the driver moves, `UVM HtoD`, …""",
    {
        "bytes": pl.Int64(),
        "direction": pl.String(),
        "source_memory": MEMORY_KIND,
        "target_memory": MEMORY_KIND,
    },
)

CALLS: Final = Frame(
    """One row per CUDA API call, in any order. `name` has no version suffix (`_v7000`, `_ptsz`).
    """,
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "correlation": pl.Int64(),
        "name": pl.Categorical(),
    },
)

FAILED_CALLS: Final = Frame(
    """The rows of CALLS that asked for memory of the GPU when there was none, in any order.""",
    {**CALLS, "name": pl.String()},
)

RANGES: Final = Frame(
    """One row per NVTX range. `end_ns` is null for a range that never ended, `domain` for the
    default domain. `row` is the range's place in the report (the last tie-break of spec §7).""",
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kind": RANGE_KIND,
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "domain": pl.String(),
        "name": pl.String(),
        "row": pl.UInt32(),
    },
)

GIL_STATE: Final = pl.Enum(["holding", "waiting"])
"""What a thread does with Python's lock (GIL)."""

GIL: Final = Frame(
    """One row per stretch in which a thread holds the GIL or waits for it, in any order. `end_ns`
    is null where it never ended.""",
    {"start_ns": pl.Int64(), "end_ns": pl.Int64(), "thread": pl.Int64(), "state": GIL_STATE},
)

OVERHEAD: Final = Frame(
    """One row per stretch of the profiler's own work on a thread of the program.""",
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "name": pl.Categorical(),
    },
)

EVENT_RECORDS: Final = Frame(
    """One row per recorded CUDA event (`cudaEventRecord`), in the report's order. `stream` is the
    stream that it was recorded on, `correlation` that of the call. A wait for it has its `record`.
    """,
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "correlation": pl.Int64(),
        "stream": pl.Int64(),
        "record": pl.Int64(),
    },
)

WAITS: Final = Frame(
    """One row per wait that the profiler recorded, in the report's order: of a stream for an event
    (`cudaStreamWaitEvent`), or of the host for an event, a stream or a device. `correlation` is
    that of the call. `stream` waits, or the host waits for it; null if the wait names none.
    `record` is the event's record in EVENT_RECORDS; null if the report has none.""",
    {
        "process": pl.Int64(),
        "device": pl.Int32(),
        "correlation": pl.Int64(),
        "stream": pl.Int64(),
        "record": pl.Int64(),
    },
)

OPERATORS: Final = Frame(
    """One row per CUDA call that launched GPU work inside an operator whose shapes were recorded,
    and per kernel of a CUDA graph that was captured in one (spec §24.1, §24.9), in any order.
    `correlation` is that of the call, `detail` the kernel's row in SHAPES, and null for all that
    the call launched. `operator` numbers the calls of operators of a process, `shape` is the
    operator's row in OPERATOR_SHAPES. Only torch.profiler records this.""",
    {
        "process": pl.Int64(),
        "correlation": pl.Int64(),
        "detail": pl.UInt32(),
        "operator": pl.UInt32(),
        "shape": pl.UInt32(),
    },
)

OPERATOR_SHAPES: Final = Frame(
    """What operators were called with, one row per name and distinct arguments. `dims`, `types`,
    `strides` and `concrete` are JSON as the profiler wrote it: a list with an element for each
    argument. `dims` are a tensor's sizes, `concrete` the other arguments as text. Null for what was
    not recorded.""",
    {
        "name": pl.String(),
        "dims": pl.String(),
        "types": pl.String(),
        "strides": pl.String(),
        "concrete": pl.String(),
    },
)

GRAPH_NODES: Final = Frame(
    """One row per created node of a CUDA graph, in the report's order; a node can have several.
    `original` is the node that it was cloned from, null for one that was captured or added. It
    may be older than the recording.""",
    {
        "start_ns": pl.Int64(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "node": pl.Int64(),
        "original": pl.Int64(),
    },
)

THREADS: Final = Frame(
    """One row per named thread. `pt_autograd*` marks PyTorch's backward threads.""",
    {"process": pl.Int64(), "thread": pl.Int64(), "name": pl.String()},
)

DEVICES: Final = Frame(
    """One row per physical GPU that the report names.""",
    {
        "device": pl.Int32(),
        "name": pl.String(),
        "uuid": pl.String(),
        "sm_count": pl.Int32(),
        "memory_bytes_per_s": pl.Int64(),
    },
)

DIAGNOSTICS: Final = Frame(
    """What the profiler said about its own recording.""",
    {"severity": pl.Int32(), "text": pl.String()},
)

BACKTRACES: Final = Frame(
    """One row per sampled Python backtrace of a CUDA call, in the report's order. It starts when
    the call does. `stack` is its stack in FRAMES.""",
    {"start_ns": pl.Int64(), "thread": pl.Int64(), "stack": pl.UInt32()},
)

SAMPLES: Final = Frame(
    """One row per sampled Python stack of a thread, in the report's order: what it ran at
    `time_ns`. `stack` is its stack in FRAMES.""",
    {"time_ns": pl.Int64(), "thread": pl.Int64(), "stack": pl.UInt32()},
)

RUNNING: Final = Frame(
    """One row per stretch of time in which the same operator or Python function was the innermost
    one of a thread, in any order; those of a thread are disjoint. `stack` is its stack in FRAMES.
    Only torch.profiler records this.""",
    {"start_ns": pl.Int64(), "end_ns": pl.Int64(), "thread": pl.Int64(), "stack": pl.UInt32()},
)

GRADIENTS: Final = Frame(
    """One row per stretch of time in which a thread computed gradients of an operator of the
    forward pass, in any order; a row may lie in another. `stack` is the stack of that operator in
    FRAMES. Only torch.profiler records this.""",
    {"start_ns": pl.Int64(), "end_ns": pl.Int64(), "thread": pl.Int64(), "stack": pl.UInt32()},
)

FRAMES: Final = Frame(
    """One row per frame of each distinct Python stack, from the innermost (`depth` 0) out. `file`
    is as the report has it: a path, or e.g. `<string>`. An operator has neither file nor line.""",
    {
        "stack": pl.UInt32(),
        "depth": pl.UInt32(),
        "file": pl.String(),
        "line": pl.Int64(),
        "function": pl.String(),
    },
)

GPU_SAMPLES: Final = Frame(
    """One row per device and sampling instant, sorted: counters in whole percent (0..100), null for
    those that the GPU does not have. A sample covers the time from `time_ns` on.""",
    {"time_ns": pl.Int64(), "device": pl.Int32(), **dict.fromkeys(METRICS, pl.Int64())},
)

GPU_STATES: Final = Frame(
    """One row per reading of a GPU's clocks, power and temperature, in any order; null for what was
    not read. `limit` is what keeps the clock from rising.""",
    {
        "time_ns": pl.Int64(),
        "device": pl.Int32(),
        "sm_clock_mhz": pl.Int64(),
        "memory_clock_mhz": pl.Int64(),
        "power_w": pl.Int64(),
        "temperature_c": pl.Int64(),
        "limit": CLOCK_LIMIT,
    },
)

TRAFFIC: Final = tuple(
    f"{link}_{direction}_bytes_per_s" for link in ("pcie", "nvlink") for direction in ("tx", "rx")
)
"""What a GPU sends and receives."""

GPU_TRAFFIC: Final = Frame(
    """One row per reading of what a GPU sends (`tx`) and receives (`rx`) over PCIe and over all its
    NVLinks, in any order: means since the reading before, `past_ns` ago; null for what was not
    read.""",
    {
        "time_ns": pl.Int64(),
        "device": pl.Int32(),
        "past_ns": pl.Int64(),
        **dict.fromkeys(TRAFFIC, pl.Int64()),
    },
)

THREAD_CPU: Final = Frame(
    """One row per reading of what the kernel counts of a thread, in any order: how long it ran, and
    how long it could have run and had no CPU, both since it started.""",
    {"time_ns": pl.Int64(), "thread": pl.Int64(), "ran_ns": pl.Int64(), "waited_ns": pl.Int64()},
)

PROCESS_CPU: Final = Frame(
    """One row per reading of how a process uses its CPUs, in any order; null for what was not read.
    `cores` is how many CPUs it may use, `busy_ns` how long these were busy since the system
    started, `used_ns` the CPU time of its threads, `started_ns` that of the processes that it
    started. `limit_millicores` is the limit of its control group in thousandths of a CPU,
    `throttled_ns` how long that held its threads up, summed over CPUs.""",
    {
        "time_ns": pl.Int64(),
        "process": pl.Int64(),
        "cores": pl.Int64(),
        "used_ns": pl.Int64(),
        "started_ns": pl.Int64(),
        "busy_ns": pl.Int64(),
        "limit_millicores": pl.Int64(),
        "throttled_ns": pl.Int64(),
    },
)

START_METHOD: Final = pl.Enum(["fork", "spawn", "forkserver"])
"""How Python starts the workers of a loader."""

LOADER_TIMES: Final = Frame(
    """One row per batch that a worker of a DataLoader fetched, and one, without `worker` and
    `fetched_ns`, per batch that the loop got: from when it asked; in any order. `start_ns` is when
    the request came, `end_ns` when the batch was sent. `process` is that of the loop. The rest are
    the settings of the loader, null for what is not known.""",
    {
        "process": pl.Int64(),
        "loader": pl.Int64(),
        "worker": pl.Int64(),
        "start_ns": pl.Int64(),
        "fetched_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "workers": pl.Int64(),
        "batch_size": pl.Int64(),
        "prefetch_factor": pl.Int64(),
        "pin_memory": pl.Boolean(),
        "persistent_workers": pl.Boolean(),
        "start_method": START_METHOD,
        "cores": pl.Int64(),
    },
)

MEMORY: Final = Frame(
    """One row per change of the memory that a process has on a GPU, in any order. `row` is its
    place in the report, which decides between rows of one time. `bytes` is the change: what was
    allocated, or minus what was freed. `allocated_bytes` and `reserved_bytes` are known after it
    (spec §26.1). `stack`, its stack in FRAMES, or else `thread` or `correlation`, that of the
    call, say where it was made; null where the report does not. `address` is null where it is not
    known.""",
    {
        "time_ns": pl.Int64(),
        "row": pl.UInt32(),
        "device": pl.Int32(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "correlation": pl.Int64(),
        "source": MEMORY_SOURCE,
        "address": pl.Int64(),
        "bytes": pl.Int64(),
        "allocated_bytes": pl.Int64(),
        "reserved_bytes": pl.Int64(),
        "stack": pl.UInt32(),
    },
)

POSSIBLE_HZ: Final = range(1 << 36)
"""The clocks that a GPU can have: up to 69 GHz. Their sum over a day fits 64 bits."""

BEFORE_NS: Final = -(1 << 62)
"""Times up to 2^61 ns later are of memory that was there before the recording began."""

OUT_OF_MEMORY: Final = Frame(
    """One row per allocation that failed, in any order: how much was asked for, and how much of the
    GPU's memory was free then, null where that is not known. `thread` and `stack` are as in
    MEMORY.""",
    {
        "time_ns": pl.Int64(),
        "device": pl.Int32(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "bytes": pl.Int64(),
        "free_bytes": pl.Int64(),
        "stack": pl.UInt32(),
    },
)

GPU_MEMORY: Final = Frame(
    """One row per process and GPU of which it is known how much memory the process can have there:
    what it has reserved, and what nobody has.""",
    {"process": pl.Int64(), "device": pl.Int32(), "usable_bytes": pl.Int64()},
)

MESSAGES: Final = Frame(
    """One row per NCCL range that states the size of its message: the range of that thread and
    start. `bytes` is the size on this rank. `communicator` is the same number on all ranks of the
    communicator, null where NCCL does not state it.""",
    {
        "start_ns": pl.Int64(),
        "thread": pl.Int64(),
        "bytes": pl.Int64(),
        "communicator": pl.UInt64(),
    },
)

CAPTURES: Final = Frame(
    """One row per process that captured a window of its steps (`nsysflow.steps`). `capture` is
    `wait:warmup:active`. `unprofiled_step_ns` is what one step took before the window, null where
    it was not timed.""",
    {"process": pl.Int64(), "capture": pl.String(), "unprofiled_step_ns": pl.Int64()},
)

FLOPS: Final = Frame(
    """One row per process and phase for which the program declares its FLOPs. `phase` is a range's
    name. `flops` are of one step, without what a phase inside it declares. `unit` is the
    arithmetic, one of `nsysflow.base.peaks.UNITS`.""",
    {"process": pl.Int64(), "phase": pl.String(), "flops": pl.Int64(), "unit": pl.String()},
)


ID_BITS: Final = 24
ID_MASK: Final = (1 << ID_BITS) - 1


def process_of(thread: pl.Expr) -> pl.Expr:
    """The process key of a thread key."""
    return thread & pl.lit(~ID_MASK, pl.Int64)


def is_possible(time: pl.Expr) -> pl.Expr:
    """Whether an event can have been at this time."""
    return time.is_between(POSSIBLE_NS[0], POSSIBLE_NS[-1])


def os_pid(process: pl.Expr) -> pl.Expr:
    """The OS pid of a process key."""
    return (process // (1 << ID_BITS)) & ID_MASK


def os_tid(thread: pl.Expr) -> pl.Expr:
    """The OS tid of a thread key."""
    return thread & ID_MASK


def blocks_of_grid() -> pl.Expr:
    """How many blocks a kernel has (int64)."""
    return pl.reduce(mul, [pl.col(axis).cast(pl.Int64) for axis in GRID])


def grid_as_text() -> pl.Expr:
    """A kernel's grid, such as `128x4x1`."""
    return pl.format("{}x{}x{}", *GRID)
