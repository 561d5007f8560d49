"""Which lanes the picture of a report has, and in which row of its lane a slice is (spec §22)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.events.events import Events, Operations
from nsysflow.analysis.frames.columns import greatest, repeated, scatter_table
from nsysflow.analysis.frames.intervals import reached_before
from nsysflow.analysis.schema import CAUSE, METRICS, STEP_KIND, TRAFFIC, Frame, os_pid, os_tid
from nsysflow.analysis.steps.kinds import Steps

LANE_KIND: Final = pl.Enum(
    [
        "steps",
        "phases",
        "calls",
        "host_stack",
        "stack",
        "profiler",
        "gaps",
        "stream",
        "counter",
        "worker",
    ]
)
"""What a lane shows."""

_ROW: Final = {"lane": pl.UInt32(), "depth": pl.UInt32()}
_TIME: Final = {"start_ns": pl.Int64(), "end_ns": pl.Int64()}
_NAME: Final = pl.Categorical()

LANES: Final = Frame(
    """One row per lane, in display order: the lanes of each process, then those of each GPU.
    `process` and `thread` are the OS pid and tid. `rows` says how many depths the lane needs.""",
    {
        "lane": pl.UInt32(),
        "kind": LANE_KIND,
        "title": pl.String(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "rows": pl.UInt32(),
    },
)

OPERATIONS: Final = Frame(
    """One row per GPU operation, by lane, start and launch. `name` is a kernel's short name,
    `full_name` its demangled one. `class` is a kernel's class (`communication` for `comm`), or
    `copy HtoD`, …, `memset`, `graph`. `call` is the row of its launch in CALLS, `phase` its path.
    `bytes` are of copies. `shape` is the row of a kernel in the trace's SHAPES, `copy` that of a
    copy in its COPY_DETAILS.""",
    {
        **_ROW,
        **_TIME,
        "name": _NAME,
        "full_name": _NAME,
        "class": _NAME,
        "call": pl.UInt32(),
        "phase": pl.UInt32(),
        "bytes": pl.Int64(),
        "shape": pl.UInt32(),
        "copy": pl.UInt32(),
        "correlation": pl.Int64(),
        "graph_node": pl.Int64(),
    },
)

CALLS: Final = Frame(
    """One row per CUDA call, by lane and start, the longest first. `class` is the cause that it
    makes; `source` and `via` are lines of the program and of its framework.""",
    {
        **_ROW,
        **_TIME,
        "name": _NAME,
        "class": CAUSE,
        "source": _NAME,
        "via": _NAME,
        "correlation": pl.Int64(),
    },
)

RANGES: Final = Frame(
    """One row per range that can be a phase, and per range of NCCL, by lane and start. `ended` is
    false for a range that was still open when the recording ended.""",
    {**_ROW, **_TIME, "name": _NAME, "ended": pl.Boolean()},
)

STEPS: Final = Frame(
    """One row per step and GPU, by lane and start.""",
    {"lane": pl.UInt32(), **_TIME, "step": pl.Int64(), "kind": STEP_KIND, "device": pl.Int32()},
)

GAPS: Final = Frame(
    """One row per gap of an unnarrowed analysis, by GPU and start. `prev_op`, `next_op` and
    `culprit_op` are rows of OPERATIONS, `culprit_call` of CALLS. `cause` has most of the gap.
    `phase` is the path that has most of that cause.""",
    {
        "lane": pl.UInt32(),
        "device": pl.Int32(),
        **_TIME,
        "prev_op": pl.UInt32(),
        "next_op": pl.UInt32(),
        "cause": CAUSE,
        "culprit_call": pl.UInt32(),
        "culprit_op": pl.UInt32(),
        "phase": pl.UInt32(),
        **{f"{cause}_ns": pl.Int64() for cause in CAUSES},
    },
)

PROFILER: Final = Frame(
    """One row per stretch of the profiler's own work, by lane and start.""",
    {**_ROW, **_TIME, "name": _NAME},
)

BATCHES: Final = Frame(
    """One row per batch that a worker of a DataLoader fetched, by lane and start, the longest
    first.""",
    {**_ROW, **_TIME, "name": _NAME},
)

HOST_STACKS: Final = Frame(
    """One row per stretch of a thread's time that one stack stands for, by lane and start. `name`
    is the innermost line of the program; else the innermost frame.""",
    {"lane": pl.UInt32(), **_TIME, "name": _NAME},
)

COUNTERS: Final = Frame(
    """One row per sampled value, by lane and time. It covers the time up to the next one.""",
    {"lane": pl.UInt32(), "time_ns": pl.Int64(), "value_pct": pl.Int64()},
)

PATHS: Final = Frame(
    """One row per phase: its path number and name.""",
    {"path": pl.UInt32(), "name": pl.String()},
)


