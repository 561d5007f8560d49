"""What the packets of a trace refer to by numbers: names, tracks and clocks (spec §1.1).

Such packets are few, and are read one by one. A sequence of packets numbers its names from 1, and
from time to time anew; each stretch in which numbers keep their meaning is a *generation*.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from nsysflow.analysis.load.kineto.document import OddEvent
from nsysflow.analysis.load.pftrace.wire import BYTES, Field, Malformed, fields_of
from nsysflow.base.units import POSSIBLE_NS

CATEGORIES: Final = 1
EVENT_NAMES: Final = 2
ARGUMENT_NAMES: Final = 3
GPU_CONTEXTS: Final = 23
GPU_STAGES: Final = 24
TEXTS: Final = 29
KERNELS: Final = 1000
LAUNCH_ARGUMENTS: Final = 1001
"""Kinds of names: their fields in InternedData."""

_KINDS: Final = (
    *(CATEGORIES, EVENT_NAMES, ARGUMENT_NAMES, GPU_CONTEXTS),
    *(GPU_STAGES, TEXTS, KERNELS, LAUNCH_ARGUMENTS),
)
_DEMANGLED: Final = 3

REPORT_FIELD: Final = 10_000
ROWS_FIELD: Final = 10_001
OURS: Final = (REPORT_FIELD, ROWS_FIELD)
"""Fields of the packets that our export has beside its picture; Perfetto skips them."""

_FIRST_CLOCK_OF_SEQUENCE: Final = 64
"""Clocks with smaller numbers are known to all."""

_NAMES: Final = pl.Schema({"generation": pl.UInt32(), "iid": pl.UInt64(), "text": pl.Categorical()})


@dataclass(frozen=True, kw_only=True)
class Track:
    """A track of events.

    Attributes:
        parent: its parent's number; 0 for none.
        name: its own name.
        pid: of its process or thread, if it is one's.
        tid: of its thread.
        title: the name of that process or thread.
    """

    parent: int = 0
    name: str = ""
    pid: int | None = None
    tid: int | None = None
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A clock of a sequence: a time of it is `unit_ns` long, and counts from the last one of a
    packet if it is `incremental`, the first one from `start`."""

    incremental: bool
    start: int
    unit_ns: int


@dataclass
class Names:
    """What numbers stand for.

    Attributes:
        tracks: by number.
        ours: what our export has beside its picture: fields of packets, and what is in them.
        clocks: the clocks of sequences, by generation and number.
        default_clocks: the clock of packets that name none, by generation.
        default_tracks: the track of events that name none, by generation.
    """

    tracks: dict[int, Track] = field(default_factory=dict)
    ours: list[tuple[int, bytes]] = field(default_factory=list)
    clocks: dict[tuple[int, int], Clock] = field(default_factory=dict)
    default_clocks: dict[int, int] = field(default_factory=dict)
    default_tracks: dict[int, int] = field(default_factory=dict)
    _new: dict[int, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    _known: dict[int, pl.DataFrame] = field(default_factory=dict)

    def add(self, data: bytes, number: int, start: int, end: int, generation: int) -> None:
        """Take in a field of a packet: its number, and where its message lies. Of a malformed
        message, what stands before that place."""
        if number in OURS:
            self.ours.append((number, data[start:end]))
            return
        try:
            _READ[number](self, data, start, end, generation)
        except Malformed:
            return

    def texts(self, kind: int, generation: pl.Series, iid: pl.Series) -> pl.Series:
        """The name of each number; null for a number that the trace does not name."""
        known = self._frame(kind)
        asked = pl.DataFrame([generation.alias("generation"), iid.alias("iid")])
        key = ["generation", "iid"]
        return asked.join(known, on=key, how="left", maintain_order="left")["text"]

    def _frame(self, kind: int) -> pl.DataFrame:
        known = self._known.get(kind)
        if known is None or self._new[kind]:
            frames = [_NAMES.to_frame() if known is None else known]
            if self._new[kind]:
                plain = {**_NAMES, "text": pl.String()}
                frames.append(pl.DataFrame(self._new[kind], plain, orient="row").cast(_NAMES))
            known = pl.concat(frames).unique(["generation", "iid"], keep="last")
            self._known[kind], self._new[kind] = known, []
        return known

    def _interned(self, data: bytes, start: int, end: int, generation: int) -> None:
        for entry in fields_of(data, start, end):
            if entry.number in _KINDS and entry.wire == BYTES:
                parts = _parts(data, entry.value, entry.end)
                text = parts.get(_DEMANGLED if entry.number == KERNELS else 2) or parts.get(2)
                if 1 in parts and text is not None:
                    named = (generation, parts[1].value, text_of(data, text))
                    self._new[entry.number].append(named)

    def _descriptor(self, data: bytes, start: int, end: int, generation: int) -> None:
        parts = _parts(data, start, end)
        thread, process = (
            _parts(data, parts[number].value, parts[number].end)
            if number in parts and parts[number].wire == BYTES
            else {}
            for number in (4, 3)
        )
        owner = thread or process
        name, title = parts.get(2) or parts.get(10), thread.get(5) if thread else process.get(6)
        self.tracks[parts[1].value if 1 in parts else 0] = Track(
            parent=parts[5].value if 5 in parts else 0,
            name=text_of(data, name) if name else "",
            pid=owner[1].value if 1 in owner else None,
            tid=thread[2].value if 2 in thread else None,
            title=text_of(data, title) if title else "",
        )

    def _clock_snapshot(self, data: bytes, start: int, end: int, generation: int) -> None:
        """Take in the clocks of a sequence.

        Raises:
            OddEvent: one stands at an impossible time: the times that count from it are lost.
        """
        for entry in fields_of(data, start, end):
            if entry.number == 1 and entry.wire == BYTES:
                parts = _parts(data, entry.value, entry.end)
                clock = {number: part.value for number, part in parts.items()}
                if clock.get(1, 0) >= _FIRST_CLOCK_OF_SEQUENCE:
                    begun, unit_ns = clock.get(2, 0), clock.get(4) or 1
                    if begun * unit_ns not in POSSIBLE_NS or unit_ns not in POSSIBLE_NS:
                        raise OddEvent("a clock at an impossible time")
                    self.clocks[generation, clock[1]] = Clock(
                        incremental=bool(clock.get(3)), start=begun, unit_ns=unit_ns
                    )

    def _defaults(self, data: bytes, start: int, end: int, generation: int) -> None:
        parts = _parts(data, start, end)
        if 58 in parts:
            self.default_clocks[generation] = parts[58].value
        if 11 in parts and parts[11].wire == BYTES:
            of_events = _parts(data, parts[11].value, parts[11].end)
            if 11 in of_events:
                self.default_tracks[generation] = of_events[11].value


_READ: Final = {
    6: Names._clock_snapshot,
    12: Names._interned,
    59: Names._defaults,
    60: Names._descriptor,
}
READ: Final = (*_READ, *OURS)
"""The fields of packets that `Names` reads."""


def _parts(data: bytes, start: int, end: int) -> dict[int, Field]:
    """The fields of a message by number; of a number that comes again, the last."""
    return {part.number: part for part in fields_of(data, start, end)}


def text_of(data: bytes, part: Field) -> str:
    """The text of a field, or its number as text."""
    if part.wire != BYTES:
        return str(part.value)
    return data[part.value : part.end].decode("utf-8", "replace")
