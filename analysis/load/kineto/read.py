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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kernel_names import VERSION, short_kernel_name
from nsysflow.analysis.load.kineto.captured import captured_operators
from nsysflow.analysis.load.kineto.collectives import collectives
from nsysflow.analysis.load.kineto.document import (
    Args,
    Document,
    Event,
    OddEvent,
    args_of,
    decoded_document,
    frame_of,
    gpus_of,
    int_of,
    rank_of,
    span_ns,
    wait_args_of,
)
from nsysflow.analysis.load.kineto.engine_frames import engine_frames
from nsysflow.analysis.load.kineto.graph_annotations import graph_annotations
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
from nsysflow.analysis.load.other_formats import not_a_trace
from nsysflow.analysis.schema import ID_MASK
from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.base.errors import Damaged
from nsysflow.base.names import printable, some_of
from nsysflow.runtime.recorders import original_name

_CALLS: Final = ("cuda_runtime", "cuda_driver")
_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
HOST: Final = (*_CALLS, "cpu_op", "python_function", "user_annotation")
"""Categories of what the host did."""

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
        Damaged: it is truncated, or an event has no usable time.
    """
    content = path.read_bytes()
    document = _document(content, shown)
    events = _by_category(document)
    if not any(events.get(category) for category in (*HOST, *_GPU)):
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
        raise Damaged(
            f"{shown} is truncated or corrupt: its {len(content)} bytes are not JSON ({error})",
            *_WRITE_AGAIN,
        ) from None


def _by_category(document: Document) -> dict[str, list[Event]]:
    """The events with a duration by category, and those that name threads as `thread_name`."""
    events: dict[str, list[Event]] = defaultdict(list)
    for event in document.events:
        if not isinstance(event, Event):
            continue
        if event.ph == "X":
            category = str(event.cat).lower()
            events[_RENAMED.get(category, category)].append(event)
        elif event.name == "thread_name":
            events["thread_name"].append(event)
    return events


def trace_of_events(
    document: Document, events: Mapping[str, list[Event]], report: str, folder: Path
) -> Trace:
    """What the events of each category say; `document` has what stands beside them. Traces of
    captures may lie in `folder`.

    Raises:
        OddEvent: an event is not as torch.profiler writes it.
    """
    keys = thread_keys(event for category in HOST for event in events.get(category, ()))
    process = _main_process(keys)
    calls = _calls([e for category in _CALLS for e in events.get(category, ())], keys)
    kernels, copies, memsets = (_with_args(events.get(category, ())) for category in _GPU)
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
    said = [args for _, args in (*kernels, *copies, *memsets)]
    graph_nodes, graph_ranges = graph_annotations(ops, said)
    capture = capture_in(document.ours)
    captures = {} if capture is None else {process: capture}  # a trace is of one process
    return Trace(
        report=report,
        ops=ops,
        shapes=frame_of((_shape(args) for _, args in kernels), schema.SHAPES),
        copy_details=frame_of((_copy_detail(*copy) for copy in copies), schema.COPY_DETAILS),
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
        running=stretches,
        frames=frames,
        captures=capture_rows(captures),
        flops=flops_rows(captures),
        collector="kineto",
        source=f"torch.profiler (Kineto), schema {document.schema_version}",
        notes=(
            *_notes(document, ops, ranges),
            *from_captures,
            *on_functions,
        ),
    )


def _main_process(keys: ThreadKeys) -> int | None:
    """The process with most threads; None without any."""
    busiest = Counter(key & ~ID_MASK for key in keys.values()).most_common(1)
    return busiest[0][0] if busiest else None


def _with_args(events: Iterable[Event]) -> list[tuple[Event, Args]]:
    return [(event, args_of(event)) for event in events]


def _operators(events: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """PyTorch's operators, and our automatic ranges, which torch.profiler takes for operators."""
    operators: list[Event] = []
    automatic: list[Event] = []
    for event in events:
        (automatic if _is_automatic(event) else operators).append(event)
    return operators, automatic


