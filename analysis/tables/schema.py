"""The columns of every table, with a sentence on what a row is.

They are the CSV columns too. In a table `process` is the OS pid and `thread` the OS tid. Times are
ns since the session started; what was not measured is null, never 0.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.declared import tables
from nsysflow.analysis.schema import (
    CAUSE,
    COPY_LABEL,
    KIND_OF_WAIT,
    METRICS,
    STEP_KIND,
    STEP_PART,
    Frame,
)

BOUND: Final = pl.Enum(["compute", "memory", "overhead", "latency"])
"""What limits a phase or class, as far as sampled counters show (spec §10)."""

GPU_METRICS_GROUP: Final = pl.Enum(["phase", "class"])
"""What a row of gpu_metrics is about: a phase's path or a class of kernels."""

GROUP_KIND: Final = pl.Enum(["all", "TP", "PP", "DP", "EP"])
"""What a group of ranks shares: all ranks of the run, or by tensor, pipeline, data or expert
parallelism (spec §9)."""

_CAUSES: Final = {f"{cause}_ns": pl.Int64() for cause in CAUSES}

_SPREAD: Final = {
    f"{name}_ns": pl.Int64() for name in ("mean", "median", "min", "max", "std", "p95")
}

REASONS: Final = ("cost_work_ns", "cost_copy_ns", "cost_group_ns", "cost_host_ns")
"""Why a rank held up the others, in the order that breaks ties (spec §9)."""

_REASONS: Final = dict.fromkeys(REASONS, pl.Int64())

FINDINGS: Final = Frame(
    """One row per thing to change, the largest saving first; `finding` numbers them. Savings are of
    a recorded step that is judged, of the slowest rank, or of the window where no steps are judged.
    `method` is `replay` where the change itself was replayed, so that low and high are the same,
    and `bound` where `saving_high_ns` is the most that it can be. `culprit` is the call, kernel or
    stream that it is about. `steps` is how many of the judged steps have it. Savings overlap: they
    are never summed. `process` and `device` are null where it is of several.""",
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "finding": pl.Int64(),
        "rule": pl.String(),
        "title": pl.String(),
        "phase": pl.String(),
        "source": pl.String(),
        "via": pl.String(),
        "culprit": pl.String(),
        "saving_low_ns": pl.Int64(),
        "saving_high_ns": pl.Int64(),
        "saving_pct": pl.Float64(),
        "method": pl.String(),
        "steps": pl.Int64(),
        "evidence": pl.String(),
        "change": pl.String(),
    },
)

ACCOUNTING: Final = Frame(
    """One row per device: window = compute + comm_exposed + copy_exposed + idle, to the ns, and the
    causes sum to idle. `kernel_ns`, `copy_ns` and `comm_ns` are sums of durations, not parts of the
    window. `…_hidden_pct` is the share of copies and communication that ran under other work.""",
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
        **_CAUSES,
        "ops": pl.Int64(),
        "kernels": pl.Int64(),
        "gaps": pl.Int64(),
        "kernel_ns": pl.Int64(),
        "copy_ns": pl.Int64(),
        "comm_ns": pl.Int64(),
        "copy_hidden_pct": pl.Float64(),
        "comm_hidden_pct": pl.Float64(),
    },
)

GAPS: Final = Frame(
    """One row per gap, sorted by device and start; the causes sum to the duration. `cause` is the
    largest part and `culprit` the call blamed for most of it. `phase` is where the host was in
    most of that part, `waiting_phase` where the next operation was launched; both are empty where
    no range was open, and `(launch not recorded)` without a launch. `host_range` is where the host
    was between calls; empty where no range was open or the launch had begun before the gap.""",
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
        "via": pl.String(),
        "phase": pl.String(),
        "waiting_phase": pl.String(),
        "host_range": pl.String(),
        "prev_op": pl.String(),
        "next_op": pl.String(),
        **_CAUSES,
    },
)

