"""How much of the GPU phases and kernel classes used while they ran: sampled counters (spec §10).

A sample is a mean over 100 us (at 10 kHz), often longer than a kernel and the pause after it. An
idle GPU has no active SM and moves next to no data, so all of a sample's work was done in the busy
part of it: the rate there is value x length / busy time. Rates are kept in thousandths of a
percent, so that their sums are exact.
"""

from typing import Final

import polars as pl

from nsysflow.analysis.events.activity import BusyTime
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.events.kernel_classes import Rules, class_of
from nsysflow.analysis.frames.columns import median_ns
from nsysflow.analysis.frames.intervals import Axis, merge, on_axis, overlaps
from nsysflow.analysis.phases.attribution import Attribution, instance_spans
from nsysflow.analysis.schema import METRICS
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.selection.windows import clip_rows
from nsysflow.analysis.tables.table import Column, Table, TableSchema, shared

BOUND: Final = pl.Enum(["compute", "memory", "overhead", "latency"])
"""What limits a phase or class, as far as sampled counters show (spec §10)."""

GPU_METRICS_GROUP: Final = pl.Enum(["phase", "class"])
"""What a row of gpu_metrics is about: a phase's path or a class of kernels."""

GPU_METRICS: Final = TableSchema(
    """One row per device and phase (including what is nested in it) or class of kernels; no rows
    where no counter was sampled. `busy_ns` is the time its operations ran within the selection,
    `samples` how many samples cover some of it; the `…_pct` are means over it.""",
    [
        *shared("report device"),
        Column(
            "group",
            GPU_METRICS_GROUP,
            "whether the row is of a phase or of a class of kernels",
        ),
        Column("name", pl.String(), "the phase's path, or the class"),
        Column("busy_ns", pl.Int64(), "time in which its operations run"),
        Column("samples", pl.Int64(), "how many samples cover some of that time"),
        Column(
            "sm_active_pct",
            pl.Float64(),
            "multiprocessors with work, a mean over the time that the row is busy",
        ),
        Column(
            "sm_issue_pct",
            pl.Float64(),
            "how often the multiprocessors issue an instruction, of all they could",
        ),
        Column("tensor_active_pct", pl.Float64(), "how often the tensor cores work"),
        Column("dram_read_pct", pl.Float64(), "reads from GPU memory, of the highest bandwidth"),
        Column("dram_write_pct", pl.Float64(), "writes to GPU memory, of the highest bandwidth"),
        Column(
            "bound",
            BOUND,
            "what limits it, by the counters: compute, memory, overhead or latency",
        ),
    ],
)

BUSY_PCT: Final = 60
"""A counter at 60 % of its peak or more limits the work (spec §10)."""

IDLE_PCT: Final = 30
"""A phase whose GPU idles for 30 % of its span or more is bound by overhead (spec §10)."""

FULL: Final = 100_000
"""100 % in thousandths of a percent, the unit of rates."""

_KEY: Final = ["number", "device_no"]

_OP_COLUMNS: Final = ("node", "kind", "name", "short_name", "device_no", "start_ns", "end_ns")

_MEASURED: Final = pl.Schema(
    {
        "number": pl.UInt32(),
        "device_no": pl.UInt32(),
        "busy_ns": pl.Int64(),
        "samples": pl.Int64(),
        **dict.fromkeys(METRICS, pl.Float64()),
    }
)
"""The counters while the operations of one number (of a path or a class) ran."""


def gpu_metrics_table(view: View) -> pl.DataFrame:
    """The GPU_METRICS table: phases in tree order, then classes, most busy time first."""
    events, attribution, busy, axis = view.events, view.attribution, view.busy, view.events.axis
    if view.trace.gpu_samples.is_empty():
        return GPU_METRICS.to_frame()
    samples = _rates(events, busy)
    lasting = view.timeline.ops.select(*_OP_COLUMNS).filter(pl.col("end_ns") > pl.col("start_ns"))
    parts = clip_rows(lasting, view.windows, axis)
    spans = clip_rows(instance_spans(attribution, lasting), view.windows, axis)
    tables = [
        _phases(attribution, parts, samples, axis).join(_idle(spans, busy, axis), on=_KEY),
        _classes(parts, samples, axis, view.options.kernel_classes),
    ]
    devices = events.devices
    measured = pl.concat(tables, how="diagonal").join(devices, on="device_no")
    return measured.with_columns(_bound()).sort(
        "device", "group", "key", -pl.col("busy_ns"), "name"
    )


