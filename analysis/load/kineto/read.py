"""A torch.profiler (Kineto, Chrome) trace as canonical frames.

Ranges are those of `record_function` (`user_annotation`), which a person named, and our automatic
ones. Other operators (`cpu_op`) and Python functions say what the host was running. Left out are
`gpu_user_annotation`, which repeat the ranges in GPU time. What such a trace lacks (GPU uuid,
bandwidth, diagnostics) is null or empty.

Times are the file's own `ts`, microseconds with three decimals, kept exact: as float64 they lose
nanoseconds above 8.8e12.
"""

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto import counters
from nsysflow.analysis.load.kineto.captured import captured_operators
from nsysflow.analysis.load.kineto.collectives import collectives
from nsysflow.analysis.load.kineto.columns import Places, spans_of, words
from nsysflow.analysis.load.kineto.document import (
    CALLS,
    HOST,
    ON_GPU,
    Document,
    Event,
    NoPieces,
    OddEvent,
    args_of,
    as_odd_events,
    decoded_document,
    frame_of,
    gpus_of,
    int_of,
    pieces_of,
    rank_of,
    wait_args_of,
)
from nsysflow.analysis.load.kineto.engine_frames import engine_frames
from nsysflow.analysis.load.kineto.events import Events
from nsysflow.analysis.load.kineto.memory import memory_changes, out_of_memory
from nsysflow.analysis.load.kineto.operators import BACKWARD_LINK, Shapes, gradients, operators_of
from nsysflow.analysis.load.kineto.running import (
    ThreadKeys,
    on_thread,
    running,
    spans_of_threads,
    thread_keys,
)
from nsysflow.analysis.load.kineto.work import PLACED, graph_annotations
from nsysflow.analysis.load.marks import (
    PREFIX,
    capture_in,
    capture_rows,
    flops_rows,
    on_known_threads,
    with_auto_domain,
)
from nsysflow.analysis.load.observations import (
    gave_up_in,
    given_up,
    observation_notes,
    observations_in,
)
from nsysflow.analysis.load.other_formats import another_json, not_a_trace
from nsysflow.analysis.schema import ID_MASK
from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.base.errors import Damaged
from nsysflow.base.names import printable, some_of
from nsysflow.runtime.recorders import original_name

_NO_STREAM: Final = (1 << 32) - 1

_MOST: Final = 4
"""So many categories of other events are named."""
_THREAD: Final = re.compile(r"\((.*)\)\s*$")
_WRITE_AGAIN: Final = (
    "Write one from the program",
    "profiler.export_chrome_trace('run.pt.trace.json')",
)


def read_kineto(path: Path, shown: str, report: str, folder: Path) -> Trace:
    """The trace at `path`, which messages call `shown`. Traces of captures may lie in `folder`.

    Raises:
        NotAReport: it is JSON, but not a trace of torch.profiler.
        Damaged: it is truncated, or has no usable call, or nothing usable that a GPU ran.
    """
    try:
        document, events = _read(path, shown)
        if any(events.counts[category] for category in (*HOST, *ON_GPU)):
            return trace_of_events(document, events, report, folder)
    except OddEvent as error:
        raise Damaged(f"{shown} is corrupt: an event has {error}", *_WRITE_AGAIN) from None
    others = ", ".join(sorted(category[:40] for category in events.counts if category)[:_MOST])
    raise not_a_trace(path.read_bytes(), shown, "it has none of its events", written_by=others)


def _read(path: Path, shown: str) -> tuple[Document, Events]:
    """The trace in pieces, else as a whole."""
    events = Events()
    try:
        for piece in pieces_of(path):
            events.add(piece.events)
    except NoPieces:
        events = Events()
        piece = _document(path.read_bytes(), shown)
        events.add(piece.events)
    return piece, events


def _document(content: bytes, shown: str) -> Document:
    try:
        return decoded_document(content)
    except msgspec.ValidationError as error:
        raise not_a_trace(content, shown, str(error)) from None
    except (ValueError, RecursionError) as error:
        if known := another_json(content, shown):
            raise known from None
        raise Damaged(
            f"{shown} is truncated or corrupt: its {len(content)} bytes are not JSON ({error})",
            *_WRITE_AGAIN,
        ) from None


def trace_of_events(document: Document, events: Events, report: str, folder: Path) -> Trace:
    """What the events of each category say; `document` has what stands beside them. Traces of
    captures may lie in `folder`. Events without a time, a thread or a GPU are left out with a note.

    Raises:
        OddEvent: no call is usable, or nothing that a GPU ran.
    """
    with suppress(OddEvent):  # most traces have none, so events are looked at one by one below
        trace = _trace_of(document, events, report, folder)
        if not events.odd:
            return trace
    left_out = events.leave_out()
    trace = _trace_of(document, events, report, folder)
    note = Note(NoteKind.UNUSABLE_ROWS, f"events were left out: {some_of(left_out, _MOST)}")
    return replace(trace, notes=(note, *trace.notes))


