"""A trace's events in order: cleaned, numbered, sorted, operations joined with their launches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.classes import (
    CLASSED_CALLS,
    PART,
    SYNC_AFTER_NS,
    ClassedCalls,
    parts_of,
    refine_classes,
    with_class_by_name,
)
from nsysflow.analysis.events.retries import RETRIES, find_retries
from nsysflow.analysis.events.source_lines import StackSources, stack_sources, with_sources
from nsysflow.analysis.frames.columns import dense, distinct, greatest, repeated, scatter_table
from nsysflow.analysis.frames.intervals import Axis, sort_with_ties
from nsysflow.analysis.frames.parallel import computed_once
from nsysflow.analysis.frames.scratch import Scratch, in_files
from nsysflow.analysis.options import Options
from nsysflow.analysis.schema import BEFORE_NS, OPS, OVERHEAD, RANGES, os_pid, os_tid, process_of
from nsysflow.analysis.trace import Trace

COUNTED_WHEN_DROPPED = ("operations", "calls", "ranges")
"""Frames whose rows of negative length are counted (spec §1)."""

LAUNCH_ORDER = ("launch_start_ns", "correlation", "stream", "graph_node")
"""The order of operations that start, or end, together (spec §3.1); then names and processes."""

KEYS = 1 << 63
"""A key holds a process and a correlation id in 63 bits. A damaged report has ids too far apart."""

SPARSEST = 8
"""Correlation ids count up. Looking them up in a table takes half the time of a join, unless the
table would be mostly empty: at most this many places per id."""

FEW_THREADS = 8
"""Up to so many threads, picking out the calls of each takes less time than sorting all calls."""


OPERATIONS: Final = pl.Schema(
    {
        "op": pl.UInt32(),
        **OPS,
        "call": pl.UInt32(),
        "thread_no": pl.UInt32(),
        "launch_start_ns": pl.Int64(),
        "launch_end_ns": pl.Int64(),
        "device_no": pl.UInt32(),
        "place": pl.Int64(),
        "part": PART,
        "first": pl.Boolean(),
    }
)
"""A row per GPU operation, numbered `op`, sorted by (device, start, launch), none of negative
length. `call` is the row of its launch in the calls (null without), `thread_no` the thread that
launched it, `place` its start on the device axis, `first` whether it is its call's first one."""
Operations = Annotated[pl.DataFrame, OPERATIONS]

NUMBERED_CALLS: Final = pl.Schema(
    {**CLASSED_CALLS, "source": pl.Categorical(), "via": pl.Categorical()}
)
"""A row per CUDA call. `source` and `via` are the lines of its backtrace (spec §11)."""
Calls = Annotated[pl.DataFrame, NUMBERED_CALLS]

NUMBERED_RANGES: Final = pl.Schema({**RANGES, "thread_no": pl.UInt32(), "ended": pl.Boolean()})
"""A row per NVTX range, none of negative length; one that has not `ended` reaches to the end of the
trace."""
Ranges = Annotated[pl.DataFrame, NUMBERED_RANGES]

NUMBERED_OVERHEAD: Final = pl.Schema({**OVERHEAD, "thread_no": pl.UInt32()})
"""A row per stretch of the profiler's own work, sorted by start, longest first."""
Overhead = Annotated[pl.DataFrame, NUMBERED_OVERHEAD]

NUMBERED_THREADS: Final = pl.Schema(
    {
        "thread_no": pl.UInt32(),
        "thread": pl.Int64(),
        "process": pl.Int64(),
        "name": pl.String(),
        "process_no": pl.UInt32(),
        "autograd": pl.Boolean(),
        "main": pl.Boolean(),
    }
)
"""A row per thread that did something, sorted by process and thread."""
Threads = Annotated[pl.DataFrame, NUMBERED_THREADS]

DEVICES_USED: Final = pl.Schema({"device_no": pl.UInt32(), "device": pl.Int32()})
"""A row per GPU that operations ran on."""

USERS: Final = pl.Schema({"process": pl.Int64(), "device_no": pl.UInt32()})
"""A row per process and GPU that it ran operations on."""

