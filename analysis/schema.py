"""Every frame of the analysis, as a named `pl.Schema` with a sentence each.

Two families. *Canonical* frames are what a loader fills in (`Trace` holds them) and all that the
analysis knows of a report. *Tables* are what the analysis returns and the reports write; their
columns are the CSV columns.

Times are int64 nanoseconds since the session started, intervals half-open. A `process` or `thread`
in a canonical frame is an opaque key, unique in the report: the OS pid is `(process >> 24) &
0xFFFFFF`, the OS tid `thread & 0xFFFFFF`, and `thread & ~0xFFFFFF` is its process. In a table,
`process` is the OS pid. What was not measured is null, never 0.
"""

from typing import Final

import polars as pl

# --- canonical frames: what a loader fills in ---------------------------------------------------

OP_KIND: Final = pl.Enum(["kernel", "memcpy", "memset", "graph"])
"""Kinds of GPU operation; `graph` is a whole CUDA graph traced as one."""

MEMORY_KIND: Final = pl.Enum(["pageable", "pinned", "device", "array", "managed", "unknown"])
"""Where one side of a copy lives."""

RANGE_KIND: Final = pl.Enum(["push_pop", "start_end"])

OPS: Final = pl.Schema(
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
    }
)
"""One row per GPU operation, any order. `device` is the physical GPU. `correlation` is null where
the export has NULL or 0. `name` is the full (demangled) kernel name; `short_name` without
templates; for copies both are e.g. `memcpy HtoD`, for memsets `memset`, for graphs `graph`.
`detail` is the row of a kernel in `SHAPES` and of a memcpy in `COPY_DETAILS`; null otherwise."""

SHAPES: Final = pl.Schema(
    {
        "grid_x": pl.Int32(),
        "grid_y": pl.Int32(),
        "grid_z": pl.Int32(),
        "block_x": pl.Int32(),
        "block_y": pl.Int32(),
        "block_z": pl.Int32(),
        "registers": pl.Int32(),
        "shared_bytes": pl.Int64(),
    }
)
"""How kernels were launched, one row per kernel, addressed by `OPS.detail`. `shared_bytes` is
static plus dynamic shared memory per block."""

COPY_DETAILS: Final = pl.Schema(
    {
        "bytes": pl.Int64(),
        "direction": pl.String(),
        "source_memory": MEMORY_KIND,
        "target_memory": MEMORY_KIND,
    }
)
"""What memcpys moved, one row per memcpy, addressed by `OPS.detail`. `direction` is `HtoD`,
`DtoH`, `DtoD`, `HtoH`, `PtoP`, …"""

CALLS: Final = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "correlation": pl.Int64(),
        "name": pl.Categorical(),
    }
)
"""One row per CUDA API call, any order; `name` without its version suffix (`_v7000`, `_ptsz`)."""

RANGES: Final = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "kind": RANGE_KIND,
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "domain": pl.String(),
        "name": pl.String(),
        "row": pl.UInt32(),
    }
)
"""One row per NVTX range. `end_ns` is null for a range that never ended; `domain` is null for the
default domain; `row` is the range's place in the report (the last tie-break of spec §7)."""

OVERHEAD: Final = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "name": pl.Categorical(),
    }
)
"""One row per stretch of the profiler's own work on a thread of the program."""

THREADS: Final = pl.Schema({"process": pl.Int64(), "thread": pl.Int64(), "name": pl.String()})
"""One row per named thread; `pt_autograd*` marks PyTorch's backward threads."""

DEVICES: Final = pl.Schema(
    {
        "device": pl.Int32(),
        "name": pl.String(),
        "uuid": pl.String(),
        "sm_count": pl.Int32(),
        "memory_bytes_per_s": pl.Int64(),
    }
)
"""One row per physical GPU the report names."""

DIAGNOSTICS: Final = pl.Schema({"severity": pl.Int32(), "text": pl.String()})
"""What the profiler said about its own capture."""

BACKTRACES: Final = pl.Schema({"start_ns": pl.Int64(), "thread": pl.Int64(), "stack": pl.UInt32()})
"""One row per sampled Python backtrace of a CUDA call, in the report's order: it starts when the
call does. `stack` is its stack in `FRAMES`."""

