"""What devices and hosts did: when each device was busy, how much of each collective was exposed,
what single copies, stalls and launches did, and launches whose operation was lost (spec §2, §4, §5,
§9, §12).
"""

from dataclasses import dataclass
from typing import Annotated, Final, Self

import polars as pl

from nsysflow.analysis.causes import STALLS
from nsysflow.analysis.events.classes import SYNC_AFTER_NS
from nsysflow.analysis.events.events import (
    LAUNCH_ORDER,
    NUMBERED_CALLS,
    OPERATIONS,
    Calls,
    Events,
    Operations,
)
from nsysflow.analysis.frames.intervals import (
    Axis,
    Cover,
    flatten,
    last_at_or_before,
    merge,
    on_axis,
    overlaps,
)
from nsysflow.analysis.schema import COPY_DETAILS, COPY_LABEL

SERIAL_NUMBERS: Final = r"(?s), (?:seq|op_id|sizes|input_op_ids) =.*$"
"""What PyTorch's `emit_nvtx` adds to an operator's name, so that equal operators group."""


@dataclass(frozen=True, kw_only=True)
class BusyTime:
    """Nested unions of a report's operations on the device axis; their differences are the parts.

    Attributes:
        compute: kernels that are not communication, and graph traces.
        with_comm: those and communication kernels.
        all: those and copies.
        comm: communication kernels alone.
        copies: copies alone.
    """

    compute: Cover
    with_comm: Cover
    all: Cover
    comm: Cover
    copies: Cover

    @classmethod
    def of(cls, ops: Operations) -> Self:
        """The unions of `ops`."""
        length = pl.col("end_ns") - pl.col("start_ns")
        spans = (
            ops.lazy()
            .filter(length > 0)
            .select(pl.col("place").alias("start"), (pl.col("place") + length).alias("end"), "part")
            .collect()
        )
        part = pl.col("part")
        has = set(spans["part"].unique())
        compute = Cover(merge(spans.filter(part == "compute")))
        with_comm = Cover(merge(spans.filter(part != "copy"))) if "comm" in has else compute
        return cls(
            compute=compute,
            with_comm=with_comm,
            all=Cover(merge(spans)) if "copy" in has else with_comm,
            comm=Cover(merge(spans.filter(part == "comm"))),
            copies=Cover(merge(spans.filter(part == "copy"))),
        )

    def parts(self, windows: pl.DataFrame, axis: Axis) -> pl.DataFrame:
        """The parts of each window (`device_no`, `start_ns`, `end_ns`): `window_ns`, `compute_ns`,
        `comm_exposed_ns`, `copy_exposed_ns`, `idle_ns`, `comm_union_ns`, `copy_union_ns`."""
        at = on_axis(windows, axis)
        start, end = at["start"], at["end"]
        compute = self.compute.between(start, end)
        # without communication or copies the unions are the same, and asked once
        with_comm, busy = compute, compute
        if self.with_comm is not self.compute:
            with_comm = busy = self.with_comm.between(start, end)
        if self.all is not self.with_comm:
            busy = self.all.between(start, end)
        return pl.DataFrame(
            {
                "window_ns": end - start,
                "compute_ns": compute,
                "comm_exposed_ns": with_comm - compute,
                "copy_exposed_ns": busy - with_comm,
                "idle_ns": end - start - busy,
                "comm_union_ns": self.comm.between(start, end),
                "copy_union_ns": self.copies.between(start, end),
            }
        )


NCCL: Final = "nccl"
"""NCCL's NVTX domain, in lower case: its ranges name the collective that a thread called."""


STATED_BY_NCCL: Final = pl.Schema(
    {"operation": pl.String(), "bytes": pl.Int64(), "communicator": pl.UInt64()}
)
"""What NCCL's range around a launch states; null where it lacks it."""


def communication_kernels(events: Events, ops: pl.DataFrame) -> pl.DataFrame:
    """Every communication kernel of `ops`, plus `STATED_BY_NCCL`."""
    return with_stated(events, ops.filter(pl.col("part") == "comm"))


def with_stated(events: Events, ops: pl.DataFrame) -> pl.DataFrame:
    """`ops` plus `STATED_BY_NCCL` of the range that each was launched in."""
    stated = ranges_of_nccl(events)
    axis = events.axis
    asked = axis.at(ops["thread_no"], ops["launch_start_ns"])
    at = last_at_or_before(stated["start"], asked)
    inside = (asked < stated["end"][at]).fill_null(value=False)
    row = at.set(~inside, None)
    return ops.hstack(stated.select(pl.exclude("start", "end").gather(row)).get_columns())


