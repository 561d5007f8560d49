"""The clock, power and temperature of each GPU, step by step (spec §25)."""

from typing import Final

import polars as pl

from nsysflow.analysis.events.events import Events
from nsysflow.analysis.frames.columns import percent
from nsysflow.analysis.frames.intervals import inside, on_axis, overlaps
from nsysflow.analysis.schema import CLOCK_LIMIT, os_pid
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

CLOCKS: Final = TableSchema(
    """One row per process, device and step, or per selected window of a GPU without steps, in which
    a reading holds. A reading holds until the next one, at most 1 s; means are over the time in
    which one holds.""",
    [
        *shared("report process device"),
        Column("step", pl.Int64(), "the step's number; empty for a window"),
        *shared("start_ns end_ns"),
        Column("sm_clock_mhz", pl.Float64(), "the mean clock of the multiprocessors"),
        Column("lowest_mhz", pl.Int64(), "the lowest reading of that clock"),
        Column("highest_mhz", pl.Int64(), "the highest reading of that clock"),
        Column(
            "clock_pct",
            pl.Float64(),
            "the mean clock, of the highest reading of the GPU in the whole report",
        ),
        Column("memory_clock_mhz", pl.Float64(), "the mean clock of the GPU's memory"),
        Column("power_w", pl.Float64(), "the mean power of the GPU"),
        Column("temperature_c", pl.Float64(), "the mean temperature of the GPU"),
        Column(
            "limited_by",
            CLOCK_LIMIT,
            "what kept the clock down for most of the time, by NVML: thermal, power_brake, "
            "hardware, power_cap, sync_boost or setting; empty if nothing did",
        ),
        Column(
            "limited_pct", pl.Float64(), "the share of the time in which one of these did, or more"
        ),
        *shared("compute_ns"),
    ],
)

HOLD_NS: Final = 1_000_000_000
"""A reading holds so long at most: ten periods of our own sampling."""

_MEANS: Final = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")

_FREE: Final = tuple(CLOCK_LIMIT.categories.to_list().index(name) for name in ("idle", "none"))
"""The places of what is no limit of a busy GPU."""


def clock_table(view: View) -> pl.DataFrame:
    """The CLOCKS table."""
    events, states = view.events, _readings(view.events)
    if states.is_empty():
        return CLOCKS.to_frame()
    pieces = pieces_of(view)
    found = pieces.drop("start", "end").join(_highest(states), on="device_no", how="left")
    parts = {column: _within(pieces, states, column, events) for column in (*_MEANS, "limit")}
    clock = pl.col("value")
    for rows in (
        *(means_of(parts[column]).rename({"mean": column}) for column in _MEANS),
        parts["sm_clock_mhz"]
        .group_by("piece")
        .agg(clock.min().alias("lowest_mhz"), clock.max().alias("highest_mhz")),
        _limits(parts["limit"]),
    ):
        found = found.join(rows, on="piece", how="left")
    known = pl.any_horizontal(pl.col(*_MEANS, "limited_pct").is_not_null())
    return (
        found.filter(known)
        .join(events.devices, on="device_no")
        .with_columns(
            os_pid(pl.col("process")).alias("process"),
            percent(pl.col("sm_clock_mhz"), pl.col("top_mhz")).alias("clock_pct"),
        )
        .sort("process", "device", "step", "start_ns")
    )


def mean_clocks(view: View) -> pl.DataFrame:
    """`device`, `sm_clock_mhz`: the mean clock of each GPU over the view's windows, where it is
    known."""
    events, states = view.events, _readings(view.events)
    windows = view.windows.with_columns(pl.col("device_no").alias("piece"))
    pieces = windows.hstack(on_axis(windows, events.axis).get_columns())
    means = means_of(_within(pieces, states, "sm_clock_mhz", events))
    return means.join(events.devices, left_on="piece", right_on="device_no").select(
        "device", pl.col("mean").alias("sm_clock_mhz")
    )


