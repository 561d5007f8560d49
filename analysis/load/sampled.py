"""Parts that only some exports have: Python stacks, NCCL's messages, sampled GPU counters, and
calls that found no memory."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.causes import ALLOCATES, FREES
from nsysflow.analysis.load.export_tables import RETURNED, SAMPLED, Raw, Table
from nsysflow.analysis.load.kernel_names import VERSION
from nsysflow.analysis.load.labels import nvtx_event_types
from nsysflow.analysis.load.marks import NCCL, decoded_or_none

BACKTRACE: Final = "Python Backtrace on CUDA"
"""The NVTX domain of the backtraces, and the key of their JSON."""

SAMPLE: Final = "Python Periodic Sampling"
"""The same of the samples."""

GIL_DOMAIN: Final = "GIL Trace"
"""The NVTX domain of the ranges in which threads hold Python's lock, or wait for it."""

_StringId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
_Line = Annotated[int, msgspec.Meta(gt=-(1 << 31), lt=1 << 31)]

Stack = tuple[tuple[int, int, int], ...]
"""Ids of file, line and function of each frame, innermost first."""


class _Frame(msgspec.Struct):
    function: _StringId = msgspec.field(name="Function")
    file: _StringId = msgspec.field(name="File")
    line: _Line = msgspec.field(name="Line")


class _Stack(msgspec.Struct):
    frames: list[_Frame] = msgspec.field(name="Frames")


class _Recorded(msgspec.Struct, omit_defaults=True):
    backtrace: _Stack | None = msgspec.field(name=BACKTRACE, default=None)
    sample: _Stack | None = msgspec.field(name=SAMPLE, default=None)

    @property
    def frames(self) -> list[_Frame]:
        stack = self.backtrace or self.sample
        return [] if stack is None else stack.frames


_RECORDED: Final = msgspec.json.Decoder(_Recorded, strict=False)


@dataclass(frozen=True, kw_only=True)
class RecordedStacks:
    """The stacks of a report.

    Attributes:
        backtraces: `schema.BACKTRACES`, those of calls.
        samples: `schema.SAMPLES`, those of threads at instants.
        frames: `schema.FRAMES`, of both.
    """

    backtraces: pl.DataFrame
    samples: pl.DataFrame
    frames: pl.DataFrame


def recorded_stacks(raw: Raw, explaining: pl.Series) -> RecordedStacks:
    """The stacks of an export.

    Each distinct text is parsed once: a training loop has some thousands, however long it runs.
    Samples of threads that neither call CUDA nor are known otherwise explain no idle time.

    Args:
        raw: the export.
        explaining: the threads that take the GIL, and those whose CPU time was read.
    """
    if raw.backtraces.is_empty() and raw.python_samples.is_empty():
        return RecordedStacks(
            backtraces=schema.BACKTRACES.to_frame(),
            samples=schema.SAMPLES.to_frame(),
            frames=schema.FRAMES.to_frame(),
        )
    counted = pl.concat([raw.calls["globalTid"], explaining]).unique().to_frame("globalTid")
    samples = raw.python_samples.join(counted, on="globalTid", how="semi", maintain_order="left")
    marks = [frame.drop_nulls("jsonText") for frame in (raw.backtraces, samples)]
    texts = pl.concat(frame["jsonText"] for frame in marks).unique(maintain_order=True)
    parsed = [stack_frames(text) for text in texts.cast(pl.String)]
    numbers = {stack: number for number, stack in enumerate(dict.fromkeys(filter(None, parsed)))}
    stack_of = pl.DataFrame(
        {"jsonText": texts, "stack": pl.Series([numbers.get(s) for s in parsed], dtype=pl.UInt32)}
    )
    backtraces, samples = (
        frame.join(stack_of, on="jsonText", maintain_order="left")
        .drop_nulls(["stack", "globalTid"])
        .select(pl.col("start").alias(time), pl.col("globalTid").alias("thread"), "stack")
        for frame, time in zip(marks, ("start_ns", "time_ns"), strict=True)
    )
    frames = _frames(numbers, raw.strings)
    return RecordedStacks(backtraces=backtraces, samples=samples, frames=frames)


