"""`Tracks`: the whole picture of one report."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import greatest
from nsysflow.analysis.schema import BEFORE_NS, METRICS, TRAFFIC, os_pid
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.tables.memory import memory_uses
from nsysflow.analysis.tables.traffic import held_rates
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
    TRAFFIC_NUMBER,
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
        titled = pl.concat([_traffic(timeline.trace.gpu_traffic), _memory(timeline)])
        idle = timeline.bare_gaps["device_no"]
        lanes = Lanes.of(events, timeline.steps, threads, idle, titled)
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
            counters=_counters(timeline, lanes, titled),
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


def _counters(timeline: Timeline, lanes: Lanes, titled: pl.DataFrame) -> pl.DataFrame:
    """COUNTERS."""
    samples = timeline.trace.gpu_samples
    values = [
        samples.select("device", "time_ns", pl.col(metric).alias("value_pct"))
        .drop_nulls("value_pct")
        .with_columns(pl.lit(number, pl.UInt32).alias("number"))
        for number, metric in enumerate(METRICS)
    ]
    rows = pl.concat([*values, _clocks(timeline.trace.gpu_states), titled.drop("title")])
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


_TITLED: Final = pl.Schema(
    {
        "device": pl.Int32(),
        "time_ns": pl.Int64(),
        "value_pct": pl.Int64(),
        "number": pl.UInt32(),
        "title": pl.String(),
    }
)


_SAID: Final = ("PCIe sent", "PCIe received", "NVLink sent", "NVLink received")
"""What lanes call `schema.TRAFFIC`."""


def _traffic(readings: pl.DataFrame) -> pl.DataFrame:
    """What GPUs send and receive as values of a counter, in whole percent of the highest rate of
    the GPU; with what the titles of their lanes say."""
    frames = [_TITLED.to_frame()]
    for number, (column, said) in enumerate(zip(TRAFFIC, _SAID, strict=True), TRAFFIC_NUMBER):
        rates = held_rates(readings, column, "device")
        for (device,), of_device in rates.group_by("device", maintain_order=True):
            highest = greatest(of_device["value"].cast(pl.Int64))
            if highest <= 0:
                continue
            frames.append(
                of_device.select(
                    pl.lit(device, pl.Int32).alias("device"),
                    pl.col("start_ns").alias("time_ns"),
                    (100 * pl.col("value").cast(pl.Int64) // highest).alias("value_pct"),
                    pl.lit(number, pl.UInt32).alias("number"),
                    pl.lit(f"{said}, of {size(highest)}/s").alias("title"),
                )
            )
    return pl.concat(frames)


def _memory(timeline: Timeline) -> pl.DataFrame:
    """What each process has on a GPU as values of a counter, in whole percent of the most that it
    has in the recording, where they change; with what the title of its lane says."""
    uses = [*memory_uses(timeline)]
    of_device = Counter(use.device for use in uses)
    met: Counter[int] = Counter()
    frames = [_TITLED.to_frame()]
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
            .match_to_schema(_TITLED)
        )
        met[use.device] += 1
    return pl.concat(frames)
