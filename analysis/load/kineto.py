"""A torch.profiler (Kineto, Chrome) trace as canonical frames.

Ranges are the `record_function` ones (`user_annotation`): what a person named. The `cpu_op` events
are one per operator, thousands a step, and would bury the phases; they are left out, as
`gpu_user_annotation` is, which repeats the ranges by GPU time. What such a trace does not hold
(GPU uuid, bandwidth, diagnostics) is null or empty.

Times are the file's own `ts`, microseconds with three decimals, kept exact: read as float64 they
lose nanoseconds above 8.8e12.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.keys import ID_BITS, ID_MASK
from nsysflow.analysis.load.kernel_names import short_kernel_name
from nsysflow.analysis.load.kineto_event import (
    Event,
    OddEvent,
    args_of,
    int_of,
    span_ns,
    thread_of,
)
from nsysflow.analysis.load.marks import capture_in
from nsysflow.analysis.load.raw import API_SUFFIX
from nsysflow.analysis.trace import Trace
from nsysflow.errors import Damaged, NotAReport
from nsysflow.handshake import KEY, unspelled

_CALLS: Final = ("cuda_runtime", "cuda_driver")
_GPU: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST: Final = (*_CALLS, "cpu_op", "user_annotation")
_RENAMED: Final = {
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}
"""Names of the first versions of Kineto, which wrote all of them with a capital."""

_COPY: Final = re.compile(r"Memcpy (\w+)(?: \((.+) -> (.+)\))?")
_THREAD: Final = re.compile(r"\((.*)\)\s*$")
_MEMORY: Final = {"device static": "device", "managed static": "managed"}
_WRITE_AGAIN: Final = (
    "Write one from the program:\n  profiler.export_chrome_trace('run.pt.trace.json')"
)

_Keys = Mapping[tuple[object, object], int]
"""Thread keys by (pid, tid) as the trace has them."""


def read_kineto(path: Path, shown: str, report: str) -> Trace:
    """The trace at `path`, which messages call `shown`.

    Raises:
        NotAReport: it is JSON, but no torch.profiler trace.
        Damaged: it is no whole JSON, or an event has no usable time.
    """
    document = _parsed(path, shown)
    if isinstance(document, list):
        document = {"traceEvents": document}
    events = document.get("traceEvents") if isinstance(document, dict) else None
    by_category = _by_category(events) if isinstance(events, list) else {}
    if not any(by_category.get(category) for category in (*_HOST, *_GPU)):
        msg = (
            f"{shown} is JSON, but not a trace of torch.profiler: it has none of its events."
            f" {_WRITE_AGAIN}"
        )
        raise NotAReport(msg)
    try:
        return _trace_of(document, by_category, report)
    except OddEvent as error:
        msg = f"{shown} is corrupt: an event has {error}. {_WRITE_AGAIN}"
        raise Damaged(msg) from None


def _parsed(path: Path, shown: str) -> Any:  # noqa: ANN401
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        return json.loads(text, parse_float=Decimal, strict=False)
    except (ValueError, RecursionError) as error:
        msg = (
            f"{shown} is truncated or corrupt: {len(text)} characters of JSON that do not parse"
            f" ({error}). {_WRITE_AGAIN}"
        )
        raise Damaged(msg) from None


def _by_category(events: list[Any]) -> dict[str, list[Event]]:
    """The events that last (`ph` X) by category, and the thread names under `thread_name`."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if not isinstance(event, dict):
            continue
        if event.get("ph") == "X":
            category = str(event.get("cat")).lower()
            found[_RENAMED.get(category, category)].append(event)
        elif event.get("name") == "thread_name":
            found["thread_name"].append(event)
    return found


