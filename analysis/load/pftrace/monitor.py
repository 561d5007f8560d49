"""A trace of torch.profiler's monitor in Perfetto's format, as canonical frames.

The host's slices have the categories, names and arguments of the JSON trace, and what a GPU ran are
GpuRenderStageEvents. Both become the events of such a JSON trace, so that they mean the same.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis.load.kineto.document import (
    HOST,
    Args,
    CollectiveArgs,
    Document,
    Event,
    OperatorArgs,
    WaitArgs,
)
from nsysflow.analysis.load.kineto.events import Events
from nsysflow.analysis.load.kineto.read import trace_of_events
from nsysflow.analysis.load.pftrace.contents import Contents
from nsysflow.analysis.load.pftrace.tracks import inherited, slices_of
from nsysflow.analysis.trace import Note, NoteKind, Trace

CATEGORIES: Final = HOST

_SYNC_KIND: Final = "cuda_sync_kind"
"""An argument that only slices of waits have; they have no category."""

_PAIRS: Final = ("device id", "stream id", "correlation", "graph id", "graph node id", "bytes")
_LAUNCH: Final = ("registers_per_thread",)
"""What is read of a stage, beside the fields that it has: pairs of texts, and arguments of the
launch."""
_STRUCTS: Final = (Args, WaitArgs, CollectiveArgs, OperatorArgs)
ARGUMENTS: Final = frozenset(
    (
        *(part.encode_name for of in _STRUCTS for part in msgspec.structs.fields(of)),
        *_PAIRS,
        *_LAUNCH,
        _SYNC_KIND,
    )
)
"""Arguments of slices, and pairs of stages, that are read."""

_NODE_BITS: Final = 32
"""A node's number without its graph's."""


def read_monitor(contents: Contents, report: str, folder: Path) -> Trace:
    """What a trace of torch.profiler's monitor says. Traces of captures may lie in `folder`.

    Raises:
        OddEvent: a number does not fit.
    """
    events: dict[str, list[Event]] = defaultdict(list)
    left_out = _host_events(contents, events) + _gpu_events(contents, events)
    of_trace = Events()
    for category, of_category in events.items():
        of_trace.take(category, of_category)
    trace = trace_of_events(Document(events=[]), of_trace, report, folder)
    notes = [
        *trace.notes,
        Note(
            NoteKind.NOT_CARRIED,
            "PyTorch's Perfetto trace names no GPU, so no peak is known; of a copy it has neither"
            " the direction nor the memory, so none is called pageable; and where two operations"
            " of a stream overlap, it has cut the first. Its JSON trace has all of that. Which node"
            " of a graph waits for which is not read",
        ),
    ]
    if left_out:
        notes.append(
            Note(NoteKind.UNUSABLE_ROWS, f"{left_out} rows were left out: they have no time or end")
        )
    return replace(trace, source="torch.profiler (Perfetto)", notes=tuple(notes))


def _host_events(contents: Contents, events: dict[str, list[Event]]) -> int:
    """Add what the host did, by category; returns how many slices have no time."""
    tracks = contents.names.tracks
    pids = inherited(tracks, {number: track.pid for number, track in tracks.items()})
    tids = inherited(tracks, {number: track.tid for number, track in tracks.items()})
    events["thread_name"] += [
        Event(
            name="thread_name", pid=track.pid, tid=track.tid, args=_encoded({"name": track.title})
        )
        for track in tracks.values()
        if track.pid is not None and track.tid is not None
    ]
    args = _arguments(contents)
    waits = contents.words.filter(pl.col("name") == _SYNC_KIND)["row"]
    category = pl.col("category").cast(pl.String)
    category = (
        pl.when(pl.col("row").is_in(waits.implode())).then(pl.lit("cuda_sync")).otherwise(category)
    )
    slices = slices_of(contents.events).with_columns(category.alias("category"))
    wanted = slices.filter(pl.col("category").is_in([*HOST, "cuda_sync"]))
    usable = wanted.filter(pl.col("start_ns") >= 0, pl.col("end_ns") >= pl.col("start_ns"))
    usable = usable.join(args, on="row", how="left", maintain_order="left")
    rows = usable.select(
        "category",
        pl.col("name").cast(pl.String).fill_null("unknown"),
        "track",
        _microseconds(pl.col("start_ns")).alias("ts"),
        _microseconds(pl.col("end_ns") - pl.col("start_ns")).alias("dur"),
        pl.col("args").fill_null("{}"),
    )
    for of, name, track, ts, dur, arguments in rows.iter_rows():
        events[of].append(_event(name, pids.get(track), tids.get(track), ts, dur, arguments))
    return len(wanted) - len(usable)


def _event(name: str, pid: Any, tid: Any, ts: str, dur: str, args: str) -> Event:
    return Event(
        ph="X",
        name=name,
        pid=_NO_OWNER if pid is None else pid,
        tid=_NO_OWNER if tid is None else tid,
        ts=msgspec.Raw(ts.encode()),
        dur=msgspec.Raw(dur.encode()),
        args=msgspec.Raw(args.encode()),
    )


_NO_OWNER: Final = "none"


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _microseconds(ns: pl.Expr) -> pl.Expr:
    """Times as the JSON trace has them."""
    return pl.format("{}.{}", ns // 1000, (ns % 1000).cast(pl.String).str.zfill(3))


def _arguments(contents: Contents) -> pl.DataFrame:
    """`row` and `args`: the arguments of each event as a JSON object."""
    words = contents.words["value"].unique().cast(pl.String)
    quoted = pl.Series([msgspec.json.encode(word).decode() for word in words], dtype=pl.String)
    word = pl.col("value").cast(pl.String).replace_strict(words, quoted, return_dtype=pl.String)
    values = pl.concat(
        frame.select("row", pl.col("name").cast(pl.String), value.alias("value"))
        for frame, value in (
            (contents.numbers, pl.col("value").cast(pl.String)),
            (contents.words, word),
            (contents.values, pl.col("value")),
        )
    )
    pair = pl.format('"{}":{}', "name", "value")
    return (
        values.group_by("row")
        .agg(pair.str.join(",").alias("args"))
        .with_columns(pl.concat_str(pl.lit("{"), "args", pl.lit("}")).alias("args"))
    )


def _gpu_events(contents: Contents, events: dict[str, list[Event]]) -> int:
    """Add what GPUs ran, by category; returns how many stages have no time."""
    pairs = contents.arguments_of(contents.stages["row"], _LAUNCH, _PAIRS)
    stages = contents.stages.hstack(pairs)
    kind = pl.col("kind").cast(pl.String).fill_null("")
    kernel = (kind == "Kernel") | pl.col("grid_x").is_not_null() | pl.col("kernel").is_not_null()
    category = (
        pl.when(kind.str.starts_with("Memcpy"))
        .then(pl.lit("gpu_memcpy"))
        .when(kind.str.starts_with("Memset"))
        .then(pl.lit("gpu_memset"))
        .when(kernel)
        .then(pl.lit("kernel"))
    )
    stages = stages.with_columns(category.alias("category")).drop_nulls("category")
    longest = pl.lit((1 << 62) - 1)
    usable = stages.filter(pl.col("time_ns").is_between(0, longest), pl.col("duration") <= longest)
    name = pl.coalesce("name", "kernel", "kind").cast(pl.String).fill_null("unknown")
    rows = usable.select(
        "category",
        name.alias("name"),
        _microseconds(pl.col("time_ns")).alias("ts"),
        _microseconds(pl.col("duration").cast(pl.Int64)).alias("dur"),
        _stage_arguments(),
    )
    for of, name_of, ts, dur, args in rows.iter_rows():
        events[of].append(_event(name_of, None, None, ts, dur, args))
    return len(stages) - len(usable)


def _stage_arguments() -> pl.Expr:
    """The arguments of a stage as those of the event in a JSON trace."""

    def number(value: pl.Expr | str) -> pl.Expr:
        column = pl.col(value) if isinstance(value, str) else value
        return column.cast(pl.String).fill_null("null")

    def pair(name: str) -> pl.Expr:
        return pl.col(f"{name}_word").cast(pl.String).cast(pl.Int64, strict=False)

    lane = pl.col("queue").cast(pl.String).str.extract(r"stream (\d{1,9})$").cast(pl.Int64)
    node = pair("graph node id") + (pair("graph id") * (1 << _NODE_BITS)).fill_null(0)
    values = {
        "device": number(
            pl.coalesce(pair("device id"), pl.col("gpu").cast(pl.Int64, strict=False))
        ),
        "stream": number(pl.coalesce(pair("stream id"), lane)),
        "correlation": number(pair("correlation")),
        "graph node id": number(node),
        "bytes": number(pair("bytes")),
        "registers per thread": number("registers_per_thread"),
        **{
            side: pl.format(
                "[{}]", pl.concat_str([number(f"{side}_{of}") for of in "xyz"], separator=",")
            )
            for side in ("grid", "block")
        },
    }
    object_ = ",".join(f'"{name}":{{}}' for name in values)
    return pl.concat_str(pl.lit("{"), pl.format(object_, *values.values()), pl.lit("}")).alias(
        "args"
    )