FRAMES: Final = pl.Schema(
    {
        "stack": pl.UInt32(),
        "depth": pl.UInt32(),
        "file": pl.String(),
        "line": pl.Int64(),
        "function": pl.String(),
    }
)
"""One row per frame of each distinct Python stack, from the innermost (`depth` 0) out. `file` as
the report has it, a path or e.g. `<string>`."""

METRICS: Final = (
    "sm_active_pct",
    "sm_issue_pct",
    "tensor_active_pct",
    "dram_read_pct",
    "dram_write_pct",
)
"""The sampled GPU counters that are read, each a percentage of what the GPU can do at most."""

GPU_SAMPLES: Final = pl.Schema(
    {"time_ns": pl.Int64(), "device": pl.Int32(), **dict.fromkeys(METRICS, pl.Int64())}
)
"""One row per device and sampling instant, sorted: counters in whole percent (0..100), null for
those that the GPU does not have. `time_ns` is where the time that a sample covers begins."""

MESSAGES: Final = pl.Schema(
    {
        "start_ns": pl.Int64(),
        "thread": pl.Int64(),
        "bytes": pl.Int64(),
        "communicator": pl.UInt64(),
    }
)
"""One row per range of NCCL that says how much is sent: it is the one of that thread and start.
`bytes` is the size of the message on this rank, `communicator` whom it is sent among (the same
number on all of them), where that is told."""

CAPTURES: Final = pl.Schema(
    {"process": pl.Int64(), "capture": pl.String(), "unprofiled_step_ns": pl.Int64()}
)
"""One row per process that captured a window of its steps (`nsysflow.steps`): `capture` is
`wait:warmup:active`, `unprofiled_step_ns` what one step took with no profiler, where it knows."""

FLOPS: Final = pl.Schema(
    {"process": pl.Int64(), "phase": pl.String(), "flops": pl.Int64(), "unit": pl.String()}
)
"""What a step computes, as a program declares it of itself: a row per process and phase, which is a
range's name. `flops` are of one step, and of what no phase inside it declares; `unit` is the
arithmetic, of `nsysflow.peaks.UNITS`."""

# --- vocabulary ---------------------------------------------------------------------------------

CAUSES: Final = (
    "profiler",
    "sync",
    "blocking_copy",
    "alloc",
    "module_load",
    "api",
    "host",
    "launch",
    "dispatch",
    "dependency",
    "unknown",
)
"""Why a GPU idles, in the order of spec §3's table, which breaks ties."""

CAUSE: Final = pl.Enum(CAUSES)

STALL_CAUSES: Final = ("sync", "blocking_copy", "alloc")
"""The causes that are charged to one call, and that a call can induce after it returned."""

COPY_LABEL: Final = pl.Enum(
    ["pageable_blocking", "pageable_async", "pinned_blocking", "pinned_async", "device"]
)

ATTRIBUTION: Final = pl.Enum(["own", "borrowed", "process_range"])
"""How an operation got its phase (spec §7); null where it has none."""


BOUND: Final = pl.Enum(["compute", "memory", "overhead", "latency"])
"""What limits a phase or class, as far as sampled counters tell (spec §10)."""

GPU_METRICS_GROUP: Final = pl.Enum(["phase", "class"])
"""What a row of gpu_metrics is about: a phase's path or a class of kernels."""


def cause_columns() -> dict[str, pl.DataType]:
    """One `…_ns` column per cause, in table order."""
    return {f"{cause}_ns": pl.Int64() for cause in CAUSES}


# --- tables: what the analysis returns ----------------------------------------------------------

ACCOUNTING: Final = pl.Schema(
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "name": pl.String(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "window_ns": pl.Int64(),
        "compute_ns": pl.Int64(),
        "comm_exposed_ns": pl.Int64(),
        "copy_exposed_ns": pl.Int64(),
        "idle_ns": pl.Int64(),
        **cause_columns(),
        "ops": pl.Int64(),
        "kernels": pl.Int64(),
        "gaps": pl.Int64(),
        "kernel_ns": pl.Int64(),
        "copy_ns": pl.Int64(),
        "comm_ns": pl.Int64(),
        "copy_hidden_pct": pl.Float64(),
        "comm_hidden_pct": pl.Float64(),
    }
)
"""One row per device: window = compute + comm_exposed + copy_exposed + idle, to the ns, and the
causes sum to idle. `kernel_ns`, `copy_ns` and `comm_ns` are sums of durations, not parts of it."""