def _ops(
    kernels: list[tuple[Event, Args]],
    copies: list[tuple[Event, Args]],
    memsets: list[tuple[Event, Args]],
    calls: pl.DataFrame,
    process: int | None,
) -> pl.DataFrame:
    """`schema.OPS`, each in the process that launched it; where that is unknown, in `process`."""
    launched = _processes(calls)
    ops = [
        *(_op("kernel", row, *kernel) for row, kernel in enumerate(kernels)),
        *(_op("memcpy", row, *copy) for row, copy in enumerate(copies)),
        *(_op("memset", None, *memset) for memset in memsets),
    ]
    rows = ((*op[:4], launched.get(op[5], process), *op[4:]) for op in ops)
    return frame_of(rows, schema.OPS)


def _processes(calls: pl.DataFrame) -> dict[int, int]:
    """The process of each correlation id."""
    return dict(calls.select("correlation", "process").drop_nulls().iter_rows())


def _waits(
    events: Iterable[Event], calls: pl.DataFrame, process: int | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`schema.EVENT_RECORDS` and `schema.WAITS`. A record is known by the call that made it, and
    only if something waits for it."""
    called = _processes(calls)
    records: dict[tuple[int | None, ...], None] = {}
    waits = []
    for event in events:
        args = wait_args_of(event)
        numbers = (args.device, args.correlation, args.stream, args.recorded_on, args.record)
        device, correlation, stream, recorded_on, record = map(int_of, numbers)
        who = called.get(correlation or 0, process)
        record = record if record and record > 0 else None
        if record is not None:
            records[who, device, record, _stream(recorded_on), record] = None
        waits.append((who, device, correlation or None, _stream(stream), record))
    return frame_of(records, schema.EVENT_RECORDS), frame_of(waits, schema.WAITS)


def _stream(number: int | None) -> int | None:
    """A stream's number; -1 and the largest one stand for none."""
    return number if number is not None and 0 <= number < _NO_STREAM else None


def _op(kind: str, row: int | None, event: Event, args: Args) -> tuple[Any, ...]:
    """An operation as in `schema.OPS`, without its process."""
    name = str(event.name)
    if kind == "memcpy":
        name = f"memcpy {_copy_detail(event, args)[1]}"
    elif kind == "memset":
        name = "memset"
    device = int_of(event.pid if args.device is None else args.device)
    if device is None:
        raise OddEvent(f"no device ({name!r})")
    return (
        kind,
        *span_ns(event),
        device,
        int_of(args.stream if args.original_stream is None else args.original_stream),
        int_of(args.correlation) or None,
        int_of(args.graph_node) or None,
        name,
        short_kernel_name(name) if kind == "kernel" else name,
        row,
    )


def _shape(args: Args) -> tuple[int | None, ...]:
    def three(sizes: object) -> list[int | None]:
        if not isinstance(sizes, list) or len(sizes) != 3:
            return [None] * 3
        return [int_of(size) for size in sizes]

    return (
        *three(args.grid),
        *three(args.block),
        int_of(args.registers),
        int_of(args.shared_memory),
    )


def _copy_detail(event: Event, args: Args) -> tuple[Any, ...]:
    """Bytes, direction and memory kinds, from a name such as `Memcpy HtoD (Pageable -> Device)`."""
    match = _COPY.match(str(event.name))
    direction, *sides = match.groups() if match else ("unknown", None, None)
    return (int_of(args.bytes), direction, *(_memory(side) for side in sides))


def _memory(side: str | None) -> str | None:
    return None if side is None else _MEMORY.get(side.lower(), "unknown")


def _calls(events: list[Event], keys: ThreadKeys) -> pl.DataFrame:
    rows = (
        (
            *span_ns(event),
            *on_thread(event, keys),
            int_of(args_of(event).correlation) or None,
            VERSION.sub("", str(event.name)),
        )
        for event in events
    )
    return frame_of(rows, schema.CALLS)


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


def _notes(document: Document, ops: pl.DataFrame, ranges: pl.DataFrame) -> tuple[Note, ...]:
    notes = []
    events = (event for event in document.events if isinstance(event, Event))
    if names := sorted({printable(str(one.name))[:40] for one in events if one.ph == "C"}):
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