def _trace_of(document: Event, events: Mapping[str, list[Event]], report: str) -> Trace:
    keys = _thread_keys(event for category in _HOST for event in events.get(category, ()))
    calls = _calls([e for category in _CALLS for e in events.get(category, ())], keys)
    ranges = _ranges(events.get("user_annotation", []), keys, ours=KEY in document)
    launched = dict(calls.select("correlation", "process").drop_nulls().iter_rows())
    busiest = Counter(key & ~ID_MASK for key in keys.values()).most_common(1)
    process = busiest[0][0] if busiest else None
    kernels = events.get("kernel", [])
    copies = events.get("gpu_memcpy", [])
    ops = [
        *(_op("kernel", row, event) for row, event in enumerate(kernels)),
        *(_op("memcpy", row, event) for row, event in enumerate(copies)),
        *(_op("memset", None, event) for event in events.get("gpu_memset", ())),
    ]
    ops_frame = _frame(((*op[:4], launched.get(op[5], process), *op[4:]) for op in ops), schema.OPS)
    return Trace(
        report=report,
        ops=ops_frame,
        shapes=_frame((_shape(args_of(event)) for event in kernels), schema.SHAPES),
        copy_details=_frame((_copy_detail(event) for event in copies), schema.COPY_DETAILS),
        calls=calls,
        ranges=ranges,
        threads=_threads(events.get("thread_name", []), keys),
        devices=_devices(document.get("deviceProperties"), ops_frame),
        captures=_captures(document, process),
        flops=_flops(document, process),
        source=f"torch.profiler (Kineto), schema {document.get('schemaVersion', 'unknown')}",
        notes=_notes(ops_frame, ranges),
    )


def _frame(rows: Iterable[tuple[Any, ...]], of: pl.Schema) -> pl.DataFrame:
    """Rows as a frame of the given schema; a value that does not fit is an odd event."""
    words = (pl.Categorical, pl.Enum)
    plain = {name: pl.String() if isinstance(t, words) else t for name, t in of.items()}
    try:
        return pl.DataFrame(list(rows), schema=plain, orient="row").cast(of)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise OddEvent("a number that is too large, or a word where a number goes") from error


def _thread_keys(events: Iterable[Event]) -> _Keys:
    """A key for every thread; ids that are no OS tid (pthread handles) get small distinct ones.

    The main thread's tid is the pid and stays so: the lender of phases is told by it.
    """
    pairs = {thread_of(event) for event in events}
    tids: dict[int, list[object]] = defaultdict(list)
    for pid, tid in sorted(pairs, key=repr):
        if isinstance(pid, int):
            tids[pid].append(tid)
    keys: dict[tuple[object, object], int] = {}
    for pid, of_process in tids.items():
        real = {t for t in of_process if isinstance(t, int) and 0 < t <= ID_MASK}
        spare = iter(range(ID_MASK, 0, -1))
        for tid in of_process:
            own = tid if tid in real else next(t for t in spare if t not in real and t != pid)
            keys[pid, tid] = pid << ID_BITS | int(str(own))
    return keys


def _op(kind: str, row: int | None, event: Event) -> tuple[Any, ...]:
    """An operation as in `schema.OPS`, without its process."""
    args = args_of(event)
    name = str(event.get("name"))
    if kind == "memcpy":
        name = f"memcpy {_copy_detail(event)[1]}"
    elif kind == "memset":
        name = "memset"
    device = int_of(args.get("device", event.get("pid")))
    if device is None:
        raise OddEvent(f"no device ({name!r})")
    return (
        kind,
        *span_ns(event),
        device,
        int_of(args.get("stream")),
        int_of(args.get("correlation")) or None,
        int_of(args.get("graph node id")) or None,
        name,
        short_kernel_name(name) if kind == "kernel" else name,
        row,
    )


def _shape(args: Event) -> tuple[int | None, ...]:
    def three(key: str) -> list[int | None]:
        sizes = args.get(key)
        if not isinstance(sizes, list) or len(sizes) != 3:
            return [None] * 3
        return [int_of(size) for size in sizes]

    registers, shared = args.get("registers per thread"), args.get("shared memory")
    return (*three("grid"), *three("block"), int_of(registers), int_of(shared))