GAPS: Final = pl.Schema(
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "gap": pl.Int64(),
        "step": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "duration_ns": pl.Int64(),
        "cause": CAUSE,
        "culprit": pl.String(),
        "source": pl.String(),
        "phase": pl.String(),
        "host_range": pl.String(),
        "prev_op": pl.String(),
        "next_op": pl.String(),
        **cause_columns(),
    }
)
"""One row per gap, sorted by device and start; the causes sum to the duration."""

GAP_SUMMARY: Final = pl.Schema(
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "phase": pl.String(),
        "host_range": pl.String(),
        "cause": CAUSE,
        "culprit": pl.String(),
        "source": pl.String(),
        "gaps": pl.Int64(),
        "total_ns": pl.Int64(),
        "mean_ns": pl.Int64(),
        "max_ns": pl.Int64(),
        "per_step_ns": pl.Int64(),
        "window_pct": pl.Float64(),
    }
)
"""One row per group of parts of gaps: a gap with three causes counts in three rows. Ordered by
place, not by cost, so that two summaries diff. `host_range` is `(outside ranges)` when none was
open, and empty when the host was not asked: its launch had begun before the gap. `per_step_ns`
counts gaps that start in a step, and is null without steps."""

GAP_HISTOGRAM: Final = pl.Schema(
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "length": pl.String(),
        "cause": CAUSE,
        "gaps": pl.Int64(),
        "idle_ns": pl.Int64(),
    }
)
"""Gaps by length (`< 2 us`, …) and dominant cause."""

PHASES: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "path": pl.String(),
        "depth": pl.Int64(),
        "instances": pl.Int64(),
        "host_wall_ns": pl.Int64(),
        "ops": pl.Int64(),
        "kernels": pl.Int64(),
        "kernel_ns": pl.Int64(),
        "busy_ns": pl.Int64(),
        "span_ns": pl.Int64(),
        "launches": pl.Int64(),
        "idle_ns": pl.Int64(),
        **cause_columns(),
        "mean_ns": pl.Int64(),
        "median_ns": pl.Int64(),
        "min_ns": pl.Int64(),
        "max_ns": pl.Int64(),
        "std_ns": pl.Int64(),
        "p95_ns": pl.Int64(),
        "exclusive_kernel_ns": pl.Int64(),
        "graph_estimate_ns": pl.Int64(),
        "own_ops": pl.Int64(),
        "borrowed_ops": pl.Int64(),
        "process_range_ops": pl.Int64(),
    }
)
"""One row per process and path, inclusive of what is nested in it. `host_wall_ns` is the time the
ranges were open (the spec calls it `host_ns`, which is also the name of a cause's column);
`mean_ns` … `p95_ns` are of the span per instance, null where no instance launched anything."""

SYNCS: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "api": pl.String(),
        "kind": pl.String(),
        "thread": pl.Int64(),
        "start_ns": pl.Int64(),
        "blocked_ns": pl.Int64(),
        "gpu_busy_ns": pl.Int64(),
        "induced_idle_ns": pl.Int64(),
        "phase": pl.String(),
        "source": pl.String(),
        "bytes": pl.Int64(),
        "direction": pl.String(),
        "copy_label": COPY_LABEL,
    }
)
"""One row per sync, blocking copy and alloc call, ranked by the idle it induced. `kind` is the
call's class, `thread` the OS tid."""

INDUCED: Final = pl.Schema({**SYNCS, "device": pl.Int32(), "call": pl.UInt32()})
"""One row per call and device that it left idle: what `syncs` sums up over the devices. `call` is
the call's row, `induced_idle_ns` the idle of that device."""