def ranges_of_nccl(events: Events) -> pl.DataFrame:
    """When each of NCCL's ranges was the innermost one: disjoint `start`, `end` on the thread axis,
    with `operation`, `bytes`, `communicator`."""
    axis = events.axis
    by_nccl = pl.col("domain").str.to_lowercase() == NCCL
    messages = events.trace.messages.unique(
        ["thread", "start_ns"], keep="first", maintain_order=True
    )
    ranges = events.ranges.filter(by_nccl, pl.col("kind") == "push_pop").join(
        messages, on=["thread", "start_ns"], how="left"
    )
    claims = ranges.select(
        axis.at(pl.col("thread_no"), pl.col("start_ns")).alias("start"),
        axis.at(pl.col("thread_no"), pl.col("end_ns")).alias("end"),
        pl.col("name").str.replace(SERIAL_NUMBERS, "").alias("operation"),
        *("bytes", "communicator", "row"),
    ).sort("start", "row")
    return flatten(claims, rank=_innermost_first, keep=STATED_BY_NCCL.names())


def _innermost_first(claims: pl.DataFrame) -> pl.DataFrame:
    """The order of ranges that are open together: innermost first."""
    row = -pl.col("row").cast(pl.Int64)
    return claims.select(-pl.col("start"), pl.col("end"), row.alias("row"))


def _started_first(claims: pl.DataFrame) -> pl.DataFrame:
    """The order of kernels that run together: first started first, ties as in spec §3.1."""
    names = (pl.col(name).cast(pl.String) for name in ("short_name", "name"))
    return claims.select("start", *LAUNCH_ORDER, *names, "process", "end")


def with_exposed_time(
    kernels: pl.DataFrame, windows: pl.DataFrame, busy: BusyTime, axis: Axis
) -> pl.DataFrame:
    """`kernels` plus `busy_ns` and `exposed_ns` within the windows (spec §9.2).

    `busy_ns` is the time that belongs to the kernel, `exposed_ns` the part of it without compute.
    """
    order = kernels[["op", *LAUNCH_ORDER, "short_name", "name", "process"]]
    claims = on_axis(kernels, axis).hstack(order.get_columns())
    pieces = flatten(claims, rank=_started_first, keep=["op"])
    pieces = overlaps(pieces, on_axis(windows, axis))
    hidden = busy.compute.between(pieces["start"], pieces["end"])
    length = pl.col("end") - pl.col("start")
    times = (
        pieces.with_columns(hidden.alias("hidden"))
        .group_by("op")
        .agg(length.sum().alias("busy_ns"), (length - pl.col("hidden")).sum().alias("exposed_ns"))
    )
    return kernels.join(times, on="op", how="left", maintain_order="left").with_columns(
        pl.col("busy_ns", "exposed_ns").fill_null(0)
    )


COPIES: Final = pl.Schema({**OPERATIONS, **COPY_DETAILS, "copy_label": COPY_LABEL})
"""A row per memcpy operation. `copy_label` says what the host's memory was, and whether the host
waited."""
Copies = Annotated[pl.DataFrame, COPIES]

BLOCKING_CALLS: Final = pl.Schema(
    {
        **NUMBERED_CALLS,
        "phase": pl.String(),
        "thread": pl.Int64(),
        "process": pl.Int64(),
        "gpu_busy_ns": pl.Int64(),
    }
)
"""A row per call that blocks the host. `gpu_busy_ns` is how long its process's GPUs were busy."""
BlockingCalls = Annotated[pl.DataFrame, BLOCKING_CALLS]

LAUNCHES: Final = pl.Schema(
    {
        "op": pl.UInt32(),
        "call": pl.UInt32(),
        "api_ns": pl.Int64(),
        "latency_ns": pl.Int64(),
        "queue_ns": pl.Int64(),
        "run_ahead": pl.Int64(),
    }
)
"""A row per call that launched an operation, with its first one, `op`. `run_ahead` is how many
operations of the process were launched but not started."""
Launches = Annotated[pl.DataFrame, LAUNCHES]


def copies(events: Events) -> Copies:
    """Every memcpy, with what it moved."""
    ops = events.ops.filter(pl.col("kind") == "memcpy")
    sides = events.trace.copy_details[ops["detail"]]
    ops = ops.hstack(sides.get_columns()).with_columns(_blocks(events, ops))
    pageable = (pl.col("source_memory") == "pageable") | (pl.col("target_memory") == "pageable")
    on_device = (pl.col("source_memory") == "device") & (pl.col("target_memory") == "device")
    pinned = (pl.col("source_memory") == "pinned") | (pl.col("target_memory") == "pinned")
    memory = (
        pl.when(pageable.fill_null(value=False))
        .then(pl.lit("pageable"))
        .when(pinned.fill_null(value=False))
        .then(pl.lit("pinned"))
    )
    manner = pl.when("blocks").then(pl.lit("_blocking")).otherwise(pl.lit("_async"))
    label = (
        pl.when(on_device.fill_null(value=False))
        .then(pl.lit("device"))
        .when(pl.col("call").is_not_null())
        .then(memory + manner)
    )
    return ops.with_columns(label.cast(COPY_LABEL).alias("copy_label")).drop("blocks")