_OF_THREAD: Final = {
    "phases": "phases",
    "calls": "API calls",
    "host_stack": "Python",
    "stack": "Python stack",
    "profiler": "profiler",
}
"""The lanes of a thread, in their order, and what their titles say."""

_METRICS: Final = {
    "sm_active_pct": "SMs active",
    "sm_issue_pct": "SMs issuing",
    "tensor_active_pct": "tensor cores active",
    "dram_read_pct": "DRAM read",
    "dram_write_pct": "DRAM write",
}
"""What the title of a counter's lane says."""

_NUMBER: Final = "number"

_ORDER: Final = ["of_gpu", "owner", "place", "within"]
"""The lanes of processes come first. Each of them, and each GPU, has its lanes together."""


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The lanes, and where each row of the events belongs.

    Attributes:
        frame: `schema.LANES` without `rows`, plus `number`: that of the thread, of the stream or of
            the metric; and `owner`, the process or GPU.
        stream_no: the number of each operation's stream.
    """

    frame: pl.DataFrame
    stream_no: pl.Series

    @classmethod
    def of(
        cls,
        events: Events,
        steps: Steps,
        threads: Mapping[str, pl.Series],
        idle: pl.Series,
        titled: pl.DataFrame,
    ) -> "Lanes":
        """The lanes of a report.

        Args:
            events: the report.
            steps: `process`, `device` of its steps.
            threads: by kind of lane, the `thread_no` of each row to draw.
            idle: the `device_no` of each gap.
            titled: `device`, `number` and `title` of each value of traffic and memory.
        """
        frames = [
            _steps(steps),
            *(_of_threads(events, kind, threads[kind]) for kind in _OF_THREAD),
            _workers(events.trace.loader_times),
            _gaps(events.ops, idle),
            _streams(events.ops, events.stream_no),
            _counters(events.trace.gpu_samples),
            _clocks(events.trace.gpu_states),
            _titled(titled),
        ]
        frame = pl.concat(frames, how="diagonal").sort(_ORDER, maintain_order=True)
        return cls(frame=frame.with_row_index("lane"), stream_no=events.stream_no)

    def numbered(self, kind: str, numbers: pl.Series) -> pl.Series:
        """The `lane` of each row of a kind whose lanes have numbers; null for one without."""
        mine = self.frame.filter(pl.col("kind") == kind)
        return scatter_table(greatest(mine[_NUMBER]) + 1, mine[_NUMBER], mine["lane"])[
            numbers
        ].alias("lane")

    def of_steps(self, steps: Steps) -> pl.Series:
        """The `lane` of each step."""
        owned = steps.select(pl.col("process").alias("owner"), "device")
        return self._lane_of("steps", owned, ["owner", "device"])

    def of_counters(self, values: pl.DataFrame) -> pl.Series:
        """The `lane` of each sampled value, by its `device` and the `number` of its metric."""
        return self._lane_of("counter", values, ["device", _NUMBER])

    def of_workers(self, batches: pl.DataFrame) -> pl.Series:
        """The `lane` of each batch, by its `process`, `loader` and `worker`."""
        owned = batches.select(pl.col("process").alias("owner"), _worker_number().alias("within"))
        return self._lane_of("worker", owned, ["owner", "within"])

    def _lane_of(self, kind: str, rows: pl.DataFrame, key: list[str]) -> pl.Series:
        mine = self.frame.filter(pl.col("kind") == kind)[["lane", *key]]
        return rows.join(mine, on=key, how="left", maintain_order="left")["lane"]

    def with_rows(self, depths: list[pl.DataFrame]) -> pl.DataFrame:
        """`schema.LANES`, from `lane` and `depth` of the rows on lanes that have depths."""
        deepest = [depth.group_by("lane").agg(pl.col("depth").max()) for depth in depths]
        lanes = self.frame.join(pl.concat(deepest), on="lane", how="left", maintain_order="left")
        rows = (pl.col("depth").fill_null(0) + 1).cast(pl.UInt32).alias("rows")
        return lanes.with_columns(rows).select(LANES.names()).match_to_schema(LANES)


def _lanes(kind: str, rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(
        pl.lit(kind, LANE_KIND).alias("kind"),
        pl.col("owner", "place", "within").cast(pl.Int64),
    )


def _gpu() -> pl.Expr:
    return pl.format("GPU {}", "device")


def _steps(steps: Steps) -> pl.DataFrame:
    """The lanes of steps: one for each process and GPU."""
    return _lanes(
        "steps",
        steps[["process", "device"]]
        .unique()
        .select(
            pl.lit(value=False).alias("of_gpu"),
            pl.col("process").alias("owner"),
            pl.lit(-1).alias("place"),
            pl.col("device").alias("within"),
            pl.format("{}: steps", _gpu()).alias("title"),
            os_pid(pl.col("process")).alias("process"),
            "device",
        ),
    )


def _of_threads(events: Events, kind: str, thread_no: pl.Series) -> pl.DataFrame:
    """The lanes of one kind of the threads that have rows. The main thread comes first, then
    PyTorch's backward threads."""
    place = pl.struct(~pl.col("main"), ~pl.col("autograd"), "thread").rank("ordinal")
    threads = events.threads.with_columns(place.alias("place"))
    several = threads["process_no"].n_unique() > 1
    tid = os_tid(pl.col("thread"))
    name = pl.format("{} {}", pl.col("name").fill_null("thread"), tid)
    name = pl.when("main").then(pl.lit("main thread")).otherwise(name)
    pid = os_pid(pl.col("process"))
    name = pl.format("{}, pid {}", name, pid) if several else name
    return _lanes(
        kind,
        threads[thread_no.drop_nulls().unique().sort()].select(
            pl.lit(value=False).alias("of_gpu"),
            pl.col("process").alias("owner"),
            "place",
            pl.lit([*_OF_THREAD].index(kind)).alias("within"),
            pl.format("{}: {}", name, pl.lit(_OF_THREAD[kind])).alias("title"),
            pid.alias("process"),
            tid.alias("thread"),
            pl.col("thread_no").alias(_NUMBER),
        ),
    )


