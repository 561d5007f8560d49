"""Parts that only some exports have: Python backtraces of CUDA calls, NCCL's messages, and sampled
GPU counters.

Each is a few rows of a large table, and other tables say which rows. So these are read last.
"""

import html
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.decoding import decoded_or_none
from nsysflow.analysis.load.nsys_export.labels import nvtx_event_types
from nsysflow.analysis.load.nsys_export.messages import NCCL
from nsysflow.analysis.load.nsys_export.raw import Raw
from nsysflow.analysis.load.nsys_export.tables import SAMPLED, Table

BACKTRACE: Final = "Python Backtrace on CUDA"
"""The NVTX domain of the backtraces, and the key of their JSON."""

GPU_INDEX: Final = 0xFF
"""The bits of a `typeId` that hold the GPU's number, as nsys's own recipes read it."""

_StringId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
_Line = Annotated[int, msgspec.Meta(gt=-(1 << 31), lt=1 << 31)]


class _Frame(msgspec.Struct):
    function: _StringId = msgspec.field(name="Function")
    file: _StringId = msgspec.field(name="File")
    line: _Line = msgspec.field(name="Line")


class _Stack(msgspec.Struct):
    frames: list[_Frame] = msgspec.field(name="Frames")


class _Backtrace(msgspec.Struct):
    stack: _Stack = msgspec.field(name=BACKTRACE)


_BACKTRACE: Final = msgspec.json.Decoder(_Backtrace, strict=False)

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
    """`typeId`, `metricId` and `metric` (one of `schema.METRICS`) of the counters that we read."""
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
    """`schema.BACKTRACES` and `schema.FRAMES`.

    Each distinct text is parsed once: a training loop has some dozens, however long it runs.
    """
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
    """Ids of file, line and function of each frame; none if `text` is not a backtrace."""
    found = decoded_or_none(_BACKTRACE, text)
    frames = found.stack.frames if found is not None else []
    return tuple((frame.file, frame.line, frame.function) for frame in frames)


def slim_backtrace(text: str) -> str | None:
    """A backtrace with only the parts that we read; None if `text` is not one."""
    found = decoded_or_none(_BACKTRACE, text)
    return msgspec.json.encode(found).decode() if found is not None and found.stack.frames else None


def _frames(
    numbers: Mapping[tuple[tuple[int, int, int], ...], int], strings: pl.DataFrame
) -> pl.DataFrame:
    """`schema.FRAMES` of the stacks, without the HTML escapes that nsys puts into strings."""
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
    """`schema.GPU_SAMPLES`: a row per GPU and time, a column per counter."""
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