def _copy_detail(event: Event) -> tuple[Any, ...]:
    """Bytes, direction and memory kinds, as in `Memcpy HtoD (Pageable -> Device)`."""
    found = _COPY.match(str(event.get("name")))
    direction, *sides = found.groups() if found else ("unknown", None, None)
    return (int_of(args_of(event).get("bytes")), direction, *(_memory(side) for side in sides))


def _memory(side: str | None) -> str | None:
    if side is None:
        return None
    kind = _MEMORY.get(side.lower(), side.lower())
    return kind if kind in schema.MEMORY_KIND.categories else "unknown"


def _api_name(event: Event) -> str:
    return API_SUFFIX.sub("", str(event.get("name")))


def _calls(events: list[Event], keys: _Keys) -> pl.DataFrame:
    rows = []
    for event in events:
        thread = keys.get(thread_of(event))
        process = None if thread is None else thread & ~ID_MASK
        correlation = int_of(args_of(event).get("correlation")) or None
        rows.append((*span_ns(event), process, thread, correlation, _api_name(event)))
    return _frame(rows, schema.CALLS)


def _ranges(events: list[Event], keys: _Keys, *, ours: bool) -> pl.DataFrame:
    rows = []
    for row, event in enumerate(events):
        thread = keys.get(thread_of(event))
        process = None if thread is None else thread & ~ID_MASK
        name = str(event.get("name"))
        name = unspelled(name) if ours else name
        rows.append((*span_ns(event), "push_pop", process, thread, None, name, row))
    return _frame(rows, schema.RANGES)


def _threads(events: list[Event], keys: _Keys) -> pl.DataFrame:
    """One name a thread: of `thread 834 (pt_autograd_0)` and `thread 834 (python3)` PyTorch's."""
    names: dict[int, str] = {}
    for event in events:
        thread = keys.get(thread_of(event))
        text = str(args_of(event).get("name", ""))
        found = _THREAD.search(text)
        name = found[1] if found else text.strip()
        if thread is not None and (thread not in names or name.startswith("pt_")):
            names[thread] = name
    rows = ((thread & ~ID_MASK, thread, name) for thread, name in sorted(names.items()))
    return _frame(rows, schema.THREADS)


def _devices(properties: object, ops: pl.DataFrame) -> pl.DataFrame:
    """The GPUs with operations; `deviceProperties` describes them, and others of the machine."""
    described = (
        [gpu for gpu in properties if isinstance(gpu, dict)] if isinstance(properties, list) else []
    )
    rows = (
        (int_of(gpu.get("id")), gpu.get("name"), None, int_of(gpu.get("numSms")), None)
        for gpu in described
    )
    found = _frame(rows, schema.DEVICES).unique("device", keep="first")
    used = ops.select(pl.col("device").unique())
    return (
        found.join(used, on="device", how="full", coalesce=True).drop_nulls("device").sort("device")
    )


def _captures(document: Event, process: int | None) -> pl.DataFrame:
    """What the steps' own window says of itself; a trace is one process's."""
    about = capture_in(document)
    rows = [] if about is None else [(process, about["capture"], about["unprofiled_step_ns"])]
    return _frame(rows, schema.CAPTURES)


def _flops(document: Event, process: int | None) -> pl.DataFrame:
    """What a step computes, by the window's own word."""
    flops = (capture_in(document) or {}).get("flops", {"phases": {}})
    rows = [(process, phase, count, flops["unit"]) for phase, count in flops["phases"].items()]
    return _frame(rows, schema.FLOPS)


def _notes(ops: pl.DataFrame, ranges: pl.DataFrame) -> tuple[str, ...]:
    notes = []
    if ops.is_empty():
        notes.append(
            "no GPU work in this trace; was it recorded with activities=[…, ProfilerActivity.CUDA]?"
        )
    if ranges.filter(name="unknown").height:
        notes.append(
            'torch.profiler calls a range "unknown" whose name is not ASCII; name it in ASCII, or'
            " by nsysflow.region"
        )
    if ranges.is_empty():
        notes.append("no ranges in this trace; name phases with torch.profiler.record_function")
    return tuple(notes)