def pieces_of(view: View) -> pl.DataFrame:
    """The steps, and of GPUs without steps the windows: `piece`, `process`, `device_no`, `step`,
    its times, `compute_ns`, and `start`, `end` on the axis."""
    columns = ["process", "device_no", "step", "start_ns", "end_ns"]
    steps = view.steps.select(columns)
    windows = view.windows.join(view.timeline.steps, on="device_no", how="anti")
    nobody = [pl.lit(None, steps.schema[name]).alias(name) for name in ("process", "step")]
    pieces = pl.concat([steps, windows.with_columns(nobody).select(columns)])
    axis = view.events.axis
    compute_ns = view.busy.parts(pieces, axis)["compute_ns"]
    return pieces.hstack([compute_ns, *on_axis(pieces, axis)]).with_row_index("piece")


def _readings(events: Events) -> pl.DataFrame:
    """`device_no`, `time_ns` and the readings of GPUs that ran something, in order, one row per
    instant: the largest of each, and of limits the first, as its place in CLOCK_LIMIT."""
    return (
        events.trace.gpu_states.join(events.devices, on="device")
        .with_columns(pl.col("limit").to_physical().cast(pl.Int64))
        .group_by("device_no", "time_ns")
        .agg(pl.col(*_MEANS).max(), pl.col("limit").min())
        .sort("device_no", "time_ns")
    )


def _highest(states: pl.DataFrame) -> pl.DataFrame:
    """`device_no`, `top_mhz`: the highest clock of each GPU."""
    return states.group_by("device_no").agg(pl.col("sm_clock_mhz").max().alias("top_mhz"))


def _within(
    pieces: pl.DataFrame, states: pl.DataFrame, column: str, events: Events
) -> pl.DataFrame:
    """How long each reading of a column holds in each piece: `piece`, `value`, `ns`."""
    time = pl.col("time_ns")
    readings = states.drop_nulls(column).select(
        "device_no",
        pl.col(column).alias("value"),
        time.alias("start_ns"),
        pl.min_horizontal(time.shift(-1).over("device_no"), time + HOLD_NS).alias("end_ns"),
    )
    return held_in(pieces, readings, events)


def held_in(pieces: pl.DataFrame, readings: pl.DataFrame, events: Events) -> pl.DataFrame:
    """How long each reading holds in each piece: `piece`, `value`, `ns`.

    Args:
        pieces: of `pieces_of`.
        readings: `device_no`, `value`, and from `start_ns` to `end_ns` it holds; in order of
            `device_no` and time, disjoint.
        events: the report.
    """
    held = inside(readings, events.axis)
    parts = overlaps(pieces.select("piece", "start", "end"), on_axis(held, events.axis))
    ns = (pl.col("end") - pl.col("start")).alias("ns")
    return parts.select("piece", held["value"][parts["other"]].alias("value"), ns).filter(
        pl.col("ns") > 0
    )


def means_of(parts: pl.DataFrame) -> pl.DataFrame:
    """`piece`, `mean`, weighed by time."""
    weighed = (pl.col("value") * pl.col("ns")).sum() / pl.col("ns").sum()
    return parts.group_by("piece").agg(weighed.alias("mean"))


def _limits(parts: pl.DataFrame) -> pl.DataFrame:
    """`piece`, `limited_by`, `limited_pct`."""
    limiting, names = ~pl.col("value").is_in(_FREE), dict(enumerate(CLOCK_LIMIT.categories))
    by_limit = parts.group_by("piece", "value").agg(pl.col("ns").sum())
    longest_first = by_limit.sort("ns", "value", descending=[True, False])
    found = longest_first.group_by("piece", maintain_order=True).agg(
        pl.col("value").filter(limiting).first().alias("limited_by"),
        percent(pl.col("ns").filter(limiting).sum(), pl.col("ns").sum()).alias("limited_pct"),
    )
    return found.with_columns(pl.col("limited_by").replace_strict(names, return_dtype=CLOCK_LIMIT))


LIMITS: Final = {
    "thermal": "heat",
    "power_brake": "power brake",
    "hardware": "hardware",
    "power_cap": "power cap",
    "sync_boost": "sync boost",
    "setting": "a setting",
}
"""What keeps a clock down, in words."""


