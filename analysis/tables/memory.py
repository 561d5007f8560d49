"""How much GPU memory each phase has, and where it has most (spec §26)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.frames.columns import greatest, median_ns, repeated
from nsysflow.analysis.schema import MEMORY_SOURCE, os_pid
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.selection.windows import WINDOWS
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

MEMORY: Final = TableSchema(
    """One row per process, device and phase, including what is nested in it; and one per process
    and device, with an empty `phase`, of all that is selected. Only what the process itself has on
    the GPU counts. `begin_bytes` to `operator` are of what is allocated; where only CUDA says how
    much there is, of what is reserved.""",
    [
        *shared("report process device"),
        Column(
            "phase",
            pl.String(),
            "the NVTX range with the ranges around it, outermost first, joined by `/`; empty for "
            "all that is selected",
        ),
        Column("instances", pl.Int64(), "how often the range was opened; empty for all"),
        Column(
            "peak_bytes",
            pl.Int64(),
            "the most that was allocated at a time while it was open; empty where that is not "
            "known",
        ),
        Column(
            "peak_reserved_bytes",
            pl.Int64(),
            "the most that was reserved at a time: taken from CUDA, whether handed out or not",
        ),
        Column("begin_bytes", pl.Int64(), "what was allocated when it began, the median"),
        Column("end_bytes", pl.Int64(), "what was allocated when it ended, the median"),
        Column(
            "growth_bytes",
            pl.Int64(),
            "how much more was allocated at its end than in the step before, the median; empty "
            "without two steps in a row",
        ),
        Column("peak_ns", pl.Int64(), "when it had most for the first time"),
        Column(
            "peak_phase",
            pl.String(),
            "the innermost phase in which the memory was allocated with which it had most; empty "
            "where it had that before it began",
        ),
        *shared("source via"),
        Column(
            "operator",
            pl.String(),
            "the outermost operator in which that memory was allocated, e.g. `aten::linear`",
        ),
        Column(
            "said_by",
            MEMORY_SOURCE,
            "who says how much there is: PyTorch's allocator, or CUDA",
        ),
    ],
)

LEVELS: Final = pl.Schema(
    {
        "time_ns": pl.Int64(),
        "bytes": pl.Int64(),
        "reserved_bytes": pl.Int64(),
        "change": pl.UInt32(),
    }
)
"""How much there is from `time_ns` on, until the next row; sorted. `bytes` is what is allocated, or
reserved where only that is known. `change` is the row of the trace's memory; the first row, without
one, is what was there before. """
Levels = Annotated[pl.DataFrame, LEVELS]

INSTANCES: Final = pl.Schema(
    {
        "process": pl.Int64(),
        "path": pl.UInt32(),
        "range": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    }
)
"""When each instance of a path was open on the host."""
Instances = Annotated[pl.DataFrame, INSTANCES]

_LONG_AGO: Final = -(1 << 63)


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """The memory that a process has on a GPU.

    Attributes:
        process: the key of the process.
        device: the GPU.
        device_no: its number; None where nothing ran on it.
        said_by: who says so.
        allocated: whether `levels` has what is allocated, and not what is reserved.
        levels: how much there is.
    """

    process: int
    device: int
    device_no: int | None
    said_by: str
    allocated: bool
    levels: Levels

    def before(self, times_ns: pl.Series) -> pl.Series:
        """The row of `levels` right before each instant."""
        return self.levels["time_ns"].search_sorted(times_ns, side="left") - 1

    def steps(self, view: View) -> pl.DataFrame:
        """The steps of the view on this GPU, in order: `start_ns`, `end_ns` (when the host begins
        the next one), `step`."""
        return host_steps(view, self.process, self.device_no)


def host_steps(view: View, process: int, device_no: int | None) -> pl.DataFrame:
    """The steps of the view of a process on a GPU, in order: `start_ns`, `end_ns` (when the host
    begins the next one), `step`."""
    device = pl.lit(device_no, pl.UInt32)
    mine = (pl.col("process") == process) & (pl.col("device_no") == device)
    until = pl.coalesce(pl.col("begun_ns").shift(-1), "done_ns")
    steps = view.timeline.steps.filter(mine).sort("step").with_columns(until.alias("until_ns"))
    selected = view.steps.filter(mine)["step"].implode()
    return steps.filter(pl.col("step").is_in(selected)).select(
        pl.col("begun_ns").alias("start_ns"), pl.col("until_ns").alias("end_ns"), "step"
    )


def memory_uses(timeline: Timeline) -> Iterator[MemoryUse]:
    """What processes have on the GPUs on which something ran, by device and process; on all GPUs
    where nothing ran on any, as in a memory snapshot."""
    changes = timeline.trace.memory.with_row_index("change")
    devices = dict(timeline.events.devices.rows())
    numbers = {device: number for number, device in devices.items()}
    pairs = changes.select("device", "process").unique().drop_nulls().sort("device", "process")
    for device, process in pairs.rows():
        mine = changes.filter(pl.col("device") == device, pl.col("process") == process)
        said_by = "allocator" if (mine["source"] == "allocator").any() else "cuda"
        rows = mine.filter(pl.col("source") == said_by).sort("time_ns", "row")
        allocated = rows["allocated_bytes"].null_count() < len(rows)
        known = allocated or rows["reserved_bytes"].null_count() < len(rows)
        if known and (device in numbers or not numbers):
            yield MemoryUse(
                process=process,
                device=device,
                device_no=numbers.get(device),
                said_by=said_by,
                allocated=allocated,
                levels=_levels(rows, "allocated_bytes" if allocated else "reserved_bytes"),
            )


def _levels(rows: pl.DataFrame, level: str) -> Levels:
    """The levels after each of these sorted rows, and the one before the first (spec §26.3)."""
    known = rows.select("time_ns", pl.col(level).alias("bytes"), "reserved_bytes", "change")
    before = (
        rows.head(1)
        .with_columns(pl.col(level) - pl.col("bytes"))
        .select(
            pl.lit(_LONG_AGO, pl.Int64).alias("time_ns"),
            pl.col(level).alias("bytes"),
            "reserved_bytes",
            pl.lit(None, pl.UInt32).alias("change"),
        )
    )
    return pl.concat([before, known]).match_to_schema(LEVELS)


def open_instances(timeline: Timeline) -> Instances:
    """When each instance of each path was open on the host; but for those of replayed graphs."""
    attribution = timeline.attribution
    nodes = attribution.nodes[["node", "parent", "range", "process", "path"]]
    used = pl.concat([attribution.open_time["node"], timeline.ops["node"].drop_nulls()])
    here = nodes[used.unique()]
    met = [here.clear()]
    while not here.is_empty():
        met.append(here)
        here = nodes[here["parent"].drop_nulls().unique()]
    times = attribution.ranges.filter(pl.col("captured_ns") == 0)
    times = times.select("range", "start_ns", "end_ns")
    found = pl.concat(met).select("process", "path", "range").unique()
    return found.join(times, on="range").sort("path", "start_ns", "range").select(INSTANCES.names())


_ROWS: Final = pl.Schema(
    {
        "path": pl.UInt32(),
        "instances": pl.Int64(),
        "begin_bytes": pl.Int64(),
        "end_bytes": pl.Int64(),
        "growth_bytes": pl.Int64(),
        "peak_reserved_bytes": pl.Int64(),
        "peak_at": pl.UInt32(),
        "peak_ns": pl.Int64(),
        "inside": pl.Boolean(),
    }
)
"""A row per path, and one without a path. `peak_at` is the row of the levels with the peak, and
`inside` whether that change was made while the phase was open."""


def memory_table(view: View) -> pl.DataFrame:
    """The MEMORY table, the GPUs and processes in order, the phases in tree order."""
    if view.trace.memory.is_empty():
        return MEMORY.to_frame()
    instances = open_instances(view.timeline)
    tables = [_of_process(view, use, instances) for use in memory_uses(view.timeline)]
    if not tables:
        return MEMORY.to_frame()
    rows = pl.concat(tables)
    places = allocation_places(view, rows["change"].drop_nulls().unique())
    return (
        rows.join(places, on="change", how="left", maintain_order="left")
        .with_columns(os_pid(pl.col("process")).alias("process"))
        .sort("device", "process", "key")
    )


def _of_process(view: View, use: MemoryUse, instances: Instances) -> pl.DataFrame:
    """The rows of a process on a GPU, without their places."""
    paths = view.attribution.paths.select("path", "key", "depth", phase="joined")
    rows = pl.concat([_whole(view, use), _phases(view, use, instances)])
    peak, change = (use.levels[name][rows["peak_at"]] for name in ("bytes", "change"))
    change = change.set(~rows["inside"], None)
    allocated = peak if use.allocated else repeated(None, len(rows), pl.Int64)
    named = (
        rows.with_columns(change, allocated.alias("peak_bytes"))
        .join(paths, on="path", how="left", maintain_order="left")
        .with_columns(pl.col("key", "phase").fill_null(""))
    )
    return _with_peak_phase(named).select(
        pl.lit(use.process, pl.Int64).alias("process"),
        pl.lit(use.device, pl.Int32).alias("device"),
        pl.lit(use.said_by, MEMORY_SOURCE).alias("said_by"),
        *("key", "phase", "instances", "peak_bytes", "peak_reserved_bytes", "begin_bytes"),
        *("end_bytes", "growth_bytes", "peak_ns", "peak_phase", "change"),
    )


def _phases(view: View, use: MemoryUse, instances: Instances) -> pl.DataFrame:
    """`_ROWS` of the phases of which an instance begins in the selected time."""
    mine = instances.filter(pl.col("process") == use.process).sort("start_ns", "end_ns", "range")
    mine = beginning_in(selected_time(view, use), mine)
    measured = _measured(use, mine).with_columns(mine["path"])
    sums = measured.group_by("path").agg(
        pl.len().cast(pl.Int64).alias("instances"),
        median_ns(pl.col("begin_bytes")).alias("begin_bytes"),
        median_ns(pl.col("end_bytes")).alias("end_bytes"),
        pl.col("peak_reserved_bytes").max(),
    )
    growth = _growth(measured, use.steps(view))
    peaks = _first_largest(use, measured)
    rows = sums.join(peaks, on="path").join(growth, on="path", how="left")
    return rows.select(_ROWS.names()).match_to_schema(_ROWS)


def _whole(view: View, use: MemoryUse) -> pl.DataFrame:
    """`_ROWS` of all that is selected."""
    no_path = pl.lit(None, pl.UInt32).alias("path")
    spans, steps = selected_time(view, use), use.steps(view)
    measured, ends = (_measured(use, rows).with_columns(no_path) for rows in (spans, steps))
    sums = measured.group_by("path", maintain_order=True).agg(
        pl.lit(None, pl.Int64).alias("instances"),
        pl.col("begin_bytes").first(),
        pl.col("end_bytes").last(),
        pl.col("peak_reserved_bytes").max(),
    )
    rows = sums.join(_first_largest(use, measured), on="path", nulls_equal=True).join(
        _growth(ends, steps), on="path", how="left", nulls_equal=True
    )
    return rows.select(_ROWS.names()).match_to_schema(_ROWS)


def selected_time(view: View, use: MemoryUse) -> pl.DataFrame:
    """`start_ns`, `end_ns` of the selected time, in order: where whole steps are selected, the time
    of the host in them, which runs ahead of the GPU; else the windows of the GPU."""
    if view.of_steps:
        return use.steps(view).select("start_ns", "end_ns")
    return recorded_time(view, use.device_no)


def recorded_time(view: View, device_no: int | None) -> pl.DataFrame:
    """`start_ns`, `end_ns` of the recorded time that is selected on a GPU, in order."""
    extent = [device_no], [view.events.axis.origin_ns], [view.events.last_ns]
    recorded = pl.DataFrame(dict(zip(WINDOWS, extent, strict=True)), schema=WINDOWS)
    return view.clip_recorded(recorded).select("start_ns", "end_ns")


def beginning_in(spans: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, sorted by `start_ns`, that begin in one of the spans, which are disjoint; with the
    other columns of that span."""
    spans = spans.rename({"start_ns": "begun_ns", "end_ns": "until_ns"})
    placed = rows.join_asof(spans, left_on="start_ns", right_on="begun_ns", check_sortedness=False)
    return placed.filter(pl.col("start_ns") < pl.col("until_ns")).drop("begun_ns", "until_ns")