def _worker_number() -> pl.Expr:
    """The number of a worker among those of its process."""
    return pl.col("loader") * (1 << 16) + pl.col("worker")


def _workers(times: pl.DataFrame) -> pl.DataFrame:
    """The lanes of workers of loaders, behind the threads of the process that they work for."""
    title = pl.format("data loader {}: worker {}", "loader", "worker")
    return _lanes(
        "worker",
        batches_of(times)
        .select("process", "loader", "worker")
        .unique()
        .select(
            pl.lit(value=False).alias("of_gpu"),
            pl.col("process").alias("owner"),
            pl.lit(1 << 32).alias("place"),
            _worker_number().alias("within"),
            title.alias("title"),
            os_pid(pl.col("process")).alias("process"),
        ),
    )


def batches_of(times: pl.DataFrame) -> pl.DataFrame:
    """The batches of workers that end after they begin."""
    return times.drop_nulls("worker").filter(pl.col("start_ns") <= pl.col("end_ns"))


def _gaps(ops: Operations, idle: pl.Series) -> pl.DataFrame:
    """The lanes of gaps, one for each GPU that was idle."""
    return _lanes(
        "gaps",
        ops[["device", "device_no"]]
        .unique()
        .filter(pl.col("device_no").is_in(idle.unique().implode()))
        .select(
            pl.lit(value=True).alias("of_gpu"),
            pl.col("device").alias("owner"),
            pl.lit(0).alias("place"),
            pl.lit(0).alias("within"),
            pl.format("{}: idle", _gpu()).alias("title"),
            "device",
            pl.col("device_no").alias(_NUMBER),
        ),
    )


def _streams(ops: Operations, stream_no: pl.Series) -> pl.DataFrame:
    """The lanes of streams, the busiest of each GPU first."""
    length = pl.col("end_ns") - pl.col("start_ns")
    streams = (
        ops.select("device", "process", "stream", "start_ns", "end_ns", stream_no)
        .group_by("stream_no")
        .agg(pl.col("device", "process", "stream").first(), length.sum().alias("ns"))
        .sort(pl.col("ns"), "stream_no", descending=[True, False])
    )
    several = streams.group_by("device").agg(pl.col("process").n_unique())["process"].max()
    title = pl.format("{}: stream {}", _gpu(), pl.col("stream").cast(pl.String).fill_null("?"))
    pid = os_pid(pl.col("process"))
    several_processes = isinstance(several, int) and several > 1
    return _lanes(
        "stream",
        streams.with_row_index("within").select(
            pl.lit(value=True).alias("of_gpu"),
            pl.col("device").alias("owner"),
            pl.lit(1).alias("place"),
            "within",
            (pl.format("{}, pid {}", title, pid) if several_processes else title).alias("title"),
            pid.alias("process"),
            "device",
            "stream",
            pl.col("stream_no").alias(_NUMBER),
        ),
    )


def _counters(samples: pl.DataFrame) -> pl.DataFrame:
    """The lanes of sampled counters."""
    kinds = [
        samples.filter(pl.col(metric).is_not_null())
        .select("device")
        .unique()
        .select(
            pl.lit(value=True).alias("of_gpu"),
            pl.col("device").alias("owner"),
            pl.lit(2).alias("place"),
            pl.lit(number).alias("within"),
            pl.format("{}: {}", _gpu(), pl.lit(_METRICS[metric])).alias("title"),
            "device",
            pl.lit(number, pl.UInt32).alias(_NUMBER),
        )
        for number, metric in enumerate(METRICS)
    ]
    return _lanes("counter", pl.concat(kinds))