def _blocks(events: Events, copies: Operations) -> pl.Series:
    """Whether the copy's call ended no earlier than the copy, or a sync follows on its thread."""
    axis = events.axis
    calls = events.calls[["call", "class", "thread_no", "start_ns"]]
    calls = calls.filter(pl.col("class") != "api")
    starts = axis.at(calls["thread_no"], calls["start_ns"])
    ends = axis.at(copies["thread_no"], copies["launch_end_ns"])
    following = starts.search_sorted(ends, side="left")
    # A copy call of zero length starts at its own end.
    itself = calls["call"][following.set(following >= len(starts), None)] == copies["call"]
    following += itself.fill_null(value=False).cast(following.dtype)
    following = following.set(following >= len(starts), None)
    wait = starts[following] - ends
    is_sync = (calls["class"] == "sync")[following]
    waited_on = (is_sync & (wait <= SYNC_AFTER_NS)).fill_null(value=False)
    return ((copies["launch_end_ns"] >= copies["end_ns"]).fill_null(value=False) | waited_on).alias(
        "blocks"
    )


def stall_calls(calls: Calls) -> Calls:
    """The sync, blocking copy and alloc calls of known threads."""
    return calls.filter(pl.col("class").is_in(STALLS), pl.col("thread_no").is_not_null())


def with_gpu_busy(events: Events, stalls: pl.DataFrame, busy: BusyTime) -> BlockingCalls:
    """`stalls` (calls with `phase`), with their threads and how long their GPUs were busy."""
    callers = events.threads[["thread_no", "thread", "process"]]
    stalls = stalls.join(callers, on="thread_no", maintain_order="left")
    return stalls.with_columns(_busy_ns(events, stalls, busy))


def _busy_ns(events: Events, stalls: pl.DataFrame, busy: BusyTime) -> pl.Series:
    """How long any GPU that the caller's process uses was busy during each call."""
    axis = events.axis
    numbers = events.threads[["thread_no", "process_no"]]
    processes = events.threads[["process", "process_no"]].unique()
    uses = events.users.join(processes, on="process")
    cover = _busy_by_process(busy, uses, axis)
    at = stalls[["thread_no", "start_ns", "end_ns"]].join(
        numbers, on="thread_no", maintain_order="left"
    )
    process = pl.col("process_no")
    start = at.select(axis.at(process, pl.col("start_ns")).alias("start"))["start"]
    return cover.between(start, start + (at["end_ns"] - at["start_ns"])).alias("gpu_busy_ns")


def _busy_by_process(busy: BusyTime, uses: pl.DataFrame, axis: Axis) -> Cover:
    """BusyTime time of the GPUs that each process uses, on the process axis."""
    pieces = busy.all.intervals.with_columns(
        axis.track(pl.col("start")).cast(pl.UInt32).alias("device_no")
    )
    start = axis.at(pl.col("process_no"), axis.time_ns(pl.col("start")))
    placed = pieces.join(uses, on="device_no").select(
        start.alias("start"), (start + pl.col("end") - pl.col("start")).alias("end")
    )
    return Cover(merge(placed))


def launches(events: Events) -> Launches:
    """The times of each launch call, up to the start of its first operation."""
    columns = ["op", "call", "thread_no", "start_ns", "launch_start_ns", "launch_end_ns"]
    ops = events.ops[["first", *columns]].filter("first")
    start, end = pl.col("launch_start_ns"), pl.col("launch_end_ns")
    return ops.select(
        "op",
        "call",
        (end - start).alias("api_ns"),
        (pl.col("start_ns") - start).alias("latency_ns"),
        (pl.col("start_ns") - end).clip(lower_bound=0).alias("queue_ns"),
        _run_ahead(events, ops),
    )


def _run_ahead(events: Events, launches: pl.DataFrame) -> pl.Series:
    """The number of operations of the process that were launched but not started at each launch."""
    times = events.ops[["call", "thread_no", "start_ns", "launch_start_ns"]]
    launched = _on_process_axis(times.drop_nulls("call"), events)
    places = _on_process_axis(launches, events)["launched"]
    begun = launched["launched"].sort().search_sorted(places, side="left")
    started = launched.select(pl.max_horizontal(pl.col("launched") + 1, "started")).to_series()
    gone = started.sort().search_sorted(places, side="right")
    return (begun.cast(pl.Int64) - gone.cast(pl.Int64)).alias("run_ahead")


def _on_process_axis(ops: pl.DataFrame, events: Events) -> pl.DataFrame:
    process = events.threads["process_no"][ops["thread_no"]]
    axis = events.axis
    return ops.select(
        axis.at(pl.lit(process), pl.col("launch_start_ns")).alias("launched"),
        axis.at(pl.lit(process), pl.col("start_ns")).alias("started"),
    )