WAITED: Final = Frame(
    """One row per process, device, phase, kind and operation of the time without compute. Of
    `communication`, `copy` and `other` (an operation of another GPU), `name` and `stream` are those
    of the operation that was waited for, `phase` and `process` those of its launch. `host` (not
    launched yet), `start` (launched and free to start) and `unresolved` are of the operation that
    had not started, without its name. `waits` counts the waits. A device's rows sum to its window
    minus compute.""",
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "phase": pl.String(),
        "kind": KIND_OF_WAIT,
        "name": pl.String(),
        "stream": pl.Int64(),
        "waits": pl.Int64(),
        "total_ns": pl.Int64(),
        "largest_ns": pl.Int64(),
        "window_pct": pl.Float64(),
    },
)

GAP_SUMMARY: Final = Frame(
    """One row per place, cause, culprit and line. A gap with three causes counts in three rows.
    Rows are ordered by place, not by size, so that two summaries can be compared with diff.
    `phase` is where the host was: empty where no range was open, `(launch not recorded)` where the
    launch of the work is not in the report. `gaps` counts a gap once for each place of the cause.
    `per_step_ns` is the part inside steps, divided by the number of steps of the processes whose
    work ended the gaps; null if they have no steps. `steady_per_step_ns` is the same of steady
    steps.""",
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "phase": pl.String(),
        "cause": CAUSE,
        "culprit": pl.String(),
        "source": pl.String(),
        "via": pl.String(),
        "gaps": pl.Int64(),
        "total_ns": pl.Int64(),
        "mean_ns": pl.Int64(),
        "max_ns": pl.Int64(),
        "per_step_ns": pl.Int64(),
        "window_pct": pl.Float64(),
        "steady_per_step_ns": pl.Int64(),
    },
)

GAP_HISTOGRAM: Final = Frame(
    """One row per device, length (`< 2 us`, …) and largest cause of gaps.""",
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "length": pl.String(),
        "cause": CAUSE,
        "gaps": pl.Int64(),
        "idle_ns": pl.Int64(),
    },
)

PHASES: Final = Frame(
    """One row per process and path of ranges, including what is nested in it. `host_wall_ns` is how
    long the ranges were open. `mean_ns` to `p95_ns` are of an instance's span, from its first
    operation to its last; null where no instance launched anything. `bound` names the largest of
    compute, communication and copies that were waited for, and idle time by cause, joined by those
    close to it; `bound_pct` is the share of the first. `steady_per_step_ns` is the busy and idle
    time in steady steps, divided by their number; null if there are none.""",
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
        **_CAUSES,
        "bound": pl.String(),
        "bound_pct": pl.Float64(),
        **_SPREAD,
        "exclusive_kernel_ns": pl.Int64(),
        "graph_estimate_ns": pl.Int64(),
        "own_ops": pl.Int64(),
        "borrowed_ops": pl.Int64(),
        "process_range_ops": pl.Int64(),
        "captured_ops": pl.Int64(),
        "steady_per_step_ns": pl.Int64(),
    },
)

HOST_STACKS: Final = Frame(
    """One row per thread, phase, cause, function and line that the host was at in the idle time of
    the causes `host` and `launch`, most idle time first. `function` is the innermost function or
    operator, `(not sampled)` where no sample is near. Where a report has samples, or operators of
    torch.profiler, the rows sum to the idle time of both causes, else there are none.""",
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "phase": pl.String(),
        "cause": CAUSE,
        "function": pl.String(),
        "source": pl.String(),
        "via": pl.String(),
        "idle_ns": pl.Int64(),
        "samples": pl.Int64(),
        "share_pct": pl.Float64(),
    },
)

IDLE_STACKS: Final = Frame(
    """One row per phase, cause and stack of the idle time in `host_stacks`, most idle time first.
    `stack` has its frames, outermost first, each as `function (file:line)`, an operator as its
    name; it is `(not sampled)` where no sample is near.""",
    {
        "report": pl.String(),
        "phase": pl.String(),
        "cause": CAUSE,
        "stack": pl.List(pl.String),
        "idle_ns": pl.Int64(),
        "samples": pl.Int64(),
    },
)

