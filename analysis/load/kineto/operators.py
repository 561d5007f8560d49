"""Which operator launched what, and with which shapes, of a trace with `record_shapes=True` (spec
§24.1). And which operator of the forward pass each operator of the backward pass computes gradients
of, as flows tie them (spec §17.14).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto.document import (
    Event,
    OddEvent,
    frame_of,
    int_of,
    operator_args_of,
    time_ns,
)
from nsysflow.analysis.load.kineto.running import Span, ThreadKeys, on_thread

_GRAPHS: Final = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
"""What these launch was shaped when the graph was captured, and not by the operators around."""

Launch = tuple[int, int, int]
"""Start, process and correlation of a call."""


class Shapes:
    """Distinct arguments of operators, each numbered."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, bytes, bytes, bytes, bytes], int] = {}

    def number(self, event: Event) -> int | None:
        """The number of an operator's arguments; None if their shapes were not recorded."""
        args = operator_args_of(event)
        dims = bytes(args.dims) or bytes(args.old_dims)
        if not dims.startswith(b"["):
            return None
        key = (str(event.name), dims, bytes(args.types), bytes(args.strides), bytes(args.concrete))
        return self._numbers.setdefault(key, len(self._numbers))

    def frame(self) -> pl.DataFrame:
        """`schema.OPERATOR_SHAPES`."""
        rows = (
            (name, *(raw.decode("utf-8", "replace") if raw else None for raw in written))
            for name, *written in self._numbers
        )
        return frame_of(rows, schema.OPERATOR_SHAPES)


def operators_of(
    events: Sequence[Event],
    spans: Mapping[int, Sequence[Span]],
    calls: pl.DataFrame,
    ops: pl.DataFrame,
    shapes: Shapes,
) -> pl.DataFrame:
    """`schema.OPERATORS`.

    Args:
        events: the operators, which spans name by their row.
        spans: what ran on each thread, sorted.
        calls: `schema.CALLS`.
        ops: `schema.OPS`; calls without any are left out.
        shapes: gets the shapes of these operators.
    """
    if not events:
        return schema.OPERATORS.to_frame()
    on_threads = calls.filter(pl.col("thread").is_in([*spans]))
    rows = [
        (process, correlation, None, row, shape)
        for thread, launches in _launches(on_threads, ops).items()
        for row, shape, (_, process, correlation) in operators_around(
            launches, spans[thread], events, shapes
        )
    ]
    return frame_of(rows, schema.OPERATORS)


def launches_graph() -> pl.Expr:
    """Whether a call launches a CUDA graph."""
    return pl.col("name").cast(pl.String).str.contains_any([*_GRAPHS])


def _launches(calls: pl.DataFrame, ops: pl.DataFrame) -> Mapping[int, list[Launch]]:
    """The calls that launched something other than a graph, by thread and in order; of one process
    and correlation the outermost (spec §1.8)."""
    key = ["process", "correlation"]
    starts = (
        calls.drop_nulls([*key, "thread"])
        .join(ops.select(key), on=key, how="semi")
        .sort("start_ns", -pl.col("end_ns"))
        .unique(key, keep="first", maintain_order=True)
        .filter(~launches_graph())
    )
    by_thread = starts.select("thread", "start_ns", *key).partition_by("thread", as_dict=True)
    return {thread: rows.drop("thread").rows() for (thread,), rows in by_thread.items()}


def operators_around(
    launches: Sequence[Launch], spans: Sequence[Span], events: Sequence[Event], shapes: Shapes
) -> Iterator[tuple[int, int, Launch]]:
    """Row and shape of the innermost operator with shapes around each launch of a thread that has
    one.

    Args:
        launches: in the order of their starts.
        spans: what ran on the thread, sorted; Python functions among it do not count.
        events: the operators, which spans name by their row.
        shapes: gets the shapes of these operators.
    """
    spans = [span for span in spans if span[2]]
    read: dict[int, int | None] = {}
    open_: list[Span] = []
    at = 0
    for launch in launches:
        while at < len(spans) and spans[at][0] <= launch[0]:
            while open_ and -open_[-1][1] <= spans[at][0]:
                open_.pop()
            open_.append(spans[at])
            at += 1
        for _, minus_end_ns, _, row, _ in reversed(open_):
            if -minus_end_ns <= launch[0]:
                continue
            if row not in read:
                read[row] = shapes.number(events[row])
            shape = read[row]
            if shape is not None:
                yield row, shape, launch
                break


BACKWARD_LINK: Final = "fwdbwd"
"""The category of these flows."""

_EVALUATES: Final = "autograd::engine::evaluate_function"
"""What autograd calls the operator around an operator of the backward pass: it also sums up."""

_ENDS: Final = pl.Schema({"flow": pl.Int64, "thread": pl.Int64, "start_ns": pl.Int64})


def gradients(
    flows: Sequence[Event],
    spans: Mapping[int, Sequence[Span]],
    stretches: pl.DataFrame,
    keys: ThreadKeys,
) -> pl.DataFrame:
    """`schema.GRADIENTS`.

    Args:
        flows: the two ends of each tie; those without a number, a time or a thread are passed over.
        spans: what ran on each thread, sorted.
        stretches: `schema.RUNNING`.
        keys: of the threads.
    """
    forward, backward = (
        frame_of(_ends(flows, side, keys), _ENDS).unique("flow", keep="first") for side in "sf"
    )
    evaluated = frame_of(_evaluated(spans, backward["thread"].unique()), _EVALUATED)
    at = ["thread", "start_ns"]
    began = forward.join(stretches.drop("end_ns"), on=at).select("flow", "stack")
    tied = backward.join(evaluated, on=at).join(began, on="flow").drop("start_ns", "flow")
    return tied.rename({"begin_ns": "start_ns"}).match_to_schema(schema.GRADIENTS)


def _ends(
    flows: Iterable[Event], side: str, keys: ThreadKeys
) -> Iterator[tuple[int | None, int | None, int]]:
    """Number, thread and time of the flows' starts (`s`) or finishes (`f`)."""
    for flow in flows:
        if flow.ph == side:
            with suppress(OddEvent):
                yield int_of(flow.id), on_thread(flow, keys)[1], time_ns(flow.ts)


_EVALUATED: Final = pl.Schema(dict.fromkeys(("thread", "start_ns", "begin_ns", "end_ns"), pl.Int64))


def _evaluated(
    spans: Mapping[int, Sequence[Span]], threads: Iterable[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Thread and start of each operator, and from when to when autograd evaluates it: while the
    last evaluation that began runs, or where that is over the operator itself. Of operators with
    one start the innermost."""
    for thread in threads:
        evaluated: dict[int, tuple[int, int]] = {}
        last = (0, 0)
        for start_ns, minus_end_ns, is_operator, _, name in spans.get(thread, ()):
            if is_operator:
                own = (start_ns, -minus_end_ns)
                last = own if name.startswith(_EVALUATES) else last
                evaluated[start_ns] = last if own[1] <= last[1] else own
        yield from ((thread, start_ns, *times) for start_ns, times in evaluated.items())
