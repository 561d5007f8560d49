"""Which operators captured the kernels of CUDA graphs, by the traces that engines write of their
captures (spec §24.9)."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.engine_names import engine_numbers
from nsysflow.analysis.load.kineto.document import (
    Document,
    Event,
    OddEvent,
    decoded_document,
    frame_of,
    launched_kernel,
    span_ns,
    thread_of,
)
from nsysflow.analysis.load.kineto.operators import Shapes, launches_graph, operators_around
from nsysflow.analysis.load.kineto.running import on_thread, spans_of_threads, thread_keys
from nsysflow.analysis.load.marks import decoded_or_none
from nsysflow.analysis.load.unpacking import content_of
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.base.errors import NsysflowError
from nsysflow.base.names import CAPTURES, capture_files, printable

_DETAILS: Final = "execution_details.json"
_SIZE: Final = re.compile(r"(?:^|_)bs_(\d{1,9})(?:_|\.)")
_RANK: Final = re.compile(r"_rank_?(\d{1,9})(?:_|\.)")
_BY_TOKENS: Final = "execute_"
"""vLLM captures by tokens, other engines by requests."""

_COPIES: Final = ("memcpy", "memset")
_BY_KERNEL: Final = {"__amd_rocclr_copyBuffer": "memcpy", "__amd_rocclr_fillBuffer": "memset"}
"""Kernels by which HIP copies and sets memory."""


class _Detail(msgspec.Struct):
    """A line of the list of captures."""

    file: str
    batch_size: int


_DETAILS_OF: Final = msgspec.json.Decoder(list[_Detail])


@dataclass(frozen=True)
class _Launched:
    """What a graph ran: the name of a kernel, `memcpy` or `memset`, its stream, and the kernel's
    row in SHAPES."""

    name: str
    stream: int | None
    detail: int | None


_Operator = tuple[int, int]
"""An operator: its place among those of a capture, and its shape."""


@dataclass(frozen=True)
class _Captured:
    """What a graph was captured with: the name as above, None if it is not known, and the operator
    around."""

    name: str | None
    operator: _Operator | None


_Graph = Sequence[_Captured]


@dataclass(frozen=True)
class _Capture:
    """A trace of captures.

    Attributes:
        path: the file.
        size: the batch that its graphs have room for.
    """

    path: Path
    size: int

    @property
    def shown(self) -> str:
        """Its name in notes."""
        return f"{CAPTURES}/{printable(self.path.name)}"


def captures_beside(folder: Path, rank: int | None) -> list[Path]:
    """The traces of captures of a rank, or of all if it is not known."""
    files = [file for file in capture_files(folder) if file.name != _DETAILS]
    named = [(file, _RANK.search(file.name)) for file in files]
    return [file for file, of in named if not of or rank in (None, int(of[1]))]


def captured_operators(
    folder: Path,
    rank: int | None,
    ranges: pl.DataFrame,
    calls: pl.DataFrame,
    ops: pl.DataFrame,
    shapes: Shapes,
    first: int,
) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """`schema.OPERATORS` of the kernels of CUDA graphs, and notes on where they are from.

    Args:
        folder: where the trace lies.
        rank: the rank that wrote it.
        ranges: `schema.RANGES`.
        calls: `schema.CALLS`.
        ops: `schema.OPS`.
        shapes: gets the shapes of these operators.
        first: the number of the first operator.
    """
    files = captures_beside(folder, rank)
    launched = _launched(calls, ops) if files else {}
    if not launched:
        return schema.OPERATORS.to_frame(), ()
    captures = list(_with_size(files, folder / CAPTURES / _DETAILS))
    join = _Join(captures, shapes, first)
    for size, launches in _by_step(ranges, calls, launched):
        join.add_step(size, [(key, launched[key]) for key in launches])
    return frame_of(join.rows, schema.OPERATORS), tuple(join.notes())


_Key = tuple[int, int]
"""Process and correlation of a launch."""


def _launched(calls: pl.DataFrame, ops: pl.DataFrame) -> Mapping[_Key, list[_Launched]]:
    """What each launch of a graph ran, in the order of their starts."""
    key = ["process", "correlation"]
    graphs = calls.filter(launches_graph()).select(key).drop_nulls().unique()
    rows = ops.join(graphs, on=key, how="semi").sort("start_ns", maintain_order=True)
    found = defaultdict(list)
    columns = rows.select(*key, "kind", pl.col("name").cast(pl.String), "stream", "detail")
    for process, correlation, kind, name, stream, detail in columns.iter_rows():
        is_kernel = kind == "kernel"
        moved = next((word for start, word in _BY_KERNEL.items() if name.startswith(start)), None)
        called = moved or (name if is_kernel else kind)
        row = detail if is_kernel else None
        found[process, correlation].append(_Launched(called, stream, row))
    return found


def _by_step(
    ranges: pl.DataFrame, calls: pl.DataFrame, launched: Mapping[_Key, object]
) -> Iterator[tuple[int | None, list[_Key]]]:
    """The launches of graphs in each step of an engine, in order, with the batch that it needs
    room for; None outside of one."""
    numbers = engine_numbers(ranges["name"])
    by_tokens = pl.col("name").str.starts_with(_BY_TOKENS)
    size = pl.when(by_tokens).then("tokens").otherwise(pl.coalesce("padded_requests", "requests"))
    steps = (
        ranges.select("thread", "start_ns", "end_ns", "name")
        .hstack(numbers.get_columns())
        .select("thread", "end_ns", size.alias("size"), begun_ns="start_ns")
        .drop_nulls()
        .with_row_index("step")
        .sort("begun_ns", maintain_order=True)
    )
    graphs = calls.filter(launches_graph()).sort("start_ns", maintain_order=True)
    inside = pl.col("start_ns") < pl.col("end_ns")
    at = graphs.select("thread", "process", "correlation", "start_ns").join_asof(
        steps, left_on="start_ns", right_on="begun_ns", by="thread", check_sortedness=False
    )
    at = at.with_columns(pl.when(inside).then(pl.col("step", "size")))
    groups: dict[tuple[Any, Any], list[_Key]] = defaultdict(list)
    for process, correlation, step, of in at.select(
        "process", "correlation", "step", "size"
    ).iter_rows():
        if (process, correlation) in launched:
            alone = (process, correlation) if step is None else None
            groups[of, alone or step].append((process, correlation))
    for (of, _), launches in groups.items():
        yield of, launches


def _with_size(files: Sequence[Path], details: Path) -> Iterator[_Capture]:
    """The captures whose batch size the list beside them, or their name, says."""
    listed = {}
    if details.is_file():
        lines = decoded_or_none(_DETAILS_OF, details.read_bytes()) or []
        listed = {line.file: line.batch_size for line in lines}
    for file in files:
        named = _SIZE.search(file.name)
        size = listed.get(file.name, int(named[1]) if named else None)
        if size is not None:
            yield _Capture(file, size)


class _Join:
    """Gives the kernels of graphs the operators of their captures.

    Attributes:
        rows: `schema.OPERATORS`.
    """

    def __init__(self, captures: Sequence[_Capture], shapes: Shapes, first: int) -> None:
        self.rows: list[tuple[int, int, int, int, int]] = []
        self._captures = captures
        self._shapes = shapes
        self._numbers = count(first)
        self._read: dict[_Capture, list[_Graph] | None] = {}
        self._given: Counter[str] = Counter()
        self._without: Counter[str] = Counter()

    def add_step(
        self, size: int | None, launches: Sequence[tuple[_Key, Sequence[_Launched]]]
    ) -> None:
        """Take the graphs that a step launches, by the smallest captures with room for it."""
        room = {one.size for one in self._captures if size is None or one.size >= size}
        if not room or (size is None and len(room) > 1):
            why = (
                "they are of several batch sizes, and no step says which of them runs"
                if size is None
                else f"no capture has room for a batch of {size}"
            )
            self._without[why] += len(launches)
            return
        why = ""
        for capture in self._captures:
            if capture.size == min(room):
                graphs = self._graphs(capture)
                why = self._misfit(capture, graphs, len(launches))
                if graphs is not None and not why:
                    self._add(capture, graphs, launches)
                    return
        self._without[why] += len(launches)

    def _graphs(self, capture: _Capture) -> list[_Graph] | None:
        """The graphs that were captured, in order; None if the file cannot be read."""
        if capture not in self._read:
            try:
                document = decoded_document(content_of(capture.path))
                self._read[capture] = list(_graphs(document, self._shapes))
            except (NsysflowError, OddEvent, OSError, ValueError, RecursionError):
                self._read[capture] = None  # a note says so, and the trace is whole without it
        return self._read[capture]

    def _misfit(self, capture: _Capture, graphs: list[_Graph] | None, launches: int) -> str:
        """Why a capture is none of so many launches; empty if it can be."""
        if graphs is None:
            return f"{capture.shown} cannot be read"
        if any(one.name is None for graph in graphs for one in graph):
            return f"{capture.shown} does not name the kernels that it captured"
        if len(graphs) not in (1, launches):
            return f"{capture.shown} has {len(graphs)} graphs, and a step launches {launches}"
        return ""

    def _add(
        self,
        capture: _Capture,
        graphs: list[_Graph],
        launches: Sequence[tuple[_Key, Sequence[_Launched]]],
    ) -> None:
        of_launches = graphs if len(graphs) > 1 else graphs * len(launches)
        for (key, ran), graph in zip(launches, of_launches, strict=True):
            joined = _joined(ran, graph)
            if joined is None:
                self._without[f"{capture.shown} captured other kernels"] += 1
                continue
            number: dict[int, int] = defaultdict(self._numbers.__next__)
            self.rows += [(*key, row, number[place], shape) for row, (place, shape) in joined]
            self._given[capture.shown] += len(joined)

    def notes(self) -> Iterator[Note]:
        """Where operators are from, and why kernels have none."""
        for file, kernels in self._given.items():
            text = f"{kernels} kernels of CUDA graphs have their operators from {file}"
            yield Note(NoteKind.CAPTURED_OPERATORS, text)
        for why, launches in self._without.items():
            yield Note(
                NoteKind.CAPTURED_OPERATORS,
                f"the captures in {CAPTURES} give {launches} launches of CUDA graphs no operators:"
                f" {why}",
            )


def _graphs(document: Document, shapes: Shapes) -> Iterator[_Graph]:
    """What was captured from each begin of a capture to its end."""
    events = [event for event in document.events if isinstance(event, Event) and event.ph == "X"]
    calls = [event for event in events if event.cat in ("cuda_runtime", "cuda_driver")]
    operators = [event for event in events if event.cat == "cpu_op"]
    keys = thread_keys({thread_of(event) for event in (*calls, *operators)})
    spans = spans_of_threads(operators, (), keys)
    timed = sorted(((span_ns(call)[0], row) for row, call in enumerate(calls)))
    by_thread: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for start_ns, row in timed:
        process, thread = on_thread(calls[row], keys)
        if process is not None and thread is not None:
            by_thread[thread].append((start_ns, process, row))
    around = {
        row: (place, shape)
        for thread, launches in by_thread.items()
        for place, shape, (_, _, row) in operators_around(
            launches, spans.get(thread, ()), operators, shapes
        )
    }
    graph: list[_Captured] | None = None
    for _, row in timed:
        name = str(calls[row].name)
        if "StreamBeginCapture" in name:
            graph = []
        elif "StreamEndCapture" in name:
            yield graph or []
            graph = None
        elif graph is not None and (captured := _captured(calls[row], name)) is not None:
            graph.append(_Captured(captured or None, around.get(row)))


def _captured(call: Event, name: str) -> str | None:
    """What a call captured: the name of a kernel, empty if it does not say, `memcpy` or `memset`;
    None for nothing."""
    if "LaunchKernel" in name:
        return launched_kernel(call) or ""
    return next((kind for kind in _COPIES if kind in name.lower()), None)


def _joined(ran: Sequence[_Launched], graph: _Graph) -> list[tuple[int, _Operator]] | None:
    """The kernels with an operator: their row and that operator; None where something ran that the
    graph did not capture.

    Kernels of a stream run in the order in which they were captured. So a name has its operators if
    as many ran as were captured, on one stream, or all in operators of one shape.
    """
    captured: dict[str | None, list[_Operator | None]] = defaultdict(list)
    for one in graph:
        captured[one.name].append(one.operator)
    replayed: dict[str, list[_Launched]] = defaultdict(list)
    for each in ran:
        replayed[each.name].append(each)
    if any(len(rows) > len(captured[name]) for name, rows in replayed.items()):
        return None
    joined = []
    for name, rows in replayed.items():
        operators = captured[name]
        one_stream = len({each.stream for each in rows}) == 1
        one_shape = len({of and of[1] for of in operators}) == 1
        if len(rows) == len(operators) and (one_stream or one_shape):
            pairs = zip(rows, operators, strict=True)
            joined += [(of.detail, by) for of, by in pairs if by and of.detail is not None]
    return joined