FIRST_QUEUED: Final = pl.Schema(
    {"device_no": pl.UInt32(), "process_no": pl.UInt32(), "queued_ns": pl.Int64()}
)
"""A row per GPU and process with threads that ran operations on it."""


@dataclass(frozen=True, kw_only=True)
class Events:
    """A trace's events, in order.

    Attributes:
        trace: the report, without its rows.
        axis: the line on which threads, and devices, are laid end to end.
        ops: the operations.
        calls: the CUDA calls.
        ranges: the NVTX ranges.
        overhead: the profiler's own work.
        threads: the threads.
        stack_sources: the lines of the program in stacks.
        last_ns: the end of the trace.
        dropped: operations, calls and ranges of negative length.
        outliers: rows left out because their times are too far from all others.
        recorded: operations in the report, the dropped ones included.
        unstamped: those of them whose start or end is 0, which is what CUPTI writes where it has no
            time.
    """

    trace: Trace
    axis: Axis
    ops: Operations
    calls: Calls
    ranges: Ranges
    overhead: Overhead
    threads: Threads
    stack_sources: StackSources
    last_ns: int
    dropped: int
    outliers: int
    recorded: int
    unstamped: int

    @computed_once
    def devices(self) -> Annotated[pl.DataFrame, DEVICES_USED]:
        """The GPUs that operations ran on."""
        return distinct(self.ops[["device_no", "device"]])

    @computed_once
    def first_queued(self) -> Annotated[pl.DataFrame, FIRST_QUEUED]:
        """When the first operation of each process on each GPU was queued (spec §3.10)."""
        track = "device_no", "process"
        first = self.ops.group_by(track).agg(pl.col("start_ns", "launch_end_ns").first())
        queued = pl.min_horizontal("start_ns", "launch_end_ns").alias("queued_ns")
        numbers = distinct(self.threads[["process", "process_no"]])
        return first.join(numbers, on="process").select("device_no", "process_no", queued)

    @computed_once
    def users(self) -> Annotated[pl.DataFrame, USERS]:
        """The processes on each GPU."""
        return distinct(self.ops[["process", "device_no"]])

    @computed_once
    def retries(self) -> Annotated[pl.DataFrame, RETRIES]:
        """When an allocator found no memory, gave some back and asked again."""
        return find_retries(self.calls, self.threads, self.trace.failed_calls, self.axis)

    @computed_once
    def stream_no(self) -> pl.Series:
        """The number of each operation's stream, over all devices and processes."""
        return stream_numbers(self.ops)


def in_order(trace: Trace, options: Options) -> Events:
    """Clean, number, sort and join a trace (spec §1)."""
    frames = {
        "operations": trace.ops,
        "calls": trace.calls,
        "ranges": trace.ranges,
        "overhead": trace.overhead,
    }
    lasting = {name: _not_negative(frame) for name, frame in frames.items()}
    kept, outliers = without_outliers(lasting)
    times = [f[["start_ns", "end_ns"]] for f in kept.values()]
    if trace.ops.is_empty():
        times.append(_times_of_memory(trace))
    first_ns, last_ns = _extent(times)
    latest_end_ns = _extent([f[["end_ns"]] for f in times])[1]
    axis = Axis.over(first_ns, last_ns, margin_ns=max(options.framework_gap_ns, SYNC_AFTER_NS) + 1)
    threads = _threads(trace, kept)
    calls = _calls(kept["calls"], threads, axis, trace.scratch)
    ops = in_files(_with_launches(kept["operations"], calls, threads), trace.scratch)
    calls = refine_classes(calls, ops, _pageable_calls(trace, ops))
    sources = stack_sources(trace.frames, options.own)
    calls = in_files(with_sources(calls, threads, axis, trace, sources), trace.scratch)
    ended = pl.col("end_ns").is_not_null()
    return Events(
        trace=trace.without_rows(),
        axis=axis,
        ops=_sorted_ops(ops, axis, trace.scratch),
        calls=calls,
        ranges=_numbered(kept["ranges"], threads).with_columns(
            ended.alias("ended"), pl.col("end_ns").fill_null(latest_end_ns)
        ),
        overhead=_numbered(kept["overhead"], threads).sort(
            "start_ns", -pl.col("end_ns"), "thread", pl.col("name").cast(pl.String)
        ),
        threads=threads,
        stack_sources=sources,
        last_ns=latest_end_ns,
        dropped=sum(len(frames[name]) - len(lasting[name]) for name in COUNTED_WHEN_DROPPED),
        outliers=outliers,
        recorded=len(trace.ops),
        unstamped=trace.ops.select(
            ((pl.col("start_ns") == 0) | (pl.col("end_ns") == 0)).sum()
        ).item(),
    )


