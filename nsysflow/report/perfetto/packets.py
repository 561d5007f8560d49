"""Packets of one sequence, and their bytes in protobuf's wire format."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import add
from struct import Struct
from typing import Any, BinaryIO, Final

import polars as pl

from nsysflow.base.errors import not_installed

_FIXED: Final = Struct("<Q").pack
_DOUBLE: Final = Struct("<d").pack

_MORE: Final = 0x80
"""Says that another byte follows."""


def _followed(value: int) -> bytes:
    """14 bits that others follow."""
    return bytes((value & 0x7F | _MORE, value >> 7 | _MORE))


def _last(value: int) -> bytes:
    """The highest 14 bits."""
    return bytes((value,)) if value < _MORE else bytes((value & 0x7F | _MORE, value >> 7))


_FOLLOWED: Final = [_followed(value) for value in range(1 << 14)]
_LAST: Final = [_last(value) for value in range(1 << 14)]


def varint(value: int) -> bytes:
    """A number of 0 or more, seven bits a byte, the lowest first."""
    if value < 1 << 14:
        return _LAST[value]
    if value < 1 << 28:
        return _FOLLOWED[value & 0x3FFF] + _LAST[value >> 14]
    return _FOLLOWED[value & 0x3FFF] + _FOLLOWED[value >> 14 & 0x3FFF] + varint(value >> 28)


def signed(value: int) -> bytes:
    """An int64: numbers below 0 as their two's complement."""
    return varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def key(number: int, kind: int) -> bytes:
    """What stands in front of a field's value."""
    return varint(number << 3 | kind)


VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2

_PACKET: Final = key(1, BYTES)  # Trace.packet
_TIME: Final = key(8, VARINT)  # TracePacket.timestamp
_EVENT: Final = key(11, BYTES)  # TracePacket.track_event
_ANNOTATION: Final = key(4, BYTES)  # TrackEvent.debug_annotations
_ANNOTATION_NAME: Final = key(1, VARINT)  # DebugAnnotation.name_iid
_ANNOTATION_INT: Final = key(4, VARINT)  # DebugAnnotation.int_value
_FLOW: Final = key(47, FIXED64)  # TrackEvent.flow_ids
_FLOW_END: Final = key(48, FIXED64)  # TrackEvent.terminating_flow_ids
_COUNT: Final = key(30, VARINT)  # TrackEvent.counter_value
_VALUE: Final = key(44, FIXED64)  # TrackEvent.double_counter_value


def packet(content: bytes) -> bytes:
    """A serialised TracePacket as an element of a Trace."""
    return _PACKET + varint(len(content)) + content


def _head(size: int) -> bytes:
    return _PACKET + varint(size + len(_TIME)) + _TIME


_HEADS: Final = [_head(size) for size in range(1024)]


def packets(times: Iterable[int], contents: Sequence[bytes]) -> list[bytes]:
    """Packets with timestamps: the pieces of each, three a packet.

    Args:
        times: in ns.
        contents: the other fields of each.
    """
    stamps = [*map(varint, times)]
    sizes = map(add, map(len, stamps), map(len, contents))
    pieces = [b""] * (3 * len(contents))
    pieces[0::3] = [_HEADS[size] if size < 1024 else _head(size) for size in sizes]
    pieces[1::3] = stamps
    pieces[2::3] = contents
    return pieces


def event(around: bytes, content: bytes) -> bytes:
    """A packet's content: `around`, its other fields, and a TrackEvent's."""
    return around + _EVENT + varint(len(content)) + content


def number(name_iid: int, value: int) -> bytes:
    """A field of a TrackEvent: an argument that is a whole number."""
    content = _ANNOTATION_NAME + varint(name_iid) + _ANNOTATION_INT + signed(value)
    return _ANNOTATION + varint(len(content)) + content


def flow(identity: int) -> bytes:
    """A field of a TrackEvent: a flow that begins here."""
    return _FLOW + _FIXED(identity)


def flow_end(identity: int) -> bytes:
    """A field of a TrackEvent: a flow that ends here."""
    return _FLOW_END + _FIXED(identity)