def peak_of_all(view: View, use: MemoryUse) -> int | None:
    """The row of the levels with the most of all that is selected; None where none is known."""
    row = _whole(view, use)["peak_at"].max()  # the only one
    return row if isinstance(row, int) else None


def _measured(use: MemoryUse, spans: pl.DataFrame) -> pl.DataFrame:
    """`start_ns` and `end_ns` of the spans, with what there is at their begin and end, the most
    that is reserved, and `peak_at`: the row of the levels at which there is most first."""
    first, last = (use.before(spans[name]) for name in ("start_ns", "end_ns"))
    level, reserved = use.levels["bytes"], use.levels["reserved_bytes"]
    most_reserved = reserved[largest_within(reserved, first, last)]
    return spans.select("start_ns", "end_ns").with_columns(
        level[first].alias("begin_bytes"),
        level[last].alias("end_bytes"),
        most_reserved.alias("peak_reserved_bytes"),
        largest_within(level, first, last).alias("peak_at"),
    )


def largest_within(level: pl.Series, first: pl.Series, last: pl.Series) -> pl.Series:
    """For each span of rows, both ends included, the first row at which the level is largest; a row
    without a level where none has one.

    Spans twice as long are made of two: the work grows with the rows and the spans, and not with
    how many rows the spans hold.
    """
    largest_first = pl.arg_sort_by("level", descending=True, nulls_last=True, maintain_order=True)
    order = level.to_frame("level").select(largest_first.cast(pl.UInt32)).to_series()
    places = repeated(0, len(level), pl.UInt32).scatter(
        order, pl.int_range(len(level), dtype=pl.UInt32, eager=True)
    )
    spans = pl.DataFrame({"first": first, "last": last}).cast(pl.Int64).with_row_index("span")
    length = pl.col("last") - pl.col("first") + 1
    best = repeated(0, len(spans), pl.UInt32)
    reach = 1
    while reach <= greatest(spans.select(length).to_series()):
        here = spans.filter(length >= reach, length < 2 * reach)
        ends = places[here["first"]], places[here["last"] - (reach - 1)]
        best = best.scatter(here["span"], pl.select(pl.min_horizontal(*ends)).to_series())
        places = pl.select(pl.min_horizontal(places, places.shift(-reach))).to_series()
        reach *= 2
    return order[best].alias("peak_at")