def _rates(events: Events, busy: BusyTime) -> pl.DataFrame:
    """Samples with busy time, on the device axis: `sample`, `start`, `end`, and each counter's rate
    during the busy time, in thousandths of a percent."""
    axis, time, thread = events.axis, pl.col("time_ns"), pl.col("device_no")
    devices = events.devices
    following = time.shift(-1).over("device_no")
    period = median_ns(time.diff().over("device_no")).over("device_no")
    covered = (
        events.trace.gpu_samples.join(devices, on="device")
        .sort("device_no", "time_ns")
        .with_columns(pl.min_horizontal(following, time + period).alias("past_ns"))
        .filter(pl.col("past_ns") > time)
        .with_columns((pl.col("past_ns") - time).alias("length_ns"))
    )
    within = (pl.lit(axis.origin_ns), pl.lit(events.last_ns))
    laid = covered.select(
        axis.at(thread, time.clip(*within)).alias("start"),
        axis.at(thread, pl.col("past_ns").clip(*within)).alias("end"),
        "length_ns",
        *METRICS,
    )
    busy_ns = busy.all.between(laid["start"], laid["end"])
    scale = FULL // 100 * pl.col("length_ns")
    return (
        laid.with_columns(busy_ns.alias("busy_ns"))
        .filter(pl.col("busy_ns") > 0)
        .with_columns((pl.col(*METRICS) * scale // pl.col("busy_ns")).clip(0, FULL))
        .drop("length_ns", "busy_ns")
        .with_row_index("sample")
    )


def _phases(
    attribution: Attribution, ops: pl.DataFrame, samples: pl.DataFrame, axis: Axis
) -> pl.DataFrame:
    """The rows of the phases, with `key` (their place in the tree)."""
    placed = ops.drop_nulls("node")
    path = attribution.path_of(placed["node"]).alias("path")
    rows = placed.select("device_no", "start_ns", "end_ns", path)
    levels = [
        _measured(level.rename({"path": "number"}), samples, axis)
        for level in attribution.levels(rows)
    ]
    names = attribution.paths.select(
        pl.col("path").alias("number"), pl.col("joined").alias("name"), "key"
    )
    return (
        pl.concat([_MEASURED.to_frame(), *levels])
        .join(names, on="number")
        .with_columns(pl.lit("phase", GPU_METRICS_GROUP).alias("group"))
    )


def _classes(
    ops: pl.DataFrame, samples: pl.DataFrame, axis: Axis, more_classes: Rules
) -> pl.DataFrame:
    """The rows of the classes of kernels."""
    kernels = ops.filter(pl.col("kind") == "kernel")
    name, short = (pl.col(column).cast(pl.String) for column in ("name", "short_name"))
    classes = kernels.select("name", "short_name").unique("name", maintain_order=True)
    classes = classes.select(class_of(name, short, more_classes).alias("class"), kernel="name")
    numbers = classes.select(pl.col("class").unique(maintain_order=True)).with_row_index("number")
    numbered = classes.join(numbers, on="class").select("kernel", "number")
    rows = kernels.select("device_no", "start_ns", "end_ns", kernel="name")
    return (
        _measured(rows.join(numbered, on="kernel"), samples, axis)
        .join(numbers.rename({"class": "name"}), on="number")
        .with_columns(pl.lit("class", GPU_METRICS_GROUP).alias("group"))
    )


def _measured(ops: pl.DataFrame, samples: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """`_MEASURED` of operations with `number`.

    That is how long those of one number run on a device, and the mean of the samples over it.
    """
    tracks = ops.select(_KEY).unique().with_row_index("track")
    track, device = pl.col("track"), pl.col("device_no")
    laid = ops.join(tracks, on=_KEY).select(
        axis.at(track, pl.col("start_ns")).alias("start"),
        axis.at(track, pl.col("end_ns")).alias("end"),
    )
    running = merge(laid).with_columns(axis.track(pl.col("start")).cast(pl.UInt32).alias("track"))
    start, length = axis.time_ns(pl.col("start")), pl.col("end") - pl.col("start")
    on_device = running.join(tracks, on="track", maintain_order="left").select(
        "track", axis.at(device, start).alias("start"), length.alias("ns")
    )
    on_device = on_device.with_columns((pl.col("start") + pl.col("ns")).alias("end"))
    pieces = overlaps(on_device.drop("ns"), samples)
    share = samples.select("sample", *METRICS)[pieces["other"]]
    ns = pl.col("end") - pl.col("start")
    means = (
        pl.concat([pieces, share], how="horizontal")
        .group_by("track")
        .agg(
            pl.col("sample").n_unique().cast(pl.Int64).alias("samples"),
            *(_mean_pct(pl.col(name), ns).alias(name) for name in METRICS),
        )
    )
    busy_ns = on_device.group_by("track").agg(pl.col("ns").sum().alias("busy_ns"))
    return (
        tracks.join(busy_ns, on="track")
        .join(means, on="track", how="left")
        .with_columns(pl.col("samples").fill_null(0))
        .drop("track")
        .match_to_schema(_MEASURED)
    )


def _mean_pct(rate: pl.Expr, ns: pl.Expr) -> pl.Expr:
    """The mean of `rate` over the time in which it was sampled, in percent; null if it was not."""
    sampled_ns = ns.filter(rate.is_not_null()).sum()
    return pl.when(sampled_ns > 0).then((rate * ns).sum() / (FULL // 100 * sampled_ns))


def _idle(spans: pl.DataFrame, busy: BusyTime, axis: Axis) -> pl.DataFrame:
    """`idle_pct` per path and device: the share of its instances' spans in which nothing runs."""
    at = on_axis(spans, axis)
    length_ns = at["end"] - at["start"]
    idle_ns = length_ns - busy.all.between(at["start"], at["end"])
    return (
        spans.with_columns(length_ns.alias("span_ns"), idle_ns.alias("idle_ns"))
        .group_by(pl.col("path").alias("number"), "device_no")
        .agg((100 * pl.col("idle_ns").sum() / pl.col("span_ns").sum()).alias("idle_pct"))
    )


def _bound() -> pl.Expr:
    """What limits a row; null where nothing was sampled."""
    issued = pl.max_horizontal("sm_issue_pct", "tensor_active_pct")
    moved = pl.sum_horizontal("dram_read_pct", "dram_write_pct")
    rank = {name: pl.lit(number, pl.UInt8) for number, name in enumerate(BOUND.categories)}
    known = issued.is_not_null() & pl.any_horizontal(
        pl.col("dram_read_pct", "dram_write_pct").is_not_null()
    )
    return (
        pl.when(pl.col("samples") == 0)
        .then(None)
        .when(issued >= BUSY_PCT)
        .then(rank["compute"])
        .when(moved >= BUSY_PCT)
        .then(rank["memory"])
        .when(pl.col("idle_pct") >= IDLE_PCT)
        .then(rank["overhead"])
        .when(known)
        .then(rank["latency"])
        .replace_strict(dict(enumerate(BOUND.categories)), return_dtype=BOUND)
        .alias("bound")
    )


TABLES: Final = (
    Table(
        name="gpu_metrics",
        schema=GPU_METRICS,
        make=gpu_metrics_table,
        csv="with rows",
        json_key="gpu_metrics",
        page_rows=3,
        full_rows=20,
        filled_by="record with nsysflow profile --gpu-metrics",
        shown=(
            "name group busy_ns bound sm_active_pct tensor_active_pct device report "
            "dram_read_pct dram_write_pct sm_issue_pct"
        ),
    ),
)