def count(value: int) -> bytes:
    """A field of a TrackEvent: a counter's whole number."""
    return _COUNT + signed(value)


def value(of: float) -> bytes:
    """A field of a TrackEvent: a counter's number."""
    return _VALUE + _DOUBLE(of)


_ROWS: Final = 50_000
"""Rows in memory as Python objects at a time."""

_KIND: Final = "_kind"
"""Numbers the slices that differ in nothing but times, numbers and flows."""

_NAMELESS: Final = "(nameless)"

_SEQUENCE: Final = 1
_NAME: Final = "event_names"
_CATEGORY: Final = "event_categories"
_ARGUMENT: Final = "debug_annotation_names"
_TEXT: Final = "debug_annotation_string_values"


def protos() -> Any:
    """The message classes of the `perfetto` package.

    Raises:
        NsysflowError: it is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ModuleNotFoundError as error:
        raise not_installed("perfetto", "perfetto") from error
    return perfetto_trace_pb2


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a frame of slices are what. All have `track`, `start_ns` and `end_ns`.

    Attributes:
        name: what the slice is called.
        category: its category; empty for none.
        texts: arguments that are words; null where a slice has none.
        numbers: arguments that are whole numbers; null where a slice has none.
        flows: a list of flows that begin at the slice.
        flow_in: the flow that ends where the slice starts.
        flow_out: the flow that ends where the slice ends.
    """

    name: str = "name"
    category: str = ""
    texts: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    flows: str = ""
    flow_in: str = ""
    flow_out: str = ""


