"""Parts that only some exports have: Python stacks, NCCL's messages, and sampled GPU counters.

Each is a few rows of a large table, and other tables say which rows. So these are read last.
"""

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.nsys_export.labels import nvtx_event_types
from nsysflow.analysis.load.nsys_export.messages import NCCL
from nsysflow.analysis.load.nsys_export.python_stacks import BACKTRACE, SAMPLE
from nsysflow.analysis.load.nsys_export.raw import Raw
from nsysflow.analysis.load.nsys_export.tables import SAMPLED, Table

GPU_INDEX: Final = 0xFF
"""The bits of a `typeId` that hold the GPU's number, as nsys's own recipes read it."""

_PERCENT: Final = r"(?: \[Throughput %\])?$"
METRIC_NAMES: Final = {
    "sm_active_pct": rf"(?i)^SMs? Active{_PERCENT}",
    "sm_issue_pct": rf"(?i)^SM Issue(?: Active)?{_PERCENT}",
    "tensor_active_pct": rf"(?i)^Tensor Active(?: / FP16 Active)?{_PERCENT}",
    "dram_read_pct": rf"(?i)^[DV]RAM Read (?:Bandwidth|Throughput){_PERCENT}",
    "dram_write_pct": rf"(?i)^[DV]RAM Write (?:Bandwidth|Throughput){_PERCENT}",
}
"""nsys's names of each counter; chips and versions differ (docs/facts.md). Older versions leave out
`[Throughput %]`; other units in brackets are other counters."""

Where = Mapping[str, list[int]]
"""The rows of a table to read: each column must have one of its values."""

Read = Callable[[Table, Where], pl.DataFrame]
"""Reads those rows of a table."""


def read_sampled(frames: Mapping[str, pl.DataFrame], read: Read) -> dict[str, pl.DataFrame]:
    """The fields of `Raw` in `SAMPLED`, from its other fields."""
    found = {field: table.columns.to_frame() for field, table in SAMPLED.items()}
    types = nvtx_event_types(frames["event_types"])
    for field, event, name in (
        ("backtraces", "NvtxMark", BACKTRACE),
        ("python_samples", "NvtxMark", SAMPLE),
        ("messages", "NvtxPushPopRange", NCCL),
    ):
        domains = domains_called(name, frames["nvtx"], frames["event_types"], frames["strings"])
        if domains:
            wanted = {"eventType": [types[event]], "domainId": domains}
            found[field] = _with_texts(read(SAMPLED[field], wanted), frames["strings"])
    metrics = wanted_metrics(frames["gpu_metric_names"])
    if not metrics.is_empty():
        wanted = {column: metrics[column].unique().to_list() for column in ("typeId", "metricId")}
        found["gpu_samples"] = read(SAMPLED["gpu_samples"], wanted)
    return found


def _with_texts(rows: pl.DataFrame, strings: pl.DataFrame) -> pl.DataFrame:
    """`rows` with their texts from StringIds as `jsonText`: a packed report keeps stacks there."""
    ids = rows.select(id=pl.col("jsonTextId").unique().drop_nulls())
    if ids.is_empty():
        return rows
    texts = strings.join(ids, on="id", how="semi").unique("id", keep="first")
    named = rows.join(texts, left_on="jsonTextId", right_on="id", how="left", maintain_order="left")
    text = pl.col("value").cast(pl.Categorical)
    return named.with_columns(jsonText=pl.coalesce("jsonText", text)).select(rows.columns)


def domains_called(
    name: str, nvtx: pl.DataFrame, event_types: pl.DataFrame, strings: pl.DataFrame
) -> list[int]:
    """The ids of the NVTX domains of that name, in any case."""
    created = nvtx.filter(pl.col("eventType") == nvtx_event_types(event_types)["NvtxDomainCreate"])
    named = created.join(strings, left_on="textId", right_on="id", how="left")
    ours = named.filter(pl.coalesce("text", "value").str.to_lowercase() == name.lower())
    return ours["domainId"].drop_nulls().unique().sort().to_list()


def wanted_metrics(names: pl.DataFrame) -> pl.DataFrame:
    """`typeId`, `metricId` and `metric` (one of `schema.METRICS`) of the counters that we read."""
    if names.is_empty():
        return _WANTED.to_frame()
    name = pl.col("metricName").str.strip_chars()
    metric = pl.coalesce(
        pl.when(name.str.contains(pattern)).then(pl.lit(metric))
        for metric, pattern in METRIC_NAMES.items()
    )
    return (
        names.select("typeId", "metricId", metric.alias("metric"))
        .drop_nulls()
        .unique(["typeId", "metricId"], keep="first", maintain_order=True)
    )


_WANTED: Final = pl.Schema({"typeId": pl.Int64(), "metricId": pl.Int64(), "metric": pl.String()})


def gpu_samples(raw: Raw) -> pl.DataFrame:
    """`schema.GPU_SAMPLES`: a row per GPU and time, a column per counter."""
    if raw.gpu_samples.is_empty():
        return schema.GPU_SAMPLES.to_frame()
    metrics = wanted_metrics(raw.gpu_metric_names)
    named = raw.gpu_samples.join(metrics, on=["typeId", "metricId"])
    metric = pl.col("metric")
    # NaN and infinity become null
    percent = (pl.col("value") + 0.5).floor().cast(pl.Int64, strict=False)
    return (
        named.group_by(
            pl.col("timestamp").alias("time_ns"),
            (pl.col("typeId") & GPU_INDEX).cast(pl.Int32).alias("device"),
        )
        .agg(percent.filter(metric == name).max().alias(name) for name in schema.METRICS)
        .sort("device", "time_ns")
        .match_to_schema(schema.GPU_SAMPLES)
    )
