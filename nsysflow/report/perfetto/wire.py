"""Bytes of protobuf's wire format, for what is written millions of times.

A packet object of the `perfetto` package takes 2.7 us to make and serialise, a packet here 0.7 us
(2026-11-23). Everything else is made by the package; tests read all of it back with the package.
"""

from collections.abc import Iterable, Sequence
from operator import add
from struct import Struct
from typing import Final

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