def _trace_of(document: Document, events: Events, report: str, folder: Path) -> Trace:
    """The same of events of which each is usable.

    Raises:
        OddEvent: one is not.
    """
    called = pl.concat([events.rows(category) for category in CALLS])
    kernels, copies, memsets = (events.rows(category) for category in ON_GPU)
    places = Places(events.places)
    for category in HOST:
        places.column(events.kept(category))
    keys = thread_keys(places)
    process = _main_process(keys)
    calls = _calls(called, events.places, keys)
    ops = _ops(kernels, copies, memsets, calls, process)
    operators, automatic = _operators(events.kept("cpu_op"))
    records, waits = _waits(events.kept("cuda_sync"), calls, process)
    opened = [*events.kept("user_annotation"), *automatic]
    ranges = _ranges(opened, keys, ours=bool(bytes(document.ours)))
    of_nccl, messages = collectives(operators, keys, len(ranges))
    functions = events.kept("python_function")
    spans = spans_of_threads(operators, functions, keys)
    stretches, frames = running(spans)
    by_function, on_functions = engine_frames(
        pl.concat([ranges, of_nccl]), spans if functions else {}
    )
    ranges, threadless = on_known_threads(pl.concat([ranges, of_nccl, by_function]))
    shapes = Shapes()
    launching = operators_of(operators, spans, calls, ops, shapes)
    captured, from_captures = captured_operators(
        folder, rank_of(document), ranges, calls, ops, shapes, len(operators)
    )
    named = pl.concat([rows["captured_as"] for rows in (kernels, copies, memsets)])
    graph_nodes, graph_ranges = graph_annotations(ops, named)
    capture = capture_in(document.ours)
    captures = {} if capture is None else {process: capture}  # a trace is of one process
    return Trace(
        report=report,
        ops=ops,
        shapes=kernels.select(*schema.SHAPES),
        copy_details=copies.select(*schema.COPY_DETAILS),
        calls=calls,
        ranges=ranges,
        messages=messages,
        threads=_threads(events.kept("thread_name"), keys),
        devices=_devices(document, ops),
        graph_nodes=graph_nodes,
        graph_ranges=graph_ranges,
        event_records=records,
        waits=waits,
        operators=pl.concat([launching, captured]),
        operator_shapes=shapes.frame(),
        memory=memory_changes(events.kept("memory"), keys, process),
        out_of_memory=out_of_memory(events.kept("memory"), keys, process),
        running=stretches,
        gradients=gradients(events.kept(BACKWARD_LINK), spans, stretches, keys),
        frames=frames,
        gpu_states=counters.gpu_states(document, events.kept("counter")),
        gpu_traffic=counters.gpu_traffic(document),
        thread_cpu=counters.thread_cpu(document, process),
        process_cpu=counters.process_cpu(document, process),
        loader_times=counters.loader_times(document, process),
        captures=capture_rows(captures),
        flops=flops_rows(captures),
        collector="kineto",
        source=f"torch.profiler (Kineto), schema {document.schema_version}",
        notes=(
            *_notes(events.kept("counter"), ops, ranges),
            *from_captures,
            *given_up([gave_up_in(document.ours)]),
            *observation_notes([observations_in(document.ours)]),
            *on_functions,
            *threadless,
        ),
    )


def _main_process(keys: ThreadKeys) -> int | None:
    """The process with most threads; None without any."""
    busiest = Counter(key & ~ID_MASK for key in keys.values()).most_common(1)
    return busiest[0][0] if busiest else None


