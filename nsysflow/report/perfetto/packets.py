"""Packets of one sequence, and their bytes in protobuf's wire format.

Messages that come once for each name or track are made by the `perfetto` package. What comes twice
for each slice is encoded here. With the package's writer alone, `analyze --no-files --perfetto` of
1.0 M kernels (5.4 M slices, 383 MB) took 40.0 s of CPU instead of 23.1 s, 1.7 times as long, and
writing alone 32.9 instead of 15.9 s (medians of 3, 2026-11-24, 2 cores of an AMD EPYC VM, protobuf
7.36 with upb)."""

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


def _middle_bytes(value: int) -> bytes:
    """The two bytes of 14 bits of a varint that has more bytes after them."""
    return bytes((value & 0x7F | _MORE, value >> 7 | _MORE))


def _last_bytes(value: int) -> bytes:
    """The one or two bytes that end a varint: its highest 14 bits."""
    return bytes((value,)) if value < _MORE else bytes((value & 0x7F | _MORE, value >> 7))


_MIDDLE: Final = [_middle_bytes(value) for value in range(1 << 14)]
_LAST: Final = [_last_bytes(value) for value in range(1 << 14)]


def varint(value: int) -> bytes:
    """The bytes of a number of 0 or more: seven bits a byte, the lowest first."""
    if value < 1 << 14:
        return _LAST[value]
    if value < 1 << 28:
        return _MIDDLE[value & 0x3FFF] + _LAST[value >> 14]
    return _MIDDLE[value & 0x3FFF] + _MIDDLE[value >> 14 & 0x3FFF] + varint(value >> 28)


def signed_varint(value: int) -> bytes:
    """The bytes of an int64: a number below 0 is written as its two's complement."""
    return varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def field_key(number: int, wire_type: int) -> bytes:
    """The bytes in front of a field's value: its number and how the value is encoded."""
    return varint(number << 3 | wire_type)


VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2

_PACKET: Final = field_key(1, BYTES)  # Trace.packet
_TIME: Final = field_key(8, VARINT)  # TracePacket.timestamp
_EVENT: Final = field_key(11, BYTES)  # TracePacket.track_event
_ANNOTATION: Final = field_key(4, BYTES)  # TrackEvent.debug_annotations
_ANNOTATION_NAME: Final = field_key(1, VARINT)  # DebugAnnotation.name_iid
_ANNOTATION_INT: Final = field_key(4, VARINT)  # DebugAnnotation.int_value
_FLOW: Final = field_key(47, FIXED64)  # TrackEvent.flow_ids
_FLOW_END: Final = field_key(48, FIXED64)  # TrackEvent.terminating_flow_ids
_COUNT: Final = field_key(30, VARINT)  # TrackEvent.counter_value
_VALUE: Final = field_key(44, FIXED64)  # TrackEvent.double_counter_value


def framed_packet(content: bytes) -> bytes:
    """A serialised TracePacket as an element of a Trace: with its key and its length."""
    return _PACKET + varint(len(content)) + content


def _packet_head(size: int) -> bytes:
    """The bytes in front of a packet's time; `size` are those of its time and its content."""
    return _PACKET + varint(size + len(_TIME)) + _TIME


_HEADS: Final = [_packet_head(size) for size in range(1024)]


def timed_packets(times: Iterable[int], contents: Sequence[bytes]) -> list[bytes]:
    """The bytes of packets with timestamps, three pieces for each: head, time and content.

    Args:
        times: of the packets, ns.
        contents: their other fields.
    """
    stamps = [*map(varint, times)]
    sizes = map(add, map(len, stamps), map(len, contents))
    pieces = [b""] * (3 * len(contents))
    pieces[0::3] = [_HEADS[size] if size < 1024 else _packet_head(size) for size in sizes]
    pieces[1::3] = stamps
    pieces[2::3] = contents
    return pieces


def event_packet(packet_fields: bytes, content: bytes) -> bytes:
    """The content of a packet: its own fields, then a TrackEvent with this content."""
    return packet_fields + _EVENT + varint(len(content)) + content


def number_argument(name_iid: int, value: int) -> bytes:
    """A field of a TrackEvent: an argument that is a whole number."""
    content = _ANNOTATION_NAME + varint(name_iid) + _ANNOTATION_INT + signed_varint(value)
    return _ANNOTATION + varint(len(content)) + content


def flow_start(identity: int) -> bytes:
    """A field of a TrackEvent: a flow that begins here."""
    return _FLOW + _FIXED(identity)


def flow_end(identity: int) -> bytes:
    """A field of a TrackEvent: a flow that ends here."""
    return _FLOW_END + _FIXED(identity)


def counter_count(value: int) -> bytes:
    """A field of a TrackEvent: a counter's whole number."""
    return _COUNT + signed_varint(value)


def counter_value(value: float) -> bytes:
    """A field of a TrackEvent: a counter's number, 64-bit float."""
    return _VALUE + _DOUBLE(value)