def stack_frames(text: str) -> Stack:
    """The frames of a stack; none if `text` is not one."""
    recorded = decoded_or_none(_RECORDED, text)
    frames = recorded.frames if recorded is not None else []
    return tuple((frame.file, frame.line, frame.function) for frame in frames)


def slim_stack(text: str) -> str | None:
    """A stack with only the parts that we read; None if `text` is not one."""
    recorded = decoded_or_none(_RECORDED, text)
    return (
        msgspec.json.encode(recorded).decode() if recorded is not None and recorded.frames else None
    )


def _frames(numbers: Mapping[Stack, int], strings: pl.DataFrame) -> pl.DataFrame:
    """`schema.FRAMES` of the stacks, without the HTML escapes that nsys puts into strings."""
    columns = {"file": pl.UInt32(), "line": pl.Int64(), "function": pl.UInt32()}
    frames = pl.DataFrame(list(chain.from_iterable(numbers)), schema=columns, orient="row")
    length = pl.Series([len(stack) for stack in numbers], dtype=pl.UInt32)
    stack = pl.int_range(len(length), dtype=pl.UInt32, eager=True).repeat_by(length).explode()
    text = _unescaped(pl.concat([frames["file"], frames["function"]]).unique(), strings)
    return frames.select(
        stack.alias("stack"),
        pl.int_range(pl.len(), dtype=pl.UInt32).over(stack).alias("depth"),
        *(
            pl.col(name).replace_strict(text["id"], text["value"], default=None)
            if name != "line"
            else name
            for name in columns
        ),
    ).match_to_schema(schema.FRAMES)


def _unescaped(ids: pl.Series, strings: pl.DataFrame) -> pl.DataFrame:
    """`id` and `value` of these strings."""
    named = strings.join(ids.to_frame("id"), on="id", how="semi").unique("id", keep="last")
    value = pl.col("value").map_elements(html.unescape, return_dtype=pl.String)
    return named.drop_nulls().with_columns(value)


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
"""nsys's names of each percentage; chips and versions differ (docs/facts.md). Older versions leave
out `[Throughput %]`; other units in brackets are other counters."""

_SM_CLOCK: Final = "sm_clock_mhz"
_COUNTERS: Final = {**METRIC_NAMES, _SM_CLOCK: r"(?i)^GPC Clock Frequency(?: \[M?Hz\])?$"}
"""The same of all counters that are read."""

_HZ: Final = 100_000
"""A clock above it is in Hz: nsys 2025.3 writes 1.98e9 for `GPC Clock Frequency [MHz]`."""

Where = Mapping[str, Sequence[int]]
"""The rows of a table to read: each column must have one of its values."""

Read = Callable[[Table, Where], pl.DataFrame]
"""Reads those rows of a table."""


def read_sampled(frames: Mapping[str, pl.DataFrame], read: Read) -> dict[str, pl.DataFrame]:
    """The fields of `Raw` in `SAMPLED`, from its other fields."""
    tables = {field: table.columns.to_frame() for field, table in SAMPLED.items()}
    types = nvtx_event_types(frames["event_types"])
    for field, event, name in (
        ("backtraces", "NvtxMark", BACKTRACE),
        ("python_samples", "NvtxMark", SAMPLE),
        ("messages", "NvtxPushPopRange", NCCL),
    ):
        domains = domains_called(name, frames["nvtx"], frames["event_types"], frames["strings"])
        if domains:
            wanted = {"eventType": [types[event]], "domainId": domains}
            tables[field] = _with_texts(read(SAMPLED[field], wanted), frames["strings"])
    metrics = wanted_metrics(frames["gpu_metric_names"])
    if not metrics.is_empty():
        wanted = {column: metrics[column].unique().to_list() for column in ("typeId", "metricId")}
        tables["gpu_samples"] = read(SAMPLED["gpu_samples"], wanted)
    if allocating := allocating_names(frames["calls"], frames["strings"]):
        wanted = {"nameId": allocating, RETURNED: [OUT_OF_MEMORY]}
        failed = read(SAMPLED["failed_calls"], wanted)
        tables["failed_calls"] = failed.filter(pl.col(RETURNED) == OUT_OF_MEMORY)
    return tables


