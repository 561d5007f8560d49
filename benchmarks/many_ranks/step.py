"""A step of one rank as a program: what the host calls, and what each operation waits for.

The host is one sequence of events, each some time after the one before it. A call that waits for
the GPU ends after an operation does. An operation starts once it is launched, its stream is free,
and what it waits for on other streams is done.
"""

from dataclasses import dataclass, field
from typing import Any, Final

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPYS: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSETS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES: Final = "NVTX_EVENTS"
RECORDS: Final = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"

Values = dict[str, Any]
"""A row of an export."""


@dataclass(eq=False)
class Event:
    """The start or end of a call or range, `gap_ns` after the event before it.

    It comes no earlier than `after_ns` after the end of the operation `awaits`, which is that of
    `steps_ago` steps ago.
    """

    gap_ns: int
    awaits: "Op | None" = None
    after_ns: int = 0
    steps_ago: int = 0


@dataclass(eq=False)
class Span:
    """A call or a range: a row of `table`. `group` is that of an NCCL range: `dp` or `tp`."""

    table: str
    values: Values
    begin: Event
    end: Event
    group: str | None = None
    injected: bool = False


@dataclass(eq=False)
class Op:
    """A kernel, copy or memset: a row of `table`.

    Of a collective, `group` is `dp` or `tp`, and `length_ns` is what it takes once all are there.
    `recorded_ns` is when it started and ended in the report.
    """

    table: str
    values: Values
    launch: Span
    stream: int
    length_ns: int
    recorded_ns: tuple[int, int] = (0, 0)
    group: str | None = None
    after: "list[Op]" = field(default_factory=list)
    injected: bool = False


@dataclass(frozen=True)
class Wait:
    """One stream waits for an event of another.

    Attributes:
        record: the call that records the event.
        recorded_on: the stream that the event is recorded on.
        wait: the call that makes the other stream wait for the event.
        waiting: the stream that waits.
    """

    record: Span
    recorded_on: int
    wait: Span
    waiting: int


@dataclass
class Step:
    """A step of one rank: events in order, operations in the order of their launch."""

    events: list[Event]
    spans: list[Span]
    ops: list[Op]
    main_stream: int
    waits: list[Wait] = field(default_factory=list)