LAUNCHES: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "path": pl.String(),
        "launches": pl.Int64(),
        "api_ns": pl.Int64(),
        "api_mean_ns": pl.Int64(),
        "api_median_ns": pl.Int64(),
        "api_p95_ns": pl.Int64(),
        "latency_median_ns": pl.Int64(),
        "latency_p95_ns": pl.Int64(),
        "queue_median_ns": pl.Int64(),
        "queue_p95_ns": pl.Int64(),
        "run_ahead_median": pl.Float64(),
        "starved_launches": pl.Int64(),
        "starved_pct": pl.Float64(),
    }
)
"""One row per process and phase path (inclusive). `starved_launches` are those whose operation
ended a gap with a launch part; `starved_pct` is launch-caused idle over span, of a narrowed window
over what of the span lies in it."""

STARVED: Final = pl.Schema(
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "phase": pl.String(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "ops": pl.Int64(),
        "kernels": pl.Int64(),
        "median_kernel_ns": pl.Int64(),
        "median_interval_ns": pl.Int64(),
        "launch_idle_ns": pl.Int64(),
        "idle_ns": pl.Int64(),
        "graph_estimate_ns": pl.Int64(),
    }
)
"""One row per starved window (spec §5), dearest first; of a narrowed window what lies in it.
`kernels` counts distinct kernels."""

KERNELS: Final = pl.Schema(
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "name": pl.String(),
        "short_name": pl.String(),
        "class": pl.String(),
        "count": pl.Int64(),
        "total_ns": pl.Int64(),
        "mean_ns": pl.Int64(),
        "median_ns": pl.Int64(),
        "min_ns": pl.Int64(),
        "max_ns": pl.Int64(),
        "std_ns": pl.Int64(),
        "p95_ns": pl.Int64(),
        "share_pct": pl.Float64(),
        "grid": pl.String(),
        "block": pl.String(),
        "registers": pl.Int64(),
        "shared_bytes": pl.Int64(),
        "waves": pl.Float64(),
        "tiny_pct": pl.Float64(),
    }
)
"""One row per device and full kernel name, dearest first; `share_pct` of the device's kernel time.
`grid`, `block`, `registers` and `shared_bytes` are the most common launch's; `waves` is its blocks
over the SMs."""

COPIES: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "phase": pl.String(),
        "direction": pl.String(),
        "copy_label": COPY_LABEL,
        "count": pl.Int64(),
        "bytes": pl.Int64(),
        "gpu_ns": pl.Int64(),
        "api_ns": pl.Int64(),
        "exposed_ns": pl.Int64(),
        "induced_idle_ns": pl.Int64(),
    }
)
"""One row per process, device, phase, direction and label of memcpys."""

EACH_COPY: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "phase": pl.String(),
        "direction": pl.String(),
        "copy_label": COPY_LABEL,
        "bytes": pl.Int64(),
        "api": pl.String(),
        "api_ns": pl.Int64(),
        "induced_idle_ns": pl.Int64(),
    }
)
"""One row per memcpy, by device and start: what `copies` sums up, and what `--table copies --format
parquet` gives. `api_ns` and `induced_idle_ns` are of its launch call, null without one."""

COMM: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "phase": pl.String(),
        "name": pl.String(),
        "operation": pl.String(),
        "count": pl.Int64(),
        "bytes": pl.Int64(),
        "total_ns": pl.Int64(),
        "median_ns": pl.Int64(),
        "busy_ns": pl.Int64(),
        "exposed_ns": pl.Int64(),
        "hidden_pct": pl.Float64(),
    }
)
"""One row per process, device, phase and kind of communication kernel: `name` is the kernel's short
one, `operation` what was asked of NCCL (`ncclAllReduce`), `bytes` the messages' as far as NCCL told
them (null: it told none). `total_ns` and `median_ns` are of durations. `busy_ns` counts what
several run at once for the first of them; `exposed_ns` is what of it no compute ran beside, and
sums to the accounting's `comm_exposed_ns`; `hidden_pct` is the rest's share."""

COLLECTIVES: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "phase": pl.String(),
        "name": pl.String(),
        "operation": pl.String(),
        "bytes": pl.Int64(),
        "communicator": pl.UInt64(),
        "busy_ns": pl.Int64(),
        "exposed_ns": pl.Int64(),
    }
)
"""One row per communication kernel, by device and start: what `comm` sums up, and what `--table
comm --format parquet` gives."""