def _not_negative(frame: pl.DataFrame) -> pl.DataFrame:
    bad = frame["end_ns"] < frame["start_ns"]
    return frame.filter(~bad.fill_null(value=False)) if bad.any() else frame


def _times_of_memory(trace: Trace) -> pl.DataFrame:
    """`start_ns`, `end_ns` of the changes of memory in the recording."""
    changed = pl.col("time_ns")
    recorded = trace.memory.filter(changed > BEFORE_NS // 2)
    return recorded.select(changed.alias("start_ns"), (changed + 1).alias("end_ns"))


def _extent(frames: list[pl.DataFrame]) -> tuple[int, int]:
    """The minimum and maximum of all values; (0, 0) if there are none."""
    times = [t for f in frames for column in f for t in (column.min(), column.max())]
    known = [t for t in times if isinstance(t, int)]
    return (min(known), max(known)) if known else (0, 0)


def _threads(trace: Trace, kept: dict[str, pl.DataFrame]) -> Threads:
    """Every thread that did something, numbered by key."""
    seen = [kept[name]["thread"].unique() for name in ("calls", "ranges", "overhead")]
    seen += [frame["thread"].unique() for frame in (trace.graph_nodes, trace.gil, trace.thread_cpu)]
    names = trace.threads.unique("thread", keep="first", maintain_order=True)
    tid, pid = os_tid(pl.col("thread")), os_pid(pl.col("process"))
    return (
        pl.concat(seen)
        .drop_nulls()
        .unique()
        .to_frame()
        .select("thread", process_of(pl.col("thread")).alias("process"))
        .sort("process", "thread")
        .with_row_index("thread_no")
        .join(names[["thread", "name"]], on="thread", how="left", maintain_order="left")
        .with_columns(
            (pl.col("process").rle_id()).alias("process_no"),
            pl.col("name").str.starts_with("pt_autograd").fill_null(value=False).alias("autograd"),
            (tid == pid).alias("main"),
        )
    )


def _numbered(frame: pl.DataFrame, threads: Threads) -> pl.DataFrame:
    """`frame` plus `thread_no`."""
    return _with_number(frame, threads[["thread", "thread_no"]])


def _with_number(rows: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """`rows` plus the number of each. `numbers` has two columns: names, and their numbers.

    A single number needs no join. Only the names are joined, as a join copies all columns.
    """
    name, number = numbers.columns
    if len(numbers) == 1:
        return rows.with_columns(pl.lit(numbers[number].item(), pl.UInt32).alias(number))
    joined = rows.select(name).join(numbers, on=name, how="left", maintain_order="left")
    return rows.with_columns(joined[number])


def _calls(
    calls: pl.DataFrame, threads: Threads, axis: Axis, scratch: Scratch | None
) -> ClassedCalls:
    """Calls on the thread axis, outermost first, with their class by name."""
    place = axis.at(pl.col("thread_no"), pl.col("start_ns"))
    numbered = _numbered(calls, threads).drop("process", "thread")
    numbered = _thread_by_thread(numbered, len(threads), scratch)
    ties = [-pl.col("end_ns"), pl.col("correlation"), pl.col("name").cast(pl.String)]
    placed = numbered.with_columns(place.alias("place"))
    return (
        sort_with_ties(placed, "place", ties, scratch)
        .drop("place")
        .with_row_index("call")
        .pipe(with_class_by_name)
    )


def _thread_by_thread(calls: pl.DataFrame, threads: int, scratch: Scratch | None) -> pl.DataFrame:
    """The calls, thread by thread. nsys writes calls by start, so this puts all in order. A sort
    takes twice as long."""
    thread = calls["thread_no"]
    if threads > FEW_THREADS or thread.null_count() or thread.is_sorted():
        return calls
    rows = pl.concat([(thread == number).arg_true() for number in range(threads)])
    return calls[rows] if scratch is None else scratch.gathered(calls, rows)


def _with_launches(ops: pl.DataFrame, calls: ClassedCalls, threads: Threads) -> pl.DataFrame:
    """`ops` with the outermost call of their (process, correlation) as their launch."""
    call = _launch_calls(*_correlation_keys(ops, calls, threads), calls)
    return ops.with_columns(
        call,
        calls["thread_no"][call],
        calls["start_ns"][call].alias("launch_start_ns"),
        calls["end_ns"][call].alias("launch_end_ns"),
    )


def _correlation_keys(
    ops: pl.DataFrame, calls: ClassedCalls, threads: Threads
) -> tuple[pl.Series, pl.Series]:
    """Keys of (process, correlation id) of the operations and of the calls; null without id."""
    processes = threads[["process", "process_no"]].unique()
    first, last = _extent([ops[["correlation"]], calls[["correlation"]]])
    if (last - first + 1) * (len(processes) + 1) >= KEYS:
        ops, calls = _renumbered(ops, calls)
        first, last = 0, len(ops) + len(calls)
    line = Axis.over(first, last, margin_ns=0)
    correlation = pl.col("correlation")
    if len(processes) == 1:
        ours = ops["process"] == processes["process"].item()
        asked = ops.select(line.at(pl.when(ours).then(0), correlation).alias("key"))
    else:
        asked = ops.select("process", "correlation").join(
            processes, on="process", how="left", maintain_order="left"
        )
        asked = asked.select(line.at(pl.col("process_no"), correlation).alias("key"))
    process_no = threads["process_no"][calls["thread_no"]]
    known = calls.select(line.at(pl.lit(process_no), correlation).alias("key"))
    return asked["key"], known["key"]


def _renumbered(ops: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with correlation ids numbered from 1 in their order; equal ids stay equal."""
    number = pl.concat([ops["correlation"], calls["correlation"]]).rank("dense").cast(pl.Int64)
    return ops.with_columns(number.head(len(ops))), calls.with_columns(number.tail(len(calls)))


def _launch_calls(asked: pl.Series, known: pl.Series, calls: ClassedCalls) -> pl.Series:
    """The row in `calls` of each key, the outermost if several calls have it."""
    launches = pl.DataFrame({"key": known, "call": calls["call"]})
    if known.null_count():
        launches = launches.drop_nulls("key")
    size = greatest(launches["key"]) + 1
    if size <= SPARSEST * len(launches):
        table = scatter_table(size, launches["key"], launches["call"])
        if size - table.null_count() == len(launches):
            return table.gather(asked.set(asked >= size, None)).alias("call")
    rows = asked.to_frame("key").with_row_index("row")
    launched = rows.join(launches, on="key", how="left", maintain_order="left")
    if len(launched) > len(asked):
        outermost = [calls[c][launched["call"]] for c in ("start_ns", "end_ns")]
        launched = launched.with_columns(outermost).sort(
            "row", "start_ns", -pl.col("end_ns"), "call"
        )
        launched = launched.unique("row", keep="first", maintain_order=True)
    return launched["call"]


def _pageable_calls(trace: Trace, ops: pl.DataFrame) -> pl.Series:
    """Launch calls of copies with a pageable side."""
    copies = ops.filter(pl.col("kind") == "memcpy", pl.col("call").is_not_null())
    if copies.is_empty():
        return copies["call"]
    sides = trace.copy_details[copies["detail"]]
    pageable = (sides["source_memory"] == "pageable") | (sides["target_memory"] == "pageable")
    return copies.filter(pageable.fill_null(value=False))["call"]


def _sorted_ops(ops: pl.DataFrame, axis: Axis, scratch: Scratch | None) -> Operations:
    """Operations on the device axis, with their part in the accounting."""
    devices = ops.select(pl.col("device").unique().sort()).with_row_index("device_no")
    ops = _with_number(ops, devices[["device", "device_no"]])
    place = axis.at(pl.col("device_no"), pl.col("start_ns"))
    by_name = [pl.col(c).cast(pl.String) for c in ("short_name", "name")]
    ties = [*(pl.col(key) for key in LAUNCH_ORDER), *by_name, pl.col("process")]
    ops = sort_with_ties(ops.with_columns(place.alias("place")), "place", ties, scratch)
    return ops.with_columns(parts_of(ops), _firsts(ops)).with_row_index("op")


def _firsts(ops: pl.DataFrame) -> pl.Series:
    """Whether each operation is the first to start of those that its call launched."""
    launched = ops[["start_ns", "call"]].with_row_index("row").drop_nulls("call")
    if not launched["start_ns"].is_sorted():
        launched = launched.sort("start_ns", "row")
    last_is_first = launched.reverse()
    first = scatter_table(
        greatest(launched["call"]) + 1, last_is_first["call"], last_is_first["row"]
    )
    row = pl.int_range(len(ops), dtype=pl.UInt32, eager=True)
    return (first[ops["call"]] == row).fill_null(value=False).alias("first")


CLOCK_JUMP_NS: Final = 7 * 86_400 * 10**9
"""Times further apart than 7 days are a clock jump (spec §12)."""

_PLACES: Final = 1 << 63
_PATHS_A_NAME: Final = 16
"""At most this many paths end in one range name. It is a guess; real reports have fewer."""


def without_outliers(frames: Mapping[str, pl.DataFrame]) -> tuple[dict[str, pl.DataFrame], int]:
    """The rows that an `Axis` has room for and whose times can be summed, and how many were left
    out.

    Rows within 7 days of the middle row stay, and all rows if 63 bits are enough for them.

    Args:
        frames: `operations`, `calls`, `ranges` and `overhead`, without negative lengths.
    """
    times = [frame[name] for frame in frames.values() for name in ("start_ns", "end_ns")]
    known = [t for column in times for t in (column.min(), column.max()) if isinstance(t, int)]
    apart_ns = max(known) - min(known) if known else 0
    if apart_ns <= CLOCK_JUMP_NS:
        return dict(frames), 0
    rows = sum(map(len, frames.values()))
    reach_ns = max(CLOCK_JUMP_NS, _PLACES // max(_tracks(frames), 2 * rows) // 2)
    if apart_ns <= reach_ns:
        return dict(frames), 0
    starts = pl.concat([frame["start_ns"] for frame in frames.values()]).sort()
    middle_ns = int(starts[len(starts) // 2])
    near = _between(middle_ns - reach_ns, middle_ns + reach_ns)
    kept = {name: frame.filter(near) for name, frame in frames.items()}
    return kept, sum(len(frames[name]) - len(kept[name]) for name in frames)


def _tracks(frames: Mapping[str, pl.DataFrame]) -> int:
    """The most tracks that the analysis puts on one axis: pairs of threads, or paths on devices."""
    threads = pl.concat([frames[name]["thread"] for name in ("calls", "ranges", "overhead")])
    paths = _PATHS_A_NAME * frames["ranges"]["name"].n_unique() + 1
    devices = frames["operations"].select("process", "device").n_unique()
    return max(threads.n_unique() ** 2, paths * devices, 1)


def _between(low_ns: int, high_ns: int) -> pl.Expr:
    # compare with bounds, since a distance may not fit into 64 bits
    low, high = max(low_ns, -_PLACES), min(high_ns, _PLACES - 1)
    return pl.all_horizontal(
        pl.col(name).is_between(pl.lit(low, pl.Int64), pl.lit(high, pl.Int64)).fill_null(value=True)
        for name in ("start_ns", "end_ns")
    )


_STREAM: Final = ("device_no", "process", "stream")


def stream_numbers(ops: Operations) -> pl.Series:
    """`stream_no` of each operation."""
    key = [column for column in _STREAM if not _is_constant(ops[column])]
    if not key:
        return repeated(0, len(ops), pl.UInt32).alias("stream_no")
    if len(key) == 1 and ops[key[0]].null_count() == 0:  # a search among few takes half of a join
        return dense(ops[key[0]]).alias("stream_no")
    rows = ops.select(key)
    streams = rows.unique().sort(key).with_row_index("stream_no")
    numbered = rows.join(streams, on=key, how="left", maintain_order="left", nulls_equal=True)
    return numbered["stream_no"]


def _is_constant(column: pl.Series) -> bool:
    return column.null_count() == 0 and column.min() == column.max()
