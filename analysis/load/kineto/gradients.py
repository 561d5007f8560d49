"""Which operator of the forward pass each operator of the backward pass computes gradients of (spec
§17.14), as the flows of a torch.profiler trace tie them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto.document import Event, OddEvent, frame_of, int_of, time_ns
from nsysflow.analysis.load.kineto.running import Span, ThreadKeys, on_thread

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
