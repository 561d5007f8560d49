"""The marks of captured windows (`nsysflow.steps`), JSON objects.

One per process says which steps were captured, how long a step takes without a profiler, and its
FLOPs. In an nsys report it is the text of an NVTX mark, in a Kineto trace a key beside
`traceEvents`. Others, only in nsys reports, list the ranges in which CUDA graphs were captured
before the window opened, and read the clock of their times.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.decoding import decoded_or_none
from nsysflow.base.peaks import UNITS
from nsysflow.runtime.protocol import KEY

_Window = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}(:[0-9]{1,9}){2}\Z")]
_StepNs = Annotated[int, msgspec.Meta(gt=0, le=(1 << 63) - 1)]
_Count = Annotated[int, msgspec.Meta(gt=0, lt=1 << 56)]
"""FLOPs of a phase: sums of 128 of them fit 64 bits, and an H200 needs 70 s for so many."""


class Flops(msgspec.Struct):
    """The FLOPs of a step by phase, in arithmetic of type `unit`."""

    unit: str
    phases: Annotated[dict[str, _Count], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(self.unit)


class Capture(msgspec.Struct, omit_defaults=True):
    """The captured window of a process.

    Attributes:
        capture: the captured steps, as in `--capture`.
        unprofiled_step_ns: the time of a step without a profiler.
        flops: the FLOPs of a step.
    """

    capture: str
    unprofiled_step_ns: int | None = None
    flops: Flops | None = None


class _Written(msgspec.Struct):
    """A `Capture` in JSON. Its parts are decoded one by one, so that a bad one affects no other."""

    capture: _Window
    unprofiled_step_ns: msgspec.Raw = msgspec.Raw()
    flops: msgspec.Raw = msgspec.Raw()


_TimeNs = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_ThreadId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 24)]


class GraphRanges(msgspec.Struct):
    """Ranges that were open while CUDA graphs were captured, before the window.

    Attributes:
        clock_ns: the clock of their times when the mark was made.
        graph_ranges: name, domain, start, end and thread id of each.
    """

    clock_ns: _TimeNs
    graph_ranges: list[tuple[str, str | None, _TimeNs, _TimeNs, _ThreadId]]


class _Mark(msgspec.Struct):
    ours: msgspec.Raw = msgspec.field(name=KEY)


_MARK: Final = msgspec.json.Decoder(_Mark)
_GRAPH_RANGES: Final = msgspec.json.Decoder(GraphRanges)
_WRITTEN: Final = msgspec.json.Decoder(_Written)
_STEP_NS: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(_StepNs)
_FLOPS: Final = msgspec.json.Decoder(Flops)


def capture_in(json: bytes | msgspec.Raw) -> Capture | None:
    """A `Capture` from the JSON under our key; None if it is not one."""
    written = decoded_or_none(_WRITTEN, json)
    if written is None:
        return None
    return Capture(
        capture=written.capture,
        unprofiled_step_ns=decoded_or_none(_STEP_NS, written.unprofiled_step_ns),
        flops=decoded_or_none(_FLOPS, written.flops),
    )


def capture_of_mark(text: str) -> Capture | None:
    """The `Capture` in the text of a mark; None if the mark is not ours."""
    mark = decoded_or_none(_MARK, text)
    return None if mark is None else capture_in(mark.ours)


def graph_ranges_of_mark(text: str) -> GraphRanges | None:
    """The `GraphRanges` in the text of a mark; None if it has none."""
    mark = decoded_or_none(_MARK, text)
    return None if mark is None else decoded_or_none(_GRAPH_RANGES, mark.ours)


def slim_mark(text: str) -> str | None:
    """A mark with only the parts that we read; None if it is not ours."""
    found = capture_of_mark(text) or graph_ranges_of_mark(text)
    return None if found is None else msgspec.json.encode({KEY: found}).decode()


def first_of_each(marks: Iterable[tuple[int | None, str]]) -> dict[int | None, Capture]:
    """The `Capture` of each process, from its first mark of ours; rows are (process, text)."""
    found: dict[int | None, Capture] = {}
    for process, text in marks:
        capture = capture_of_mark(text)
        if capture is not None:
            found.setdefault(process, capture)
    return found


def capture_rows(found: Mapping[int | None, Capture]) -> pl.DataFrame:
    """`schema.CAPTURES` of these windows."""
    rows = [(process, each.capture, each.unprofiled_step_ns) for process, each in found.items()]
    return pl.DataFrame(rows, schema=schema.CAPTURES, orient="row")


def flops_rows(found: Mapping[int | None, Capture]) -> pl.DataFrame:
    """`schema.FLOPS` of these windows."""
    rows = [
        (process, phase, count, each.flops.unit)
        for process, each in found.items()
        if each.flops is not None
        for phase, count in each.flops.phases.items()
    ]
    return pl.DataFrame(rows, schema=schema.FLOPS, orient="row")


def graph_range_rows(marks: Iterable[tuple[int | None, int, str]]) -> pl.DataFrame:
    """The `GraphRanges` of all marks as `schema.RANGES`, on the report's clock.

    Args:
        marks: process, time and text of each. A mark is recorded a bit later than its clock was
            read, so the smallest difference in a process tells how far the clocks are apart.
    """
    apart_ns: dict[int, int] = {}
    listed = []
    for process, at_ns, text in marks:
        found = graph_ranges_of_mark(text)
        if process is not None and found is not None:
            ahead_ns = at_ns - found.clock_ns
            apart_ns[process] = min(ahead_ns, apart_ns.get(process, ahead_ns))
            listed += [(process, *each) for each in found.graph_ranges]
    rows = [
        (begun + apart_ns[process], ended + apart_ns[process], process, process | tid, domain, name)
        for process, name, domain, begun, ended, tid in listed
    ]
    columns = ["start_ns", "end_ns", "process", "thread", "domain", "name"]
    ranges = pl.DataFrame(rows, {name: schema.RANGES[name] for name in columns}, orient="row")
    kind = pl.lit("push_pop", schema.RANGE_KIND).alias("kind")
    return ranges.with_columns(kind).with_row_index("row").select(schema.RANGES.names())