CLOCK_NUMBER: Final = len(METRICS)
"""The number of the clock among the counters."""


def _clocks(states: pl.DataFrame) -> pl.DataFrame:
    """The lanes of clocks, in percent of the highest one."""
    highest = pl.col("sm_clock_mhz").max()
    return _lanes(
        "counter",
        states.group_by("device")
        .agg(highest.alias("mhz"))
        .filter(pl.col("mhz") > 0)
        .select(
            pl.lit(value=True).alias("of_gpu"),
            pl.col("device").alias("owner"),
            pl.lit(2).alias("place"),
            pl.lit(CLOCK_NUMBER).alias("within"),
            pl.format("{}: SM clock, of {} MHz", _gpu(), "mhz").alias("title"),
            "device",
            pl.lit(CLOCK_NUMBER, pl.UInt32).alias(_NUMBER),
        ),
    )


TRAFFIC_NUMBER: Final = CLOCK_NUMBER + 1
"""The number of the first of `schema.TRAFFIC` among the counters; the others follow."""

MEMORY_NUMBER: Final = TRAFFIC_NUMBER + len(TRAFFIC)
"""The number of the memory of a GPU's first process among the counters; the others follow."""


def _titled(values: pl.DataFrame) -> pl.DataFrame:
    """The lanes of values with titles."""
    return _lanes(
        "counter",
        values.select("device", "number", "title")
        .unique()
        .select(
            pl.lit(value=True).alias("of_gpu"),
            pl.col("device").alias("owner"),
            pl.lit(2).alias("place"),
            pl.col("number").cast(pl.Int32).alias("within"),
            pl.format("{}: {}", _gpu(), "title").alias("title"),
            "device",
            pl.col("number").alias(_NUMBER),
        ),
    )


_OPENS: Final = pl.col("opens")


def depths(rows: pl.DataFrame) -> pl.Series:
    """`depth`, u32: the first free one of its lane. That of nested slices is how many hold it.

    Slices that overlap form a cluster. Of most clusters, the first slice holds all others: it is
    taken off, and what is left forms clusters again. Only clusters in which it does not are walked.

    Args:
        rows: `lane`, `start_ns`, `end_ns`, by lane and start, the longest first.
    """
    depth = repeated(0, len(rows), pl.UInt32).alias("depth")
    left, level = _clustered(rows[["lane", "start_ns", "end_ns"]].with_row_index("row")), 0
    while not left.is_empty():
        kept = left.filter("held")
        walked = left.filter(~pl.col("held"))
        if not walked.is_empty():
            depth = depth.scatter(walked["row"], _walked(walked, level))
        inner = kept.filter(~_OPENS)
        level += 1
        depth = depth.scatter(inner["row"], repeated(level, len(inner), pl.UInt32))
        left = _clustered(inner[["row", "lane", "start_ns", "end_ns"]])
    return depth


def _clustered(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of clusters of several: with `cluster`, `opens` (it is the first of its cluster) and
    `held` (whether that one lasts as long as its whole cluster)."""
    reached = reached_before(pl.col("end_ns")).over("lane")
    opens = (pl.col("start_ns") >= reached).fill_null(value=True)
    marked = rows.with_columns(opens.alias("opens"))
    alone = _OPENS & _OPENS.shift(-1, fill_value=True)
    several = marked.filter(~alone)
    if several.is_empty():
        return several.with_columns(cluster=pl.lit(0, pl.UInt32), held=pl.lit(value=False))
    numbered = several.with_columns(_OPENS.cast(pl.UInt32).cum_sum().alias("cluster"))
    first = numbered.filter("opens").select("cluster", pl.col("end_ns").alias("first_end"))
    last = numbered.group_by("cluster", maintain_order=True).agg(pl.col("end_ns").max())
    overlapped = (first["first_end"] >= last["end_ns"])[numbered["cluster"] - 1]
    return numbered.with_columns(overlapped.alias("held"))


def _walked(rows: pl.DataFrame, level: int) -> pl.Series:
    """The depth of each row of some clusters, from `level` on, one after the other."""
    numbers: list[int] = []
    ends: list[int] = []
    for opens, start, end in rows[["opens", "start_ns", "end_ns"]].iter_rows():
        if opens:
            ends = []
        free = next((depth for depth, until in enumerate(ends) if until <= start), len(ends))
        ends[free : free + 1] = [end]
        numbers.append(level + free)
    return pl.Series("depth", numbers, dtype=pl.UInt32)