SYNCS: Final = Frame(
    """One row per synchronization, blocking copy and allocation, ranked by the idle time behind it
    (`induced_idle_ns`). `kind` is the call's class. `gpu_busy_ns` is how much of the wait a GPU of
    the process was busy.""",
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
        "via": pl.String(),
        "bytes": pl.Int64(),
        "direction": pl.String(),
        "copy_label": COPY_LABEL,
    },
)

INDUCED: Final = Frame(
    """One row per call and device with idle time behind the call; syncs has the sum over devices.
    `call` numbers the calls.""",
    {**SYNCS, "device": pl.Int32(), "call": pl.UInt32()},
)

LAUNCHES: Final = Frame(
    """One row per process and phase, including what is nested in it. `starved_launches` are those
    whose operation ended a gap with a launch part. `starved_pct` is launch-caused idle over span,
    within the selection.""",
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
    },
)

STEP_PARTS: Final = Frame(
    """One row per step and part of it: kernels by class, name, grid and phase; communication and
    copies likewise; idle time by cause, phase, culprit and line. `ns` is the part of the step's
    time, so that the rows of a step sum to its duration: an instant with several kernels belongs to
    the one that started first, and of communication and copies only the exposed time counts.
    `duration_ns` and `count` are of all operations that start in the step, overlapped or not; of
    idle time `count` is that of its gaps. `kind` is the class of kernels, the kind of copies or the
    cause. `process` and `step` are null on a device without steps, whose whole window it is.""",
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "step": pl.Int64(),
        "part": STEP_PART,
        "kind": pl.String(),
        "name": pl.String(),
        "short_name": pl.String(),
        "grid": pl.String(),
        "phase": pl.String(),
        "source": pl.String(),
        "via": pl.String(),
        "ns": pl.Int64(),
        "duration_ns": pl.Int64(),
        "count": pl.Int64(),
    },
)

STARVED: Final = Frame(
    """One row per starved window (spec §5), most launch-caused idle first, cut to the selection.
    `kernels` counts distinct kernels.""",
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
    },
)

KERNELS: Final = Frame(
    """One row per device and full kernel name, most time first. `share_pct` is of the device's
    kernel time. `grid`, `block`, `registers` and `shared_bytes` are of the most common launch;
    `waves` is its blocks over the SMs. `tiny_pct` is the share of launches that ran shorter than
    their own launch call took.""",
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "name": pl.String(),
        "short_name": pl.String(),
        "class": pl.String(),
        "count": pl.Int64(),
        "total_ns": pl.Int64(),
        **_SPREAD,
        "share_pct": pl.Float64(),
        "grid": pl.String(),
        "block": pl.String(),
        "registers": pl.Int64(),
        "shared_bytes": pl.Int64(),
        "waves": pl.Float64(),
        "tiny_pct": pl.Float64(),
    },
)

COPIES: Final = Frame(
    """One row per process, device, phase, direction and label of memcpys. `exposed_ns` is the
    part of their time in which no kernel ran.""",
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
    },
)

EACH_COPY: Final = Frame(
    """One row per memcpy, by device and start. `api_ns` and `induced_idle_ns` are of its launch
    call, null without one.""",
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
    },
)

COMM: Final = Frame(
    """One row per process, device, phase, kernel (`name`, short) and NCCL operation (`operation`,
    e.g. `ncclAllReduce`). `bytes` sums the message sizes that NCCL states, null where it states
    none. `total_ns` and `median_ns` are of durations. An instant with several communication kernels
    counts in `busy_ns` for the one that started first. `exposed_ns` is the part of it without
    compute, and sums to the accounting's `comm_exposed_ns`; `hidden_pct` is the rest's share.""",
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
    },
)

COLLECTIVES: Final = Frame(
    """One row per communication kernel, by device and start.""",
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
    },
)

STEPS: Final = Frame(
    """One row per process, device and step. `idle_ns` and the causes are of the gaps that start in
    the step; the other parts are of the step's own window. `kind` says whether the step is typical:
    `steady`, `start-up`, `one-off` (much longer than the steps around it, or with wrong times in a
    graph), `cut-off` by the end of the recording, or `incomplete` (operations were lost in it).
    `bound` is as in phases.""",
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
        **_CAUSES,
        "bound": pl.String(),
        "bound_pct": pl.Float64(),
        "steady": pl.Boolean(),
        "kind": STEP_KIND,
    },
)