_ROWS: Final = 50_000
"""Rows in memory as Python objects at a time."""

_KIND: Final = "_kind"
"""Slices with the same number differ only in their times, numbers and flows."""

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
class PacketColumns:
    """What the columns of a frame of slices hold. Each has `track`, `start_ns` and `end_ns`.

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

    def tell(self, number: int, content: bytes) -> None:
        """Write a packet with a field that Perfetto does not know: its number and its bytes."""
        known = bytes(
            self.protos.TracePacket(trusted_packet_sequence_id=_SEQUENCE).SerializeToString()
        )
        told = field_key(number, BYTES) + varint(len(content)) + content
        self.out.write(framed_packet(known + told))

    def write_slices(self, rows: pl.DataFrame, columns: PacketColumns) -> None:
        """Write each row as a slice. The slices of a track do not overlap, and are in order."""
        for part in rows.iter_slices(_ROWS):
            self._write_part(part, columns)
        self.slices += len(rows)

    def write_counter(self, uuid: int, times: pl.Series, values: pl.Series) -> None:
        """Write the values of a counter at `times`, ns."""
        encode = counter_value if values.dtype.is_float() else counter_count
        counter = self._event(type="TYPE_COUNTER", track_uuid=uuid)
        packet_fields = self._packet_fields
        for first in range(0, len(times), _ROWS):
            part = slice(first, first + _ROWS)
            contents = [
                event_packet(packet_fields, counter + encode(value)) for value in values[part]
            ]
            self.out.write(b"".join(timed_packets(times[part].to_list(), contents)))

    def _write_part(self, rows: pl.DataFrame, columns: PacketColumns) -> None:
        category = [columns.category] if columns.category else []
        key = ["track", columns.name, *category, *columns.texts]
        kinds = rows.select(key).unique(maintain_order=True).with_row_index(_KIND)
        numbered = rows.select(key).join(
            kinds, on=key, how="left", nulls_equal=True, maintain_order="left"
        )
        begins = [self._begin(columns, row) for row in kinds.drop(_KIND).rows()]
        ends = [
            self._event(type="TYPE_SLICE_END", track_uuid=uuid) for uuid in kinds["track"].to_list()
        ]
        at_start, at_end = self._extras(rows, columns)
        self._write_new_names()
        block = self._block(rows, numbered[_KIND].to_list(), begins, ends, at_start, at_end)
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
        """The pieces of two packets a row: its begin and its end.

        Args:
            rows: the slices.
            kinds: for each row, its place in `begins` and `ends`.
            begins: for each kind, the TrackEvent that begins a slice.
            ends: for each kind, the TrackEvent that ends one.
            at_start: for each row, further fields of its begin.
            at_end: for each row, further fields of its end.
        """
        packet_fields = self._packet_fields
        plain_begins = [event_packet(packet_fields, content) for content in begins]
        plain_ends = [event_packet(packet_fields, content) for content in ends]
        first = [
            event_packet(packet_fields, begins[kind] + more) if more else plain_begins[kind]
            for kind, more in zip(kinds, at_start, strict=True)
        ]
        last = [
            event_packet(packet_fields, ends[kind] + more) if more else plain_ends[kind]
            for kind, more in zip(kinds, at_end, strict=True)
        ]
        both = [b""] * (2 * len(kinds))
        both[0::2], both[1::2] = first, last
        times = [0] * len(both)
        times[0::2], times[1::2] = rows["start_ns"].to_list(), rows["end_ns"].to_list()
        return timed_packets(times, both)

    def _extras(
        self, rows: pl.DataFrame, columns: PacketColumns
    ) -> tuple[list[bytes], list[bytes]]:
        """For each row, the fields that only it has: of its begin, and of its end."""
        at_start, at_end = [b""] * len(rows), [b""] * len(rows)
        for name in columns.numbers:
            iid = self._iid(_ARGUMENT, name)
            for row, value in enumerate(rows[name].to_list()):
                if value is not None:
                    at_start[row] += number_argument(iid, value)
        if columns.flows:
            for row, flows in enumerate(rows[columns.flows].to_list()):
                if flows:
                    at_start[row] += b"".join(map(flow_start, flows))
        for column, extras in ((columns.flow_in, at_start), (columns.flow_out, at_end)):
            if column:
                for row, flow in enumerate(rows[column].to_list()):
                    if flow is not None:
                        extras[row] += flow_end(flow)
        return at_start, at_end

    def _begin(self, columns: PacketColumns, row: tuple[Any, ...]) -> bytes:
        """The TrackEvent that begins a slice of a kind, without numbers and flows; made once."""
        if (columns, row) not in self._bodies:
            self._bodies[columns, row] = self._new_begin(columns, row)
        return self._bodies[columns, row]

    def _new_begin(self, columns: PacketColumns, row: tuple[Any, ...]) -> bytes:
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
    def _packet_fields(self) -> bytes:
        """The fields of a packet beside its time and its event."""
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
        self.out.write(framed_packet(content.SerializeToString()))