@dataclass
class Packets:
    """Writes packets, and before each block of them the names that are new in it.

    Attributes:
        out: where to.
        protos: the message classes of the `perfetto` package.
        slices: how many were written.
    """

    out: BinaryIO
    protos: Any = field(default_factory=protos)
    slices: int = 0
    _last_uuid: int = 0
    _names: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    _unwritten: Any = None
    _bodies: dict[tuple[Any, ...], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cleared = self.protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._write(sequence_flags=cleared)  # names are numbered from here on

    def uuids(self, count: int) -> int:
        """The first of `count` new numbers of tracks."""
        first = self._last_uuid + 1
        self._last_uuid += count
        return first

    def describe(self, uuid: int, **fields: Any) -> None:
        """Write the TrackDescriptor of a track."""
        self._write(track_descriptor=self.protos.TrackDescriptor(uuid=uuid, **fields))

    def write_slices(self, rows: pl.DataFrame, columns: Columns) -> None:
        """Write each row as a slice. The slices of a track do not overlap, and are in order."""
        for part in rows.iter_slices(_ROWS):
            self._write_part(part, columns)
        self.slices += len(rows)

    def write_counter(self, uuid: int, times: pl.Series, values: pl.Series) -> None:
        """Write the values of a counter at `times`, ns."""
        field_of = value if values.dtype.is_float() else count
        counter = self._event(type="TYPE_COUNTER", track_uuid=uuid)
        around = self._around
        for first in range(0, len(times), _ROWS):
            part = slice(first, first + _ROWS)
            contents = [event(around, counter + field_of(each)) for each in values[part]]
            self.out.write(b"".join(packets(times[part].to_list(), contents)))

    def _write_part(self, rows: pl.DataFrame, columns: Columns) -> None:
        category = [columns.category] if columns.category else []
        key = ["track", columns.name, *category, *columns.texts]
        kinds = rows.select(key).unique(maintain_order=True).with_row_index(_KIND)
        of = rows.select(key).join(
            kinds, on=key, how="left", nulls_equal=True, maintain_order="left"
        )
        begins = [self._begin(columns, row) for row in kinds.drop(_KIND).rows()]
        ends = [
            self._event(type="TYPE_SLICE_END", track_uuid=uuid) for uuid in kinds["track"].to_list()
        ]
        at_start, at_end = self._extras(rows, columns)
        self._write_new_names()
        block = self._block(rows, of[_KIND].to_list(), begins, ends, at_start, at_end)
        self.out.write(b"".join(block))

    def _block(
        self,
        rows: pl.DataFrame,
        kinds: list[int],
        begins: Sequence[bytes],
        ends: Sequence[bytes],
        at_start: Iterable[bytes],
        at_end: Iterable[bytes],
    ) -> list[bytes]:
        """Two packets a row: its begin and its end.

        Args:
            rows: the slices.
            kinds: the row of each in `begins` and `ends`.
            begins: TrackEvents that begin slices.
            ends: TrackEvents that end them.
            at_start: further fields of each begin.
            at_end: further fields of each end.
        """
        around = self._around
        plain = [event(around, content) for content in begins]
        closing = [event(around, content) for content in ends]
        first = [
            event(around, begins[kind] + more) if more else plain[kind]
            for kind, more in zip(kinds, at_start, strict=True)
        ]
        last = [
            event(around, ends[kind] + more) if more else closing[kind]
            for kind, more in zip(kinds, at_end, strict=True)
        ]
        both = [b""] * (2 * len(kinds))
        both[0::2], both[1::2] = first, last
        times = [0] * len(both)
        times[0::2], times[1::2] = rows["start_ns"].to_list(), rows["end_ns"].to_list()
        return packets(times, both)

    def _extras(self, rows: pl.DataFrame, columns: Columns) -> tuple[list[bytes], list[bytes]]:
        """What each row has of its own: fields of its begin and of its end."""
        at_start, at_end = [b""] * len(rows), [b""] * len(rows)
        for name in columns.numbers:
            iid = self._iid(_ARGUMENT, name)
            for row, found in enumerate(rows[name].to_list()):
                if found is not None:
                    at_start[row] += number(iid, found)
        if columns.flows:
            for row, found in enumerate(rows[columns.flows].to_list()):
                if found:
                    at_start[row] += b"".join(map(flow, found))
        for column, extras in ((columns.flow_in, at_start), (columns.flow_out, at_end)):
            if column:
                for row, found in enumerate(rows[column].to_list()):
                    if found is not None:
                        extras[row] += flow_end(found)
        return at_start, at_end

    def _begin(self, columns: Columns, row: tuple[Any, ...]) -> bytes:
        """A TrackEvent that begins a slice, without what is its own. Each is made once."""
        if (columns, row) not in self._bodies:
            self._bodies[columns, row] = self._new_begin(columns, row)
        return self._bodies[columns, row]

    def _new_begin(self, columns: Columns, row: tuple[Any, ...]) -> bytes:
        uuid, name, *rest = row
        category = [rest.pop(0)] if columns.category else []
        annotations = [
            self.protos.DebugAnnotation(
                name_iid=self._iid(_ARGUMENT, argument), string_value_iid=self._iid(_TEXT, text)
            )
            for argument, text in zip(columns.texts, rest, strict=True)
            if text is not None
        ]
        return self._event(
            type="TYPE_SLICE_BEGIN",
            track_uuid=uuid,
            name_iid=self._iid(_NAME, _NAMELESS if name is None else name),
            category_iids=[self._iid(_CATEGORY, text) for text in category if text is not None],
            debug_annotations=annotations,
        )

    def _event(self, **fields: Any) -> bytes:
        return bytes(self.protos.TrackEvent(**fields).SerializeToString())

    @property
    def _around(self) -> bytes:
        """The fields of a packet beside its event."""
        content = self.protos.TracePacket(
            trusted_packet_sequence_id=_SEQUENCE,
            sequence_flags=self.protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE,
        )
        return bytes(content.SerializeToString())

    def _iid(self, kind: str, text: str) -> int:
        """The number of a name, which is written before it is used."""
        known = self._names[kind]
        if text not in known:
            known[text] = len(known) + 1
            if self._unwritten is None:
                self._unwritten = self.protos.InternedData()
            entry = getattr(self._unwritten, kind).add(iid=known[text])
            if kind == _TEXT:
                entry.str = text.encode()
            else:
                entry.name = text
        return known[text]

    def _write_new_names(self) -> None:
        if self._unwritten is not None:
            self._write(interned_data=self._unwritten)
            self._unwritten = None

    def _write(self, **fields: Any) -> None:
        content = self.protos.TracePacket(trusted_packet_sequence_id=_SEQUENCE, **fields)
        self.out.write(packet(content.SerializeToString()))