STEP_GROUP: Final = pl.Enum(
    ["before", "steady", "periodic", "one-off", "incomplete", "cut-off", "after"]
)
"""What a row of step_groups holds (spec §8.17)."""

STEP_GROUPS: Final = Frame(
    """The window by kind of step; the rows of a process and device sum to its device's window, and
    the parts of a row (compute, exposed communication and copies, idle) to its `total_ns`.
    `before` is what precedes the steps, and the start-up steps; each one-off has a row, but those
    of the same place and cause that come back `every` so many steps share one (`periodic`); `after`
    follows the last step. `excess_ns` is what one-offs took beyond the steps around them. `cause`
    and `second_cause` have most of the row's idle time. `largest_…` is its longest gap, `phase`,
    `culprit`, `source` and `via` are that gap's; null for steady steps.""",
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "kind": STEP_GROUP,
        "steps": pl.String(),
        "count": pl.Int64(),
        "every": pl.Int64(),
        "start_ns": pl.Int64(),
        "total_ns": pl.Int64(),
        "excess_ns": pl.Int64(),
        "compute_ns": pl.Int64(),
        "comm_exposed_ns": pl.Int64(),
        "copy_exposed_ns": pl.Int64(),
        "idle_ns": pl.Int64(),
        "cause": CAUSE,
        "cause_ns": pl.Int64(),
        "second_cause": CAUSE,
        "second_cause_ns": pl.Int64(),
        "largest_ns": pl.Int64(),
        "largest_cause": CAUSE,
        "phase": pl.String(),
        "culprit": pl.String(),
        "source": pl.String(),
        "via": pl.String(),
    },
)

GPU_METRICS: Final = Frame(
    """One row per device and phase (including what is nested in it) or class of kernels; no rows
    where no counter was sampled. `busy_ns` is the time its operations ran within the selection,
    `samples` how many samples cover some of it; the `…_pct` are means over it.""",
    {
        "report": pl.String(),
        "device": pl.Int32(),
        "group": GPU_METRICS_GROUP,
        "name": pl.String(),
        "busy_ns": pl.Int64(),
        "samples": pl.Int64(),
        **dict.fromkeys(METRICS, pl.Float64()),
        "bound": BOUND,
    },
)

INTEGRITY: Final = Frame(
    """One row per integrity check that found something (spec §12). `impact` says which numbers it
    affects.""",
    {
        "report": pl.String(),
        "check": pl.String(),
        "count": pl.Int64(),
        "share_pct": pl.Float64(),
        "impact": pl.String(),
    },
)

MFU: Final = Frame(
    """One row per process and device for a step, and for each phase in it with declared FLOPs.
    `flops` are of one step. `time_ns` is the median step's (of the steady ones if there are any),
    or a phase's median span times how often it runs in a step; `steps` is the number of steps used.
    `peak_flops_per_s` is the GPU's in that arithmetic, null where it is not known.""",
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
    },
)

RANKS: Final = Frame(
    """One row per rank: a process on a GPU; `rank` numbers them in the order of the reports.
    `matched` counts the `collectives` in which all ranks of a group took part (spec §9). Of these,
    it was last in `times_last`; `late_ns` sums how late it was after the first rank, and
    `waited_ns` how long it waited for the last one. `cost_ns` is what it cost the others: how much
    less exposed communication it has than the rank with the next least. `cost_work_ns` to
    `cost_host_ns` say why, and sum to `cost_ns`. `clock_ns` is how far its report's clock is ahead
    of the first report's; `residual_ns` is the median difference that remains.""",
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
        "rank": pl.Int64(),
        "cost_ns": pl.Int64(),
        **_REASONS,
    },
)

