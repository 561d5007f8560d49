"""`Tracks`: the whole picture of one report."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import greatest
from nsysflow.analysis.schema import BEFORE_NS, METRICS, os_pid
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.tables.memory import memory_uses
from nsysflow.analysis.tracks import rows as host
from nsysflow.analysis.tracks.lanes import (
    BATCHES,
    CLOCK_NUMBER,
    COUNTERS,
    MEMORY_NUMBER,
    PATHS,
    PROFILER,
    RANGES,
    STEPS,
    Lanes,
)
from nsysflow.analysis.tracks.rows import gaps, operations, sorted_by_lane, stack_frames
from nsysflow.base.units import size


@dataclass(frozen=True, kw_only=True)
class Tracks:
    """The picture of a whole report, whatever is selected: every row that it draws.

    Attributes:
        lanes: `schema.LANES`.
        operations: `schema.OPERATIONS`.
        calls: `schema.CALLS`.
        ranges: `schema.RANGES`.
        steps: `schema.STEPS`.
        gaps: `schema.GAPS`.
        profiler: `schema.PROFILER`.
        batches: `schema.BATCHES`.
        host_stacks: `schema.HOST_STACKS`.
        stack_frames: `STACK_FRAMES`.
        counters: `schema.COUNTERS`.
        paths: `schema.PATHS`.
    """

    lanes: pl.DataFrame
    operations: pl.DataFrame
    calls: pl.DataFrame
    ranges: pl.DataFrame
    steps: pl.DataFrame
    gaps: pl.DataFrame
    profiler: pl.DataFrame
    batches: pl.DataFrame
    host_stacks: pl.DataFrame
    stack_frames: pl.DataFrame
    counters: pl.DataFrame
    paths: pl.DataFrame

    @classmethod
    def of(cls, timeline: Timeline) -> "Tracks":
        """The picture of a report."""
        events = timeline.events
        found_ranges, found_stacks = host.found_ranges(timeline), host.found_stacks(timeline)
        threads = {
            "phases": found_ranges["thread_no"],
            "calls": events.calls["thread_no"],
            "host_stack": found_stacks["thread_no"],
            "stack": found_stacks["thread_no"],
            "profiler": events.overhead["thread_no"],
        }
        memory, idle = _memory(timeline), timeline.bare_gaps["device_no"]
        lanes = Lanes.of(events, timeline.steps, threads, idle, memory)
        calls = host.calls(timeline, lanes)
        ops = operations(timeline, lanes, calls.place)
        ranges = host.ranges(timeline, lanes, found_ranges)
        profiler, batches = host.profiler(timeline, lanes), host.batches(timeline, lanes)
        stacks = sorted_by_lane(
            found_stacks, lanes.numbered("host_stack", found_stacks["thread_no"])
        ).rows
        frames = stack_frames(timeline, lanes, stacks)
        return cls(
            lanes=lanes.with_rows([ops.rows, calls.rows, ranges, frames, profiler, batches]),
            operations=ops.rows,
            calls=calls.rows,
            ranges=ranges.match_to_schema(RANGES),
            steps=_steps(timeline, lanes),
            gaps=gaps(timeline, lanes, call_place=calls.place, op_place=ops.place),
            profiler=profiler.match_to_schema(PROFILER),
            batches=batches.match_to_schema(BATCHES),
            host_stacks=host.host_stacks(timeline, lanes, stacks),
            stack_frames=frames,
            counters=_counters(timeline, lanes, memory),
            paths=timeline.attribution.paths.select("path", pl.col("joined").alias("name"))
            .sort("path")
            .match_to_schema(PATHS),
        )


def _steps(timeline: Timeline, lanes: Lanes) -> pl.DataFrame:
    """STEPS."""
    steps = timeline.steps
    lane = lanes.of_steps(steps)
    placed = steps.with_columns(lane).sort("lane", "start_ns", "step")
    return placed.select(STEPS.names()).match_to_schema(STEPS)


def _counters(timeline: Timeline, lanes: Lanes, memory: pl.DataFrame) -> pl.DataFrame:
    """COUNTERS."""
    samples = timeline.trace.gpu_samples
    values = [
        samples.select("device", "time_ns", pl.col(metric).alias("value_pct"))
        .drop_nulls("value_pct")
        .with_columns(pl.lit(number, pl.UInt32).alias("number"))
        for number, metric in enumerate(METRICS)
    ]
    rows = pl.concat([*values, _clocks(timeline.trace.gpu_states), memory.drop("title")])
    sorted_rows = rows.with_columns(lanes.of_counters(rows)).sort("lane", "time_ns")
    return sorted_rows.select(COUNTERS.names()).match_to_schema(COUNTERS)


def _clocks(states: pl.DataFrame) -> pl.DataFrame:
    """The clocks as values of a counter, in whole percent of the highest one of their GPU."""
    mhz = pl.col("sm_clock_mhz")
    highest = mhz.max().over("device")
    return (
        states.drop_nulls("sm_clock_mhz")
        .filter(highest > 0)
        .select("device", "time_ns", (100 * mhz // highest).alias("value_pct"))
        .with_columns(pl.lit(CLOCK_NUMBER, pl.UInt32).alias("number"))
    )


_MEMORY: Final = pl.Schema(
    {
        "device": pl.Int32(),
        "time_ns": pl.Int64(),
        "value_pct": pl.Int64(),
        "number": pl.UInt32(),
        "title": pl.String(),
    }
)


def _memory(timeline: Timeline) -> pl.DataFrame:
    """What each process has on a GPU as values of a counter, in whole percent of the most that it
    has in the recording, where they change; with what the title of its lane says."""
    uses = [*memory_uses(timeline)]
    of_device = Counter(use.device for use in uses)
    met: Counter[int] = Counter()
    frames = [_MEMORY.to_frame()]
    for use in uses:
        recorded = pl.col("time_ns").is_between(BEFORE_NS // 2, timeline.events.last_ns, "left")
        levels = use.levels.filter(recorded).drop_nulls("bytes")
        most = greatest(levels["bytes"])
        if most <= 0:
            continue
        pid = pl.select(os_pid(pl.lit(use.process))).item()
        whose = f" of process {pid}" if of_device[use.device] > 1 else ""
        values = levels.select("time_ns", (100 * pl.col("bytes") // most).alias("value_pct"))
        values = values.unique("time_ns", keep="last", maintain_order=True)
        changed = pl.col("value_pct").ne_missing(pl.col("value_pct").shift())
        frames.append(
            values.filter(changed)
            .with_columns(
                pl.lit(use.device, pl.Int32).alias("device"),
                pl.lit(MEMORY_NUMBER + met[use.device], pl.UInt32).alias("number"),
                pl.lit(f"memory{whose}, of {size(most)}").alias("title"),
            )
            .match_to_schema(_MEMORY)
        )
        met[use.device] += 1
    return pl.concat(frames)
