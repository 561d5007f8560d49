"""What only some reports hold: Python backtraces of CUDA calls, what NCCL's ranges say of their
messages, and sampled GPU counters.

All are few rows of a big table, and the other tables say which: they are read last, and not at all
where there are none.
"""

import html
import json
from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.labels import nvtx_event_types
from nsysflow.analysis.load.messages import NCCL
from nsysflow.analysis.load.raw import SAMPLED, Raw, Table

BACKTRACE: Final = "Python Backtrace on CUDA"
"""The NVTX domain of the backtraces, and the key of their JSON."""

GPU_INDEX: Final = 0xFF
"""The bits of a `typeId` that say which GPU, as nsys's own recipes read it."""

_IDS: Final = 1 << 32
_LINES: Final = 1 << 31
"""nsys numbers its strings in 32 bits; no file has more lines."""

_PERCENT: Final = r"(?: \[Throughput %\])?$"
METRIC_NAMES: Final = {
    "sm_active_pct": rf"(?i)^SMs? Active{_PERCENT}",
    "sm_issue_pct": rf"(?i)^SM Issue(?: Active)?{_PERCENT}",
    "tensor_active_pct": rf"(?i)^Tensor Active(?: / FP16 Active)?{_PERCENT}",
    "dram_read_pct": rf"(?i)^[DV]RAM Read (?:Bandwidth|Throughput){_PERCENT}",
    "dram_write_pct": rf"(?i)^[DV]RAM Write (?:Bandwidth|Throughput){_PERCENT}",
}
"""What nsys calls each counter: chips and versions differ (docs/facts.md). `[Throughput %]` is
missing in older versions; other units in brackets are other counters."""

Where = Mapping[str, list[int]]
"""Which rows of a table: those in which each column named has one of its values."""

Read = Callable[[Table, Where], pl.DataFrame]
"""Reads such rows of a table."""


def read_sampled(frames: Mapping[str, pl.DataFrame], read: Read) -> dict[str, pl.DataFrame]:
    """The fields of `Raw` in `SAMPLED`, given the others."""
    found = {field: table.columns.to_frame() for field, table in SAMPLED.items()}
    types = nvtx_event_types(frames["event_types"])
    for field, event, name in (
        ("backtraces", "NvtxMark", BACKTRACE),
        ("messages", "NvtxPushPopRange", NCCL),
    ):
        domains = domains_called(name, frames["nvtx"], frames["event_types"], frames["strings"])
        if domains:
            wanted = {"eventType": [types[event]], "domainId": domains}
            found[field] = read(SAMPLED[field], wanted)
    metrics = wanted_metrics(frames["gpu_metric_names"])
    if not metrics.is_empty():
        wanted = {column: metrics[column].unique().to_list() for column in ("typeId", "metricId")}
        found["gpu_samples"] = read(SAMPLED["gpu_samples"], wanted)
    return found


def domains_called(
    name: str, nvtx: pl.DataFrame, event_types: pl.DataFrame, strings: pl.DataFrame
) -> list[int]:
    """The ids of the NVTX domains of that name, in any case."""
    created = nvtx.filter(pl.col("eventType") == nvtx_event_types(event_types)["NvtxDomainCreate"])
    named = created.join(strings, left_on="textId", right_on="id", how="left")
    ours = named.filter(pl.coalesce("text", "value").str.to_lowercase() == name.lower())
    return ours["domainId"].drop_nulls().unique().sort().to_list()


def wanted_metrics(names: pl.DataFrame) -> pl.DataFrame:
    """`typeId`, `metricId` and `metric` (of `schema.METRICS`) of the counters that we read."""
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


def stacks(raw: Raw) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`schema.BACKTRACES` and `schema.FRAMES`: each distinct text is parsed once (a training loop
    has some dozens of them, however long it runs)."""
    rows = raw.backtraces.drop_nulls("jsonText")
    texts = rows.select(pl.col("jsonText").unique(maintain_order=True)).to_series()
    parsed = [stack_frames(text) for text in texts.cast(pl.String)]
    numbers = {stack: number for number, stack in enumerate(dict.fromkeys(filter(None, parsed)))}
    stack_of = pl.DataFrame(
        {"jsonText": texts, "stack": pl.Series([numbers.get(s) for s in parsed], dtype=pl.UInt32)}
    )
    found = (
        rows.join(stack_of, on="jsonText", maintain_order="left")
        .drop_nulls("stack")
        .rename({"start": "start_ns", "globalTid": "thread"})
        .select(schema.BACKTRACES.names())
    )
    return found, _frames(numbers, raw.strings)


def stack_frames(text: str) -> tuple[tuple[int, int, int], ...]:
    """Ids of file, line and function of each frame of a backtrace; none of other JSON, nor where a
    number is out of range."""
    try:
        found = json.loads(text)[BACKTRACE]["Frames"]
        frames = tuple((int(f["File"]), int(f["Line"]), int(f["Function"])) for f in found)
    except (KeyError, TypeError, ValueError, RecursionError):
        return ()
    usable = all(
        0 <= file < _IDS and 0 <= function < _IDS and abs(line) < _LINES
        for file, line, function in frames
    )
    return frames if usable else ()


def _frames(
    numbers: Mapping[tuple[tuple[int, int, int], ...], int], strings: pl.DataFrame
) -> pl.DataFrame:
    """`schema.FRAMES` of the stacks, their strings as they were before nsys escaped them for
    HTML."""
    ids = {
        number for stack in numbers for file, _, function in stack for number in (file, function)
    }
    named = strings.filter(pl.col("id").is_in(pl.Series(list(ids), dtype=pl.UInt32).implode()))
    text = {number: html.unescape(value) for number, value in named.drop_nulls().iter_rows()}
    rows = [
        (number, depth, text.get(file), line, text.get(function))
        for stack, number in numbers.items()
        for depth, (file, line, function) in enumerate(stack)
    ]
    return pl.DataFrame(rows, schema=schema.FRAMES, orient="row")


def gpu_samples(raw: Raw) -> pl.DataFrame:
    """`schema.GPU_SAMPLES`: a row per GPU and instant, a column per counter."""
    metrics = wanted_metrics(raw.gpu_metric_names)
    named = raw.gpu_samples.join(metrics, on=["typeId", "metricId"])
    metric = pl.col("metric")
    # what is no percentage (NaN, infinity) is not known
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