OUT_OF_MEMORY: Final = 2
"""What an allocation returns that finds no memory: cudaErrorMemoryAllocation, which is
CUDA_ERROR_OUT_OF_MEMORY and hipErrorOutOfMemory."""


def allocating_names(calls: pl.DataFrame, strings: pl.DataFrame) -> list[int]:
    """The ids of names of calls that allocate. None where no call frees after one of these: nothing
    was tried again, and what calls returned need not be read. (To search 1.3 M calls for it takes
    0.08 s, 4 % of reading their report; a 2-core VM, 2026-11-28.)"""
    allocating, freeing = (
        strings.filter(pl.col("value").str.contains(f"^(?:{names})(?:{VERSION.pattern})?$"))["id"]
        for names in (ALLOCATES, FREES)
    )
    if allocating.is_empty() or freeing.is_empty():
        return []
    first, last = (
        calls["start"].filter(calls["nameId"].is_in(ids.implode())) for ids in (allocating, freeing)
    )
    after = pl.select(pl.lit(first.min()) < pl.lit(last.max())).item()
    return allocating.to_list() if after else []


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
    """`typeId`, `metricId` and `metric` of the counters that we read: one of `schema.METRICS`, or
    `sm_clock_mhz`."""
    if names.is_empty():
        return _WANTED.to_frame()
    name = pl.col("metricName").str.strip_chars()
    metric = pl.coalesce(
        pl.when(name.str.contains(pattern)).then(pl.lit(metric))
        for metric, pattern in _COUNTERS.items()
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
    metric = pl.col("metric")
    percent = _whole(pl.col("value"))
    return (
        _named_samples(raw)
        .filter(metric != _SM_CLOCK)
        .group_by("time_ns", "device")
        .agg(percent.filter(metric == name).max().alias(name) for name in schema.METRICS)
        .sort("device", "time_ns")
        .match_to_schema(schema.GPU_SAMPLES)
    )


def sampled_clocks(raw: Raw) -> pl.DataFrame:
    """`schema.GPU_STATES`: the clock of SMs among nsys's counters."""
    if raw.gpu_samples.is_empty():
        return schema.GPU_STATES.to_frame()
    value, most = pl.col("value"), schema.POSSIBLE_HZ.stop
    mhz = _whole(pl.when(value > _HZ).then(value / 1e6).otherwise(value))
    clocks = _named_samples(raw).filter(pl.col("metric") == _SM_CLOCK, value < most)
    known = clocks.with_columns(mhz.alias(_SM_CLOCK)).filter(pl.col(_SM_CLOCK) >= 0)
    others = [
        pl.lit(None, dtype).alias(name)
        for name, dtype in schema.GPU_STATES.items()
        if name not in ("time_ns", "device", _SM_CLOCK)
    ]
    return known.select("time_ns", "device", _SM_CLOCK, *others).select(schema.GPU_STATES.names())


def _named_samples(raw: Raw) -> pl.DataFrame:
    """The samples of counters that we read: `time_ns`, `device`, `metric`, `value`."""
    metrics = wanted_metrics(raw.gpu_metric_names)
    return raw.gpu_samples.join(metrics, on=["typeId", "metricId"]).select(
        pl.col("timestamp").alias("time_ns"),
        (pl.col("typeId") & GPU_INDEX).cast(pl.Int32).alias("device"),
        "metric",
        "value",
    )


def _whole(value: pl.Expr) -> pl.Expr:
    """Rounded; NaN and infinity become null."""
    return (value + 0.5).floor().cast(pl.Int64, strict=False)
