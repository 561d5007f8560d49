"""Our own export for Perfetto (`--perfetto FILE`), read back.

Its slices are the picture of a report (spec §22), of which operations and calls are read. What the
picture lacks or shows otherwise, such as ranges by their recorded names, stands beside it, in
packets with fields that Perfetto skips. `nsysflow.report.perfetto` writes both.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto.document import OddEvent, frame_of
from nsysflow.analysis.load.marks import decoded_or_none
from nsysflow.analysis.load.observations import note_on, observations_of_parts
from nsysflow.analysis.load.pftrace.contents import Contents
from nsysflow.analysis.load.pftrace.names import REPORT_FIELD, ROWS_FIELD
from nsysflow.analysis.load.pftrace.tracks import at_possible_times, slices_of
from nsysflow.analysis.observed import Observation
from nsysflow.analysis.trace import Collector, Note, NoteKind, Trace
from nsysflow.base.errors import NotAReport

FRAMES: Final[Mapping[str, schema.Frame]] = {
    "failed_calls": schema.FAILED_CALLS,
    "ranges": schema.RANGES,
    "gil": schema.GIL,
    "overhead": schema.OVERHEAD,
    "event_records": schema.EVENT_RECORDS,
    "waits": schema.WAITS,
    "graph_nodes": schema.GRAPH_NODES,
    "graph_ranges": schema.RANGES,
    "threads": schema.THREADS,
    "devices": schema.DEVICES,
    "diagnostics": schema.DIAGNOSTICS,
    "messages": schema.MESSAGES,
    "captures": schema.CAPTURES,
    "flops": schema.FLOPS,
    "gpu_samples": schema.GPU_SAMPLES,
    "gpu_states": schema.GPU_STATES,
    "gpu_traffic": schema.GPU_TRAFFIC,
    "thread_cpu": schema.THREAD_CPU,
    "process_cpu": schema.PROCESS_CPU,
    "loader_times": schema.LOADER_TIMES,
    "memory": schema.MEMORY,
    "out_of_memory": schema.OUT_OF_MEMORY,
    "gpu_memory": schema.GPU_MEMORY,
    "operators": schema.OPERATORS,
    "operator_shapes": schema.OPERATOR_SHAPES,
    "backtraces": schema.BACKTRACES,
    "samples": schema.SAMPLES,
    "running": schema.RUNNING,
    "gradients": schema.GRADIENTS,
    "frames": schema.FRAMES,
}
"""The frames of a trace that stand beside the picture."""

FULL_NAME: Final = "full_name"
SHAPE: Final = ("grid", "block", "registers", "shared_bytes")
MEMORY: Final = ("source_memory", "target_memory")
BYTES_MOVED: Final = "bytes"
CORRELATION: Final = "correlation"
GRAPH_NODE: Final = "graph_node"
"""Arguments of slices."""

_WORDS: Final = (FULL_NAME, *SHAPE, *MEMORY)
_NUMBERS: Final = (BYTES_MOVED, CORRELATION, GRAPH_NODE)
ARGUMENTS: Final = frozenset((*_WORDS, *_NUMBERS))

_COPY: Final = "copy "
_COPIED: Final = "memcpy "
_ALONE: Final = ("memset", "graph")


class ExportedLane(msgspec.Struct, array_like=True):
    """A lane of the picture.

    Attributes:
        kind: what it shows, one of `LANE_KIND`.
        first: the number of its first track.
        tracks: how many tracks it has, with numbers that follow each other.
        process: the key of its process, if it is one's.
        thread: the key of its thread, if it is one's.
        device: the GPU of a stream.
        stream: the stream's number.
    """

    kind: str
    first: int
    tracks: int
    process: int | None
    thread: int | None
    device: int | None
    stream: int | None


class ExportedReport(msgspec.Struct):
    """A report of the export.

    Attributes:
        report: its name.
        collector: what recorded the program.
        source: what wrote the report.
        shift_ns: what was added to the times of slices.
        lanes: those of streams and calls.
        notes: what the reader should know of the report: kind and text.
        seen: the modules that notes are about (`Observations`), in their order.
    """

    report: str
    collector: Collector
    source: str
    shift_ns: int
    lanes: list[ExportedLane]
    notes: list[tuple[NoteKind, str]]
    seen: dict[str, msgspec.Raw] = {}


class ExportedRows(msgspec.Struct):
    """Rows of one of `FRAMES`, by column."""

    frame: str
    columns: dict[str, list[Any]]


_REPORT: Final = msgspec.json.Decoder(ExportedReport)
_ROWS: Final = msgspec.json.Decoder(ExportedRows)


def read_exported(contents: Contents, shown: str, report: str) -> Trace:
    """What an export says of its report.

    Raises:
        NotAReport: it is of several reports.
        OddEvent: what stands beside the picture is not as we write it.
    """
    told = contents.names.ours
    reports = [content for field, content in told if field == REPORT_FIELD]
    if len(reports) > 1:
        raise NotAReport(
            f"{shown} is an export of {len(reports)} reports, and only that of one can be read",
            "Write one of each report",
            "nsysflow analyze REPORT --perfetto FILE.pftrace",
        )
    of = decoded_or_none(_REPORT, reports[0])
    if of is None:
        raise OddEvent("no description of its report")
    frames = _frames(content for field, content in told if field == ROWS_FIELD)
    slices = slices_of(contents.events)
    slices = slices.hstack(contents.arguments_of(slices["row"], _NUMBERS, _WORDS))
    slices = slices.with_columns(pl.col("start_ns", "end_ns") - of.shift_ns)
    possible = at_possible_times(slices)
    drawn = _with_lanes(possible, of.lanes)
    ops, calls = (drawn.filter(pl.col("lane") == lane) for lane in ("stream", "calls"))
    impossible = len(slices) - len(possible)
    notes = [*_told(of), *_notes(ops, calls, impossible)]
    ops, calls = (rows.drop_nulls(["end_ns", "name"]) for rows in (ops, calls))
    kinds = ops.with_columns(_kind().alias("kind"))
    parts = [kinds.filter(pl.col("kind") == kind) for kind in schema.OP_KIND.categories]
    trace = Trace(
        report=report,
        ops=pl.concat(_ops(part) for part in parts),
        shapes=_shapes(parts[0]),
        copy_details=_copy_details(parts[1]),
        calls=calls.select(schema.CALLS.names()).match_to_schema(schema.CALLS),
        collector=of.collector,
        source=f"{of.source}, through Perfetto",
        notes=tuple(notes),
    )
    return replace(trace, **frames)  # type: ignore[arg-type]


def _told(of: ExportedReport) -> Iterator[Note]:
    """The notes of the report itself."""
    seen: dict[NoteKind, deque[Observation]] = defaultdict(deque)
    for one in chain.from_iterable(observations_of_parts(of.seen).values()):
        seen[note_on(one).kind].append(one)
    for kind, text in of.notes:
        left = seen[kind]
        yield Note(kind, text, seen=left.popleft() if left else None)


def _frames(told: Iterable[bytes]) -> dict[str, pl.DataFrame]:
    """The frames that stand beside the picture.

    Raises:
        OddEvent: their columns or values are others.
    """
    parts = {name: [frame.to_frame()] for name, frame in FRAMES.items()}
    for content in told:
        rows = decoded_or_none(_ROWS, content)
        if rows is None or rows.frame not in FRAMES or {*rows.columns} != {*FRAMES[rows.frame]}:
            raise OddEvent("rows of an unknown frame")
        frame = FRAMES[rows.frame]
        columns = [rows.columns[name] for name in frame]
        if len({len(column) for column in columns}) > 1:
            raise OddEvent("columns of different lengths")
        parts[rows.frame].append(frame_of(zip(*columns, strict=True), frame))
    return {name: pl.concat(frames) for name, frames in parts.items()}


_LANE: Final = pl.Schema(
    {
        "lane": pl.String(),
        **dict.fromkeys(("first", "tracks"), pl.UInt64()),
        **{name: schema.OPS[name] for name in ("process", "device", "stream")},
        "thread": pl.Int64(),
    }
)


def _with_lanes(slices: pl.DataFrame, lanes: Iterable[ExportedLane]) -> pl.DataFrame:
    """`slices` with what their lane is of, those of a lane.

    Raises:
        OddEvent: a number does not fit.
    """
    rows = (
        (of.kind, of.first, of.tracks, of.process, of.device, of.stream, of.thread) for of in lanes
    )
    known = frame_of(rows, _LANE).sort("first")
    used = slices.select(pl.col("track").unique().sort())
    lane = used.join_asof(known, left_on="track", right_on="first")
    lane = lane.filter(pl.col("track") - pl.col("first") < pl.col("tracks"))
    return slices.join(lane, on="track", maintain_order="left")


def _kind() -> pl.Expr:
    """The kind of an operation, by its name and category."""
    name, category = (pl.col(of).cast(pl.String) for of in ("name", "category"))
    copied = category.str.starts_with(_COPY) & name.str.starts_with(_COPIED)
    return (
        pl.when(copied)
        .then(pl.lit("memcpy"))
        .when((name == category) & name.is_in(_ALONE))
        .then(name)
        .otherwise(pl.lit("kernel"))
        .cast(schema.OP_KIND)
    )


def _ops(rows: pl.DataFrame) -> pl.DataFrame:
    """`schema.OPS` of operations of one kind."""
    detailed = pl.col("kind").cast(pl.String).is_in(["kernel", "memcpy"])
    columns = {
        "name": pl.coalesce(f"{FULL_NAME}_word", "name"),
        "short_name": pl.col("name"),
        "detail": pl.when(detailed).then(pl.int_range(pl.len(), dtype=pl.UInt32)),
    }
    return rows.select(
        columns.get(name, pl.col(name)).cast(dtype).alias(name)
        for name, dtype in schema.OPS.items()
    )


def _shapes(kernels: pl.DataFrame) -> pl.DataFrame:
    """`schema.SHAPES`."""
    words = {name: pl.col(f"{name}_word").cast(pl.String) for name in SHAPE}
    axes = {
        f"{of}_{axis}": words[of].str.split(" x ").list.get(place, null_on_oob=True)
        for of in ("grid", "block")
        for place, axis in enumerate("xyz")
    }
    columns = {**axes, **words}
    return kernels.select(
        columns[name].cast(dtype, strict=False).alias(name) for name, dtype in schema.SHAPES.items()
    )


def _copy_details(copies: pl.DataFrame) -> pl.DataFrame:
    """`schema.COPY_DETAILS`."""
    return copies.select(
        pl.col(BYTES_MOVED),
        pl.col("name").cast(pl.String).str.strip_prefix(_COPIED).alias("direction"),
        *(
            pl.col(f"{of}_word").cast(pl.String).cast(schema.MEMORY_KIND, strict=False).alias(of)
            for of in MEMORY
        ),
    ).match_to_schema(schema.COPY_DETAILS)


def _notes(ops: pl.DataFrame, calls: pl.DataFrame, impossible: int) -> Iterator[Note]:
    if impossible:
        text = f"{impossible} slices were left out: their times are impossible"
        yield Note(NoteKind.UNUSABLE_ROWS, text)
    unended = sum(int(rows["end_ns"].null_count()) for rows in (ops, calls))
    if unended:
        yield Note(
            NoteKind.UNUSABLE_ROWS, f"{unended} operations and calls were left out: they never end"
        )