RANK_GROUPS: Final = Frame(
    """One row per group of ranks that have collectives of their own, the largest cost first. `rank`
    is the group's straggler, which cost the others most; what follows it is of that rank in that
    group, `report` to `through`. `steps_last` counts the steps in which it cost the others more
    than 1 % of the step, of `steps`. `saved_step_ns` is how much shorter a step would be without
    waiting for it. `cost_work_ns` to `cost_host_ns` say why it cost the others time, and sum to
    `cost_ns`. `through` is the group in which it waited where that made it late. `bytes`,
    `waited_ns` and `overlapped_ns` are of all ranks of the group. The numbers of `PP` are of sends
    and receives.""",
    {
        "group": pl.Int64(),
        "kind": GROUP_KIND,
        "ranks": pl.Int64(),
        "members": pl.String(),
        "collectives": pl.Int64(),
        "bytes": pl.Int64(),
        "rank": pl.Int64(),
        "report": pl.String(),
        "device": pl.Int32(),
        "times_last": pl.Int64(),
        "steps": pl.Int64(),
        "steps_last": pl.Int64(),
        "cost_ns": pl.Int64(),
        "cost_step_ns": pl.Int64(),
        "saved_step_ns": pl.Int64(),
        "late_ns": pl.Int64(),
        **_REASONS,
        "through": pl.Int64(),
        "waited_ns": pl.Int64(),
        "overlapped_ns": pl.Int64(),
    },
)

ARRIVALS: Final = Frame(
    """One row per collective of a group that ended together on its ranks (spec §9), in order of
    time. Times are on the first report's clock. `start_ns` is the first rank's arrival, `spread_ns`
    the time until the last one's, `done_ns` what the transfer itself took after it. `cost_ns` is
    what one rank had cost the others when it ended, since they were last in step.
    `ends_spread_ns` is how far the ends differ: how well the clocks agree.""",
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
        "group": pl.Int64(),
        "last_rank": pl.Int64(),
        "cost_ns": pl.Int64(),
        "done_ns": pl.Int64(),
    },
)

RANK_STEPS: Final = Frame(
    """One row per rank and step. The parts of the step are those of the table steps; `late_ns` and
    `cost_ns` are of the collectives whose kernels start in the step on that rank.""",
    {
        "rank": pl.Int64(),
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "step": pl.Int64(),
        "duration_ns": pl.Int64(),
        "compute_ns": pl.Int64(),
        "comm_exposed_ns": pl.Int64(),
        "copy_exposed_ns": pl.Int64(),
        "idle_ns": pl.Int64(),
        "late_ns": pl.Int64(),
        "cost_ns": pl.Int64(),
    },
)

RANK_OUTLIERS: Final = Frame(
    """One row per rank and part of a step that is far from the other ranks' (spec §9), the largest
    difference first. `ns` is the rank's mean per judged step, of the window where no steps are
    judged.""",
    {
        "rank": pl.Int64(),
        "report": pl.String(),
        "device": pl.Int32(),
        "part": pl.String(),
        "ns": pl.Int64(),
        "median_ns": pl.Int64(),
        "z": pl.Float64(),
    },
)

BANDWIDTH: Final = Frame(
    """One row per group, operation and size of the communication; `group` is null for kernels of
    which only one rank is known. `size_bytes` is the message rounded down to a power of two,
    `bytes` the median of what the operation moves by NCCL's count: an all-gather's message times
    the ranks. `done_ns` is the median time from the last rank's arrival to the end; a kernel's own
    duration where only one rank is known. `peak_bytes_per_s` is NVLink's, one way, if the ranks
    share a host. `slow_ns` is what a slow link cost: the time beyond the other groups' median, or
    beyond the median of its own steps where there is one group.""",
    {
        "group": pl.Int64(),
        "kind": GROUP_KIND,
        "operation": pl.String(),
        "size_bytes": pl.Int64(),
        "ranks": pl.Int64(),
        "count": pl.Int64(),
        "bytes": pl.Int64(),
        "done_ns": pl.Int64(),
        "algorithm_bytes_per_s": pl.Float64(),
        "bus_bytes_per_s": pl.Float64(),
        "peak_bytes_per_s": pl.Float64(),
        "peak_pct": pl.Float64(),
        "overlapped_pct": pl.Float64(),
        "slow_ns": pl.Int64(),
    },
)

SCHEMAS: Final[dict[str, Frame]] = {
    table.name: globals()[table.name.upper()] for table in tables.DECLARED
}
"""The columns of every declared table, by name."""