def _first_largest(use: MemoryUse, measured: pl.DataFrame) -> pl.DataFrame:
    """Per path `peak_at`, `peak_ns` and `inside` of the measured span with the largest peak; of
    several, of the one that reaches it first."""
    peak, time_ns = (use.levels[name][measured["peak_at"]] for name in ("bytes", "time_ns"))
    reached = measured.with_columns(
        peak.alias("peak"),
        pl.max_horizontal("start_ns", pl.lit(time_ns)).alias("peak_ns"),
        (pl.lit(time_ns) >= pl.col("start_ns")).alias("inside"),
    )
    ranked = reached.sort(-pl.col("peak"), "peak_ns", "peak_at", nulls_last=True)
    known = pl.col("peak").is_not_null()
    return ranked.unique("path", keep="first", maintain_order=True).select(
        "path",
        pl.when(known).then("peak_at").alias("peak_at"),
        pl.when(known).then("peak_ns").alias("peak_ns"),
        pl.col("inside") & known,
    )


def _growth(measured: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """`growth_bytes` per path: by how much what there is at the end of its last instance in a step
    differs from that in the step before, the median.

    Args:
        measured: `path`, `start_ns` and `end_bytes` of instances, in order.
        steps: `start_ns`, `end_ns`, `step`, in order.
    """
    placed = beginning_in(steps, measured)
    last = placed.unique(["path", "step"], keep="last", maintain_order=True).sort("path", "step")
    apart = pl.col("step").diff().over("path")
    grown = pl.col("end_bytes").diff().over("path")
    return (
        last.select("path", pl.when(apart == 1).then(grown).alias("grown"))
        .group_by("path")
        .agg(median_ns(pl.col("grown")).alias("growth_bytes"))
    )


def _with_peak_phase(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` plus `peak_phase`: of the phases nested in each, or itself, with the same peak, made
    while they were open, the deepest one."""
    inner = rows.filter("inside", pl.col("path").is_not_null()).select(
        "peak_at", "depth", pl.col("key").alias("inner"), pl.col("phase").alias("peak_phase")
    )
    numbered = rows.with_row_index("row")
    deepest = (
        numbered.select("row", "peak_at", "key")
        .join(inner, on="peak_at")
        .filter(pl.col("inner").str.starts_with(pl.col("key")))
        .sort("depth", "inner", descending=[True, False])
        .unique("row", keep="first", maintain_order=True)
    )
    return numbered.join(
        deepest.select("row", "peak_phase"), on="row", how="left", maintain_order="left"
    ).drop("row")


def allocation_places(view: View, changes: pl.Series) -> pl.DataFrame:
    """`change`, `source`, `via` and `operator` of these rows of the trace's memory, as far as they
    are known."""
    rows = view.trace.memory[changes].drop("source").with_columns(changes.alias("change"))
    by_call = rows.filter(pl.col("stack").is_null(), pl.col("thread").is_null())
    calls = _of_calls(view, by_call.drop_nulls("correlation"))
    return pl.concat([places_of_stacks(view, rows), calls])


_PLACES: Final = pl.Schema(
    {"change": pl.UInt32(), "source": pl.String(), "via": pl.String(), "operator": pl.String()}
)


def places_of_stacks(view: View, rows: pl.DataFrame) -> pl.DataFrame:
    """`change`, `source`, `via` and `operator` of rows with `change`, `time_ns`, `thread` and
    `stack`: of their stack, or else of what that thread ran, as far as one is known."""
    known = rows.select("change", "stack").drop_nulls()
    running = view.trace.running.sort("start_ns")
    ran = (
        rows.filter(pl.col("stack").is_null())
        .drop("stack")
        .drop_nulls("thread")
        .sort("time_ns")
        .join_asof(
            running, left_on="time_ns", right_on="start_ns", by="thread", check_sortedness=False
        )
    )
    ran = ran.filter(pl.col("time_ns") < pl.col("end_ns")).select("change", "stack")
    ran = pl.concat([known, ran])
    frames = view.trace.frames
    is_operator = pl.col("file").is_null() & pl.col("function").str.contains("::", literal=True)
    asked = pl.col("stack").is_in(ran["stack"].unique().implode())
    operators = frames.filter(asked, is_operator).sort("depth")
    operators = operators.group_by("stack").agg(pl.col("function").last().alias("operator"))
    placed = ran.join(view.events.stack_sources, on="stack", how="left").join(
        operators, on="stack", how="left"
    )
    return placed.select(_PLACES.names()).cast(_PLACES)


def _of_calls(view: View, rows: pl.DataFrame) -> pl.DataFrame:
    """`_PLACES` of rows with `correlation`: the lines of that call."""
    calls = view.events.calls.filter(
        pl.col("correlation").is_in(rows["correlation"].unique().implode())
    )
    process = view.events.threads["process"][calls["thread_no"]]
    key = ["process", "correlation"]
    made = calls.with_columns(process).unique(key, keep="first", maintain_order=True)
    placed = rows.join(made.select(*key, "source", "via"), on=key)
    operator = pl.lit(None, pl.String).alias("operator")
    return placed.select("change", "source", "via", operator).cast(_PLACES)


TABLES: Final = (
    Table(
        name="memory",
        schema=MEMORY,
        make=memory_table,
        csv="with rows",
        json_key="memory",
        page_rows=4,
        full_rows=20,
        filled_by="record with nsysflow profile --memory, or torch.profiler's profile_memory=True",
        shown=(
            "phase peak_bytes peak_reserved_bytes peak_phase source begin_bytes end_bytes"
            " growth_bytes instances device process report"
        ),
    ),
)