def _operators(events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """PyTorch's operators, and our automatic ranges, which torch.profiler takes for operators."""
    operators: list[Event] = []
    automatic: list[Event] = []
    for event in events:
        (automatic if _is_automatic(event) else operators).append(event)
    return operators, automatic


def _ops(
    kernels: pl.DataFrame,
    copies: pl.DataFrame,
    memsets: pl.DataFrame,
    calls: pl.DataFrame,
    process: int | None,
) -> pl.DataFrame:
    """`schema.OPS`, each in the process that launched it; where that is unknown, in `process`."""
    row = pl.int_range(pl.len(), dtype=pl.UInt32).alias("detail")
    kinds = (kernels.with_columns(row), copies.with_columns(row), memsets.with_columns(detail=None))
    ops = pl.concat([rows.select(*PLACED, "detail") for rows in kinds], how="vertical_relaxed")
    return _in_processes(ops, calls, process).select(*schema.OPS)


def _in_processes(rows: pl.DataFrame, calls: pl.DataFrame, process: int | None) -> pl.DataFrame:
    """`rows` plus `process`: that of the last call with their correlation id, else `process`."""
    or_else = pl.lit(process, pl.Int64)
    if {*calls["process"].drop_nulls().unique()} <= {process}:
        return rows.with_columns(or_else.alias("process"))
    called = calls.select("correlation", "process").drop_nulls().unique("correlation", keep="last")
    found = rows.join(called, on="correlation", how="left", maintain_order="left")
    return found.with_columns(pl.col("process").fill_null(or_else))


def _waits(
    events: Iterable[Event], calls: pl.DataFrame, process: int | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`schema.EVENT_RECORDS` and `schema.WAITS`. A record is known by the call that made it, and
    only if something waits for it."""
    rows = frame_of(map(_wait, events), _WAIT)
    waits = _in_processes(rows, calls, process)
    records = waits.drop_nulls("record").with_columns(correlation="record", stream="recorded_on")
    return (
        records.select(*schema.EVENT_RECORDS).unique(maintain_order=True),
        waits.select(*schema.WAITS),
    )


_WAIT: Final = pl.Schema(
    {
        "device": pl.Int32,
        **dict.fromkeys(("correlation", "stream", "recorded_on", "record"), pl.Int64),
    }
)


def _wait(event: Event) -> tuple[int | None, ...]:
    args = wait_args_of(event)
    numbers = (args.correlation, args.stream, args.recorded_on, args.record)
    correlation, stream, recorded_on, record = map(int_of, numbers)
    device = int_of(args.device, bits=32)
    record = record if record and record > 0 else None
    return device, correlation or None, _stream(stream), _stream(recorded_on), record


def _stream(number: int | None) -> int | None:
    """A stream's number; -1 and the largest one stand for none."""
    return number if number is not None and 0 <= number < _NO_STREAM else None


def _calls(rows: pl.DataFrame, places: Places, keys: ThreadKeys) -> pl.DataFrame:
    """`schema.CALLS` of `CALLED`; process and thread are null where the pid is no number."""
    with as_odd_events():
        threads = pl.Series([keys.get(place) for place in places], dtype=pl.Int64)
    thread = threads.gather(rows["place"])
    calls = rows.with_columns(thread.alias("thread"), (thread & ~ID_MASK).alias("process"))
    return calls.select(*schema.CALLS)


def _ranges(events: list[Event], keys: ThreadKeys, *, ours: bool) -> pl.DataFrame:
    """`schema.RANGES`; `ours`: names are spelled in ASCII, as nsysflow does for torch.profiler."""
    names = [str(event.name) for event in events]
    if ours:
        names = [original_name(name) for name in names]
    thread = pl.Series([keys.get((event.pid, event.tid)) for event in events], dtype=pl.Int64)
    (name,) = words(names, str)
    ranges = spans_of(events).with_columns(
        (thread & ~ID_MASK).alias("process"), thread.alias("thread"), name.alias("name")
    )
    rest = {"kind": pl.lit("push_pop"), "domain": None, "row": pl.int_range(pl.len())}
    ranges = ranges.with_columns(**rest).select(*schema.RANGES).cast(schema.RANGES)
    return with_auto_domain(ranges)


def _is_automatic(event: Event) -> bool:
    """Whether it is one of our automatic ranges, which torch.profiler takes for operators."""
    return str(event.name).startswith(PREFIX)


def _threads(events: list[Event], keys: ThreadKeys) -> pl.DataFrame:
    """One name per thread: PyTorch's own, `thread 834 (pt_autograd_0)`, if it has several."""
    names: dict[int, str] = {}
    for event in events:
        _, thread = on_thread(event, keys)
        text = str(args_of(event).name or "")
        match = _THREAD.search(text)
        name = match[1] if match else text.strip()
        if thread is not None and (thread not in names or name.startswith("pt_")):
            names[thread] = name
    rows = ((thread & ~ID_MASK, thread, name) for thread, name in sorted(names.items()))
    return frame_of(rows, schema.THREADS)


def _devices(document: Document, ops: pl.DataFrame) -> pl.DataFrame:
    """The GPUs that the trace describes or that an operation ran on."""
    rows = ((gpu.id, gpu.name, None, gpu.sm_count, None) for gpu in gpus_of(document))
    described = frame_of(rows, schema.DEVICES).unique("device", keep="first")
    used = ops.select(pl.col("device").unique())
    return described.join(used, on="device", how="full", coalesce=True).sort("device")


def _notes(values: Iterable[Event], ops: pl.DataFrame, ranges: pl.DataFrame) -> tuple[Note, ...]:
    notes = []
    if names := [printable(name)[:40] for name in counters.unread_counters(values)]:
        notes.append(
            Note(
                NoteKind.OTHER_COUNTERS,
                f"counters in this trace are not read: {some_of(names, _MOST)}",
            )
        )
    if ops.is_empty():
        notes.append(
            Note(
                NoteKind.NO_GPU_WORK,
                "no GPU work in this trace; was it recorded with"
                " activities=[…, ProfilerActivity.CUDA]?",
            )
        )
    if ranges.filter(name="unknown").height:
        notes.append(
            Note(
                NoteKind.NAMELESS_RANGES,
                'torch.profiler writes "unknown" for the name of a range that is not ASCII; name'
                " it in ASCII, or use nsysflow.region",
            )
        )
    if ranges.is_empty():
        notes.append(
            Note(
                NoteKind.NO_RANGES,
                "no ranges in this trace; name phases with torch.profiler.record_function",
            )
        )
    return tuple(notes)
