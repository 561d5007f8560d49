"""A torch.profiler (Kineto, Chrome) trace as canonical frames.

Ranges are those of `record_function` (`user_annotation`), which a person named, and our automatic
ones. Other operators (`cpu_op`) and Python functions say what the host was running. Left out are
`gpu_user_annotation`, which repeat the ranges in GPU time. What such a trace lacks (GPU uuid,
bandwidth, diagnostics) is null or empty.

Times are the file's own `ts`, microseconds with three decimals, kept exact: as float64 they lose
nanoseconds above 8.8e12.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kernel_names import VERSION, short_kernel_name
from nsysflow.analysis.load.kineto import counters
from nsysflow.analysis.load.kineto.captured import captured_operators
from nsysflow.analysis.load.kineto.collectives import collectives
from nsysflow.analysis.load.kineto.columns import (
    ids,
    in_parts,
    ints,
    spans_of,
    threads_of,
    words,
)
from nsysflow.analysis.load.kineto.document import (
    CALLS,
    HOST,
    ON_GPU,
    Args,
    Document,
    Event,
    OddEvent,
    args_of,
    args_of_all,
    decoded_document,
    frame_of,
    gpus_of,
    int_of,
    rank_of,
    span_ns,
    usable_events,
    wait_args_of,
)
from nsysflow.analysis.load.kineto.engine_frames import engine_frames
from nsysflow.analysis.load.kineto.graph_annotations import captured_as, graph_annotations
from nsysflow.analysis.load.kineto.memory import CHANGED, FAILED, memory_changes, out_of_memory
from nsysflow.analysis.load.kineto.operators import Shapes, operators_of
from nsysflow.analysis.load.kineto.running import (
    ThreadKeys,
    on_thread,
    running,
    spans_of_threads,
    thread_keys,
)
from nsysflow.analysis.load.marks import (
    PREFIX,
    capture_in,
    capture_rows,
    flops_rows,
    with_auto_domain,
)
from nsysflow.analysis.load.other_formats import another_json, not_a_trace
from nsysflow.analysis.schema import ID_MASK
from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.base.errors import Damaged
from nsysflow.base.names import printable, some_of
from nsysflow.runtime.recorders import original_name

_RENAMED: Final = {
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}
"""Categories in the first versions of Kineto, which also capitalised all of them."""

_NO_STREAM: Final = (1 << 32) - 1

_COPY: Final = re.compile(r"Memcpy (\w+)(?: \((.+) -> (.+)\))?")
_MOST: Final = 4
"""So many categories of other events are named."""
_THREAD: Final = re.compile(r"\((.*)\)\s*$")
_MEMORY: Final = {
    **{kind: kind for kind in schema.MEMORY_KIND.categories},
    "device static": "device",
    "managed static": "managed",
}
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
    content = path.read_bytes()
    document = _document(content, shown)
    events = _by_category(document)
    if not any(events.get(category) for category in (*HOST, *ON_GPU)):
        others = ", ".join(sorted(category[:40] for category in events if category)[:_MOST])
        raise not_a_trace(content, shown, "it has none of its events", written_by=others)
    try:
        return trace_of_events(document, events, report, folder)
    except OddEvent as error:
        raise Damaged(f"{shown} is corrupt: an event has {error}", *_WRITE_AGAIN) from None


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


def _by_category(document: Document) -> dict[str, list[Event]]:
    """The events with a duration by category, those that name threads as `thread_name`, values of
    counters as `counter`, and those at which memory changed, or could not be had, as `memory`."""
    events: dict[str, list[Event]] = defaultdict(list)
    written: dict[str, list[Event]] = defaultdict(list)
    for event in document.events:
        if not isinstance(event, Event):
            continue
        if event.ph == "X":
            written[str(event.cat)].append(event)
        elif event.name == "thread_name":
            events["thread_name"].append(event)
        elif event.ph == "C":
            events["counter"].append(event)
        elif event.name in (CHANGED, FAILED):
            events["memory"].append(event)
    for category, of_category in written.items():
        plain = category.lower()
        events[_RENAMED.get(plain, plain)] += of_category
    return events


def trace_of_events(
    document: Document, events: Mapping[str, list[Event]], report: str, folder: Path
) -> Trace:
    """What the events of each category say; `document` has what stands beside them. Traces of
    captures may lie in `folder`. Events without a time, a thread or a GPU are left out with a note.

    Raises:
        OddEvent: no call is usable, or nothing that a GPU ran.
    """
    try:
        return _trace_of(document, events, report, folder)
    except OddEvent:  # most traces have none, so events are looked at one by one only here
        usable, left_out = usable_events(events)
        trace = _trace_of(document, usable, report, folder)
        note = Note(NoteKind.UNUSABLE_ROWS, f"events were left out: {some_of(left_out, _MOST)}")
        return replace(trace, notes=(note, *trace.notes))


def _trace_of(
    document: Document, events: Mapping[str, list[Event]], report: str, folder: Path
) -> Trace:
    """The same of events of which each is usable.

    Raises:
        OddEvent: one is not.
    """
    keys = thread_keys(event for category in HOST for event in events.get(category, ()))
    process = _main_process(keys)
    called = [event for category in CALLS for event in events.get(category, ())]
    calls = in_parts(called, schema.CALLS, partial(_calls, keys=keys))
    kernels = in_parts(events.get("kernel", []), _KERNEL, _kernels)
    copies = in_parts(events.get("gpu_memcpy", []), _COPIED, _copies)
    memsets = in_parts(events.get("gpu_memset", []), _PLACED, _memsets)
    ops = _ops(kernels, copies, memsets, calls, process)
    operators, automatic = _operators(events.get("cpu_op", ()))
    records, waits = _waits(events.get("cuda_sync", ()), calls, process)
    opened = [*events.get("user_annotation", []), *automatic]
    ranges = _ranges(opened, keys, ours=bool(bytes(document.ours)))
    of_nccl, messages = collectives(operators, keys, len(ranges))
    functions = events.get("python_function", ())
    spans = spans_of_threads(operators, functions, keys)
    stretches, frames = running(spans)
    by_function, on_functions = engine_frames(
        pl.concat([ranges, of_nccl]), spans if functions else {}
    )
    ranges = pl.concat([ranges, of_nccl, by_function])
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
        threads=_threads(events.get("thread_name", []), keys),
        devices=_devices(document, ops),
        graph_nodes=graph_nodes,
        graph_ranges=graph_ranges,
        event_records=records,
        waits=waits,
        operators=pl.concat([launching, captured]),
        operator_shapes=shapes.frame(),
        memory=memory_changes(events.get("memory", ()), keys, process),
        out_of_memory=out_of_memory(events.get("memory", ()), keys, process),
        running=stretches,
        frames=frames,
        gpu_states=counters.gpu_states(document, events.get("counter", ())),
        gpu_traffic=counters.gpu_traffic(document),
        thread_cpu=counters.thread_cpu(document, process),
        process_cpu=counters.process_cpu(document, process),
        loader_times=counters.loader_times(document, process),
        captures=capture_rows(captures),
        flops=flops_rows(captures),
        collector="kineto",
        source=f"torch.profiler (Kineto), schema {document.schema_version}",
        notes=(
            *_notes(events.get("counter", ()), ops, ranges),
            *from_captures,
            *on_functions,
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


_PLACED: Final = pl.Schema(
    {
        **{name: dtype for name, dtype in schema.OPS.items() if name not in ("process", "detail")},
        "captured_as": pl.String(),
    }
)
"""Of an operation, what its event says; `captured_as` is what the program called it when a graph
was captured."""

_KERNEL: Final = pl.Schema({**_PLACED, **schema.SHAPES})
_COPIED: Final = pl.Schema({**_PLACED, **schema.COPY_DETAILS})


def _kernels(events: Sequence[Event]) -> pl.DataFrame:
    """What the events of kernels say: `_PLACED` and `schema.SHAPES`."""
    args = args_of_all(events)
    names = [str(event.name) for event in events]
    name, short_name = words(names, str, short_kernel_name)
    placed = _placed(events, args, "kernel", name, short_name)
    sizes = {
        "grid": [_three(each.grid) for each in args],
        "block": [_three(each.block) for each in args],
    }
    return placed.with_columns(
        *(
            ints([size[at] for size in each]).alias(f"{what}_{axis}")
            for what, each in sizes.items()
            for at, axis in enumerate("xyz")
        ),
        ints([each.registers for each in args]).alias("registers"),
        ints([each.shared_memory for each in args]).alias("shared_bytes"),
    )


def _three(sizes: object) -> list[Any]:
    """The sizes along three axes; None without them."""
    return sizes if isinstance(sizes, list) and len(sizes) == 3 else [None] * 3


def _copies(events: Sequence[Event]) -> pl.DataFrame:
    """What the events of copies say: `_PLACED` and `schema.COPY_DETAILS`."""
    args = args_of_all(events)
    details = frame_of(map(_copy_detail, events, args), schema.COPY_DETAILS)
    name = details.select(pl.format("memcpy {}", "direction").alias("name"))["name"]
    return _placed(events, args, "memcpy", name, name).hstack(details)


def _memsets(events: Sequence[Event]) -> pl.DataFrame:
    """What the events of memsets say: `_PLACED`."""
    name = pl.repeat("memset", len(events), eager=True)
    return _placed(events, args_of_all(events), "memset", name, name)


def _placed(
    events: Sequence[Event], args: Sequence[Args], kind: str, name: pl.Series, short_name: pl.Series
) -> pl.DataFrame:
    """When and where operations ran, under these names.

    Raises:
        OddEvent: one has no time or no GPU.
    """
    device = ints(
        [
            event.pid if each.device is None else each.device
            for event, each in zip(events, args, strict=True)
        ]
    ).cast(pl.Int32, strict=False)
    if device.null_count():
        raise OddEvent("no GPU")
    stream = [
        each.stream if each.original_stream is None else each.original_stream for each in args
    ]
    return spans_of(events).with_columns(
        pl.lit(kind).alias("kind"),
        device.alias("device"),
        ints(stream).alias("stream"),
        ids([each.correlation for each in args]).alias("correlation"),
        ids([each.graph_node for each in args]).alias("graph_node"),
        name.alias("name"),
        short_name.alias("short_name"),
        captured_as=pl.Series([captured_as(each) for each in args], dtype=pl.String),
    )


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
    ops = pl.concat([rows.select(*_PLACED, "detail") for rows in kinds], how="vertical_relaxed")
    return _in_processes(ops, calls, process).select(*schema.OPS)


def _in_processes(rows: pl.DataFrame, calls: pl.DataFrame, process: int | None) -> pl.DataFrame:
    """`rows` plus `process`: that of the last call with their correlation id, else `process`."""
    called = calls.select("correlation", "process").drop_nulls().unique("correlation", keep="last")
    found = rows.join(called, on="correlation", how="left", maintain_order="left")
    return found.with_columns(pl.col("process").fill_null(pl.lit(process, pl.Int64)))


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


def _copy_detail(event: Event, args: Args) -> tuple[Any, ...]:
    """Bytes, direction and memory kinds, from a name such as `Memcpy HtoD (Pageable -> Device)`."""
    match = _COPY.match(str(event.name))
    direction, *sides = match.groups() if match else ("unknown", None, None)
    return (int_of(args.bytes), direction, *(_memory(side) for side in sides))


def _memory(side: str | None) -> str | None:
    return None if side is None else _MEMORY.get(side.lower(), "unknown")


def _calls(events: Sequence[Event], keys: ThreadKeys) -> pl.DataFrame:
    """`schema.CALLS` of some of the calls, but for the order of columns."""
    names = [str(event.name) for event in events]
    (name,) = words(names, partial(VERSION.sub, ""))
    return spans_of(events).with_columns(
        *threads_of(events, keys),
        ids([args.correlation for args in args_of_all(events)]).alias("correlation"),
        name.alias("name"),
    )


def _ranges(events: list[Event], keys: ThreadKeys, *, ours: bool) -> pl.DataFrame:
    """`schema.RANGES`; `ours`: names are spelled in ASCII, as nsysflow does for torch.profiler."""
    names = [str(event.name) for event in events]
    if ours:
        names = [original_name(name) for name in names]
    rows = (
        (*span_ns(event), "push_pop", *on_thread(event, keys), None, name, row)
        for row, (event, name) in enumerate(zip(events, names, strict=True))
    )
    return with_auto_domain(frame_of(rows, schema.RANGES))


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