STEPS: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "step": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "duration_ns": pl.Int64(),
        "compute_ns": pl.Int64(),
        "comm_exposed_ns": pl.Int64(),
        "copy_exposed_ns": pl.Int64(),
        "idle_ns": pl.Int64(),
        **cause_columns(),
        "steady": pl.Boolean(),
    }
)
"""One row per process, device and step; `idle_ns` and the causes are of the gaps that start in the
step, the other parts of the step's own window."""

GPU_METRICS: Final = pl.Schema(
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "group": GPU_METRICS_GROUP,
        "name": pl.String(),
        "busy_ns": pl.Int64(),
        "samples": pl.Int64(),
        **dict.fromkeys(METRICS, pl.Float64()),
        "bound": BOUND,
    }
)
"""One row per device and phase path (inclusive) or class of kernels; none where no counter was
sampled. `busy_ns` is the time its operations were running, of a narrowed window what of that lies
in it; `samples` how many samples cover some of it, and the `…_pct` are means over it."""

INTEGRITY: Final = pl.Schema(
    {
        "report": pl.String(),
        "check": pl.String(),
        "count": pl.Int64(),
        "share_pct": pl.Float64(),
        "doubt": pl.String(),
    }
)
"""One row per integrity check that is not zero (spec §12); `doubt` says what it puts in doubt."""

MFU: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "path": pl.String(),
        "unit": pl.String(),
        "flops": pl.Int64(),
        "steps": pl.Int64(),
        "time_ns": pl.Int64(),
        "flops_per_s": pl.Float64(),
        "peak_flops_per_s": pl.Float64(),
        "mfu_pct": pl.Float64(),
    }
)
"""One row per process and device for a step, and for each phase inside in which FLOPs are
declared; none where nothing is. `flops` are of one step; `time_ns` is the median step's, of the
steady ones if there are any, or the median span of a phase times how often it runs in a step;
`steps` is how many were looked at. `peak_flops_per_s` is the GPU's in that arithmetic, null where
it is not known."""

ARRIVALS: Final = pl.Schema(
    {
        "collective": pl.Int64(),
        "name": pl.String(),
        "operation": pl.String(),
        "bytes": pl.Int64(),
        "ranks": pl.Int64(),
        "start_ns": pl.Int64(),
        "spread_ns": pl.Int64(),
        "last_report": pl.String(),
        "last_device": pl.Int32(),
        "ends_spread_ns": pl.Int64(),
    }
)
"""One row per collective that every rank took part in, and that ended together (spec §9), in the
order of the first rank. Times are of the first report's clock: `start_ns` is the first rank's
arrival, `spread_ns` what passed until the last one's, `ends_spread_ns` by how much the ends differ,
which is how well the clocks agree."""

RANKS: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "collectives": pl.Int64(),
        "matched": pl.Int64(),
        "times_last": pl.Int64(),
        "late_ns": pl.Int64(),
        "waited_ns": pl.Int64(),
        "clock_ns": pl.Int64(),
        "residual_ns": pl.Int64(),
    }
)
"""One row per rank: a process on a GPU, with its `collectives`, and how many of them were `matched`
with those of all other ranks, not what groups of ranks do by themselves. Of the matched: how often
it came last, `late_ns` (after the first rank, summed), `waited_ns` (for the last one). `clock_ns`
is how far its report's clock is ahead of the first report's, by the median of the ends;
`residual_ns` the median of what is left between them."""

RUN_TABLES: Final[dict[str, pl.Schema]] = {"arrivals": ARRIVALS, "ranks": RANKS}
"""The tables over all reports of a run, by name."""

TABLES: Final[dict[str, pl.Schema]] = {
    "accounting": ACCOUNTING,
    "gaps": GAPS,
    "gap_summary": GAP_SUMMARY,
    "gap_histogram": GAP_HISTOGRAM,
    "phases": PHASES,
    "syncs": SYNCS,
    "launches": LAUNCHES,
    "starved": STARVED,
    "kernels": KERNELS,
    "copies": COPIES,
    "comm": COMM,
    "steps": STEPS,
    "gpu_metrics": GPU_METRICS,
    "mfu": MFU,
    "integrity": INTEGRITY,
}
"""The tables of one report by name, as `--table` and `Analysis` spell it."""
