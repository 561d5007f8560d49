"""What the host was running while the GPU waited: Python samples and operators (spec §17)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.columns import median_ns
from nsysflow.analysis.frames.intervals import Cover, between, inside, merge, on_axis
from nsysflow.analysis.idle.host_time import CallTime, Span, between_calls, cut_host_time
from nsysflow.analysis.idle.run_ahead import HostSide
from nsysflow.analysis.schema import CAUSE
from nsysflow.analysis.trace import Trace

REACH: Final = 2
"""A sample stands for nothing that is further away than this many sampling periods: a sampler that
was held up says nothing of the time in which it was."""

CELLS: Final = pl.Schema(
    {"start": pl.Int64(), "end": pl.Int64(), "stack": pl.UInt32(), "cell": pl.UInt32()}
)
"""Stretches that lie end to end, on the axis of threads, sorted. `stack` and `cell` are null where
nothing stands for the time; else `cell` counts up, or cells of one number are taken together."""
Cells = Annotated[pl.DataFrame, CELLS]


WAITS: Final = (
    r"^_*(?:get|(?:try_)?get_data|wait\w*|acquire|e?poll|select|recv\w*|result|communicate)$"
)
"""Functions of libraries in which a thread stands until another thread or process is ready."""


def has_host_stacks(trace: Trace) -> bool:
    """Whether the report says what the host was running."""
    return not (trace.samples.is_empty() and trace.running.is_empty())


def cells(events: Events) -> Cells:
    """What each thread was running when."""
    trace, axis = events.trace, events.axis
    exact = not trace.running.is_empty()
    stretches = trace.running if exact else _reach_of_samples(trace.samples)
    threads = events.threads[["thread", "thread_no"]]
    standing = inside(stretches, axis).join(threads, on="thread")
    known = on_axis(standing, axis, "thread_no").with_columns(standing["stack"])
    return with_rest(known.sort("start").with_row_index("cell"))


def with_rest(known: pl.DataFrame) -> Cells:
    """CELLS of `known` ones, disjoint and sorted, and of the time for which nothing stands."""
    rest = between(known).filter(pl.col("end") > pl.col("start"))
    return pl.concat([known, rest], how="diagonal").sort("start").match_to_schema(CELLS)


def waiting_time(events: Events) -> Cover:
    """When each thread stood in a function that waits for another thread or process, on the axis of
    threads."""
    innermost = pl.col("depth") == 0
    function = pl.col("function").cast(pl.String)
    standing = events.trace.frames.filter(innermost, function.str.contains(WAITS))["stack"]
    if standing.is_empty():
        return Cover(CELLS.to_frame()[["start", "end"]])
    waiting = cells(events).filter(pl.col("stack").is_in(standing.unique().implode()))
    return Cover(merge(waiting[["start", "end"]]))


def period_ns(samples: pl.DataFrame) -> int | None:
    """The median time between neighbouring samples of a thread; None where no thread has two."""
    first = samples.unique(["thread", "time_ns"]).sort("thread", "time_ns")
    # in 128 bits, since the times of a damaged report may be anything
    apart = pl.col("time_ns").cast(pl.Int128).diff().over("thread")
    period: int | None = first.select(median_ns(apart.cast(pl.Int64, strict=False))).item()
    return period


def _reach_of_samples(samples: pl.DataFrame) -> pl.DataFrame:
    """The time that each sample stands for: `thread`, `start_ns`, `end_ns`, `stack`."""
    period = period_ns(samples)
    if period is None:
        return samples.clear().select("thread", start_ns="time_ns", end_ns="time_ns", stack="stack")
    key = ["thread", "time_ns"]
    first = samples.unique(key, keep="first", maintain_order=True).sort(key)
    time, reach = pl.col("time_ns").cast(pl.Int128), REACH * period
    begins = (time.shift(1).over("thread") + time).floordiv(2) + 1
    begins = pl.max_horizontal(begins, time - reach)
    ends = (time + time.shift(-1).over("thread")).floordiv(2) + 1
    ends = pl.min_horizontal(ends, time + reach + 1)
    return first.select("thread", begins.alias("start_ns"), ends.alias("end_ns"), "stack")


INSTANTS: Final = pl.Schema(
    {
        "gap": pl.UInt32(),
        "cause": CAUSE,
        "path": pl.UInt32(),
        "thread_no": pl.UInt32(),
        "stack": pl.UInt32(),
        "cell": pl.UInt32(),
        "order": pl.Int64(),
        "ns": pl.Int64(),
    }
)
"""The instants of a gap, a row per cause, place, thread and cell. `path` is null outside all
ranges, `stack` and `cell` where nothing stands for the time. `order` breaks ties (spec §17.6)."""
Instants = Annotated[pl.DataFrame, INSTANTS]

LEFT_INSTANTS: Final = pl.Schema({**INSTANTS, "row": pl.UInt32()})
"""What windows leave of them, with the row of the narrowed gap."""

HOST_STACKS: Final = pl.Schema(
    {
        "phase": pl.String(),
        "cause": CAUSE,
        "thread_no": pl.UInt32(),
        "stack": pl.UInt32(),
        "idle_ns": pl.Int64(),
        "samples": pl.Int64(),
    }
)
"""Idle time by what the host was running, a row per phase, cause, thread and stack."""
HostStacks = Annotated[pl.DataFrame, HOST_STACKS]

_PIECE: Final = ["gap", "path", "thread_no", "stack", "cell", "order", "ns"]

HOLE: Final = 1 << 32
"""In `order`, what nothing stands for comes after all cells of its thread."""


def host_instants(
    events: Events, side: HostSide, tiles: Cells, host_path: pl.Series, path_of_call: pl.Series
) -> Instants:
    """What the host was running in all gaps.

    Args:
        events: the trace.
        side: the host in the gaps that it kept waiting.
        tiles: what stands for the time of each thread.
        host_path: per gap, where the host was between calls.
        path_of_call: where each launch call was made.
    """
    pieces = _pieces(events, side, tiles)
    start, end = pieces["start"], pieces["end"]
    ns = {name: cover.between(start, end) for name, cover in side.time.covers.items()}
    host_ns, between_ns = between_calls(ns, end - start)
    host = host_path[pieces["gap"]].alias("path")
    in_calls = _in_calls(pieces, Span.of(side.time.launch, start, end), path_of_call)
    pieces = pieces.drop("start", "end")
    instants = [
        _summed([pieces.with_columns(host, host_ns.alias("ns"))], "host"),
        _summed([pieces.with_columns(host, between_ns.alias("ns")), in_calls], "launch"),
    ]
    return pl.concat(instants)


def _pieces(events: Events, side: HostSide, tiles: Cells) -> pl.DataFrame:
    """The host time of each gap, cut at the borders of the cells of the thread that it looks at.

    Returns:
        `gap`, `thread_no`, `stack`, `cell`, `order`, and `start` and `end` on the axis of lanes, in
        order.
    """
    cut = cut_host_time(events, side.waiting, tiles)
    stack, cell = (tiles[name][cut["tile"]] for name in ("stack", "cell"))
    order = cut["order"] + cell.cast(pl.Int64).fill_null(HOLE)
    return cut.select("gap", "thread_no", stack, cell, order.alias("order"), "start", "end")


def _in_calls(pieces: pl.DataFrame, launch: Span, path_of_call: pl.Series) -> pl.DataFrame:
    """The time inside launch calls: the pieces with `path` and `ns`, a row per path."""
    row = pl.int_range(len(pieces), dtype=pl.UInt32, eager=True)
    launching = CallTime.last_of(launch, row, launch.ns)
    places = launching.places(path_of_call)
    touched = pieces.drop("start", "end")[places["gap"]]
    alone = touched.with_columns(places["path"], places["inside_ns"].alias("ns"))
    shared = touched.hstack(launching.spans[["begin", "stop"]]).filter(places["several"])
    cut = launch.cover.slices(shared)
    cut = cut.with_columns(path_of_call[cut["owner"]].alias("path"))
    return pl.concat([alone.filter(~places["several"]), cut.select(alone.columns)])


def _summed(rows: list[pl.DataFrame], cause: str) -> Instants:
    """The instants of one cause, from pieces with `path` and `ns`."""
    key = ["gap", "path", "order"]
    pieces = pl.concat([part.filter(pl.col("ns") > 0).select(_PIECE) for part in rows])
    several = pieces.select(pl.struct(key).is_duplicated()).to_series()
    summed = pieces.filter(several).group_by(key).agg(pl.exclude("ns").first(), pl.col("ns").sum())
    both = pl.concat([pieces.filter(~several), summed.select(_PIECE)])
    return both.with_columns(pl.lit(cause, CAUSE).alias("cause")).match_to_schema(INSTANTS)


def by_stack(instants: Instants, phase_of_path: pl.Series) -> HostStacks:
    """Idle time by phase, cause, thread and stack.

    Args:
        instants: what the host was running in some gaps.
        phase_of_path: the name of each path.
    """
    phase = phase_of_path.cast(pl.Categorical)[instants["path"]].alias("phase")
    return (
        instants.with_columns(phase)
        .group_by("phase", "cause", "thread_no", "stack")
        .agg(
            pl.col("ns").sum().alias("idle_ns"),
            pl.col("cell").drop_nulls().n_unique().cast(pl.Int64).alias("samples"),
        )
        .with_columns(pl.col("phase").cast(pl.String).fill_null(""))
    )