def clock_means(clocks: pl.DataFrame) -> pl.DataFrame:
    """A row per `report`, `process` and `device` of rows of CLOCKS: `sm_clock_mhz`, `clock_pct`,
    `power_w`, `temperature_c` and `limited_pct` weighed by the length of the rows, the sum of
    `compute_ns`, and the `limited_by` of most rows."""
    time_ns = pl.col("end_ns") - pl.col("start_ns")
    columns = ("sm_clock_mhz", "clock_pct", "power_w", "temperature_c", "limited_pct")
    means = [
        ((pl.col(name) * time_ns).sum() / time_ns.filter(pl.col(name).is_not_null()).sum())
        .fill_nan(None)
        .alias(name)
        for name in columns
    ]
    limited_by = pl.col("limited_by").drop_nulls().mode().sort().first()
    keys = ["report", "process", "device"]
    return clocks.group_by(keys).agg(*means, pl.col("compute_ns").sum(), limited_by).sort(keys)


FEWEST_STEPS: Final = 5
"""Of fewer steps a quarter is one, which may be fast by chance."""

SLOWER: Final = 0.98
"""Clocks go by steps of 15 MHz, and vary by one or two without a reason."""

DROPS: Final = pl.Schema(
    {
        "report": pl.String(),
        "process": pl.Int64(),
        "device": pl.Int32(),
        "steps": pl.UInt32(),
        "slow_steps": pl.UInt32(),
        "fast_mhz": pl.Float64(),
        "slow_mhz": pl.Float64(),
        "lost_ns": pl.Float64(),
        "lost_pct": pl.Float64(),
        "limited_by": CLOCK_LIMIT,
    }
)
"""What a lower clock costs, a row per process and device with slow steps (spec §25.4): the mean
clocks of the fast and of the slow steps, what is lost per step in the mean over all steps, and of
the slow steps' compute. `limited_by` is that of most slow steps; null where it is not known."""


def clock_drops(clocks: pl.DataFrame) -> pl.DataFrame:
    """DROPS of the rows of CLOCKS."""
    pair = ["report", "process", "device"]
    steps = clocks.drop_nulls(["step", "sm_clock_mhz"]).with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
    )
    clock, compute, duration = (pl.col(c) for c in ("sm_clock_mhz", "compute_ns", "duration_ns"))
    place = pl.int_range(pl.len()).over(pair)
    fast = place < (pl.len().over(pair) + 3) // 4
    of_fast = [
        each.filter(fast).mean().over(pair).alias(name)
        for name, each in (("fast_mhz", clock), ("fast_compute", compute), ("fast_ns", duration))
    ]
    compared = (
        steps.sort("compute_ns", "step")
        .with_columns(fast.alias("fast"), pl.len().over(pair).alias("steps"))
        .with_columns(*of_fast)
        .filter((pl.col("steps") >= FEWEST_STEPS) & (pl.col("fast_mhz") > 0))
    )
    least = pl.min_horizontal(
        compute * (1 - clock / pl.col("fast_mhz")),
        compute - pl.col("fast_compute"),
        duration - pl.col("fast_ns"),
    )
    slow = (clock <= SLOWER * pl.col("fast_mhz")) & (least > 0)
    return (
        compared.with_columns(least.alias("lost"))
        .filter(slow)
        .group_by(pair)
        .agg(
            pl.col("steps").first(),
            pl.len().alias("slow_steps"),
            pl.col("fast_mhz").first(),
            clock.mean().alias("slow_mhz"),
            (pl.col("lost").sum() / pl.col("steps").first()).alias("lost_ns"),
            percent(pl.col("lost").sum(), compute.sum()).alias("lost_pct"),
            pl.col("limited_by").drop_nulls().mode().sort().first(),
        )
        .sort(pair)
        .match_to_schema(DROPS)
    )


TABLES: Final = (
    Table(
        name="clocks",
        schema=CLOCKS,
        make=clock_table,
        csv="with rows",
        json_key="clocks",
        page_rows=3,
        full_rows=10,
        filled_by="record with nsysflow profile, which samples the clocks of NVIDIA's GPUs",
        shown=(
            "device step sm_clock_mhz compute_ns clock_pct power_w temperature_c limited_by "
            "limited_pct lowest_mhz highest_mhz memory_clock_mhz report process"
        ),
    ),
)
