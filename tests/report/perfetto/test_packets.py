"""Packets, read back with the classes of the `perfetto` package."""

import sys
from io import BytesIO

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as classes

from nsysflow.base.errors import NsysflowError
from nsysflow.report.perfetto import packets as wire
from nsysflow.report.perfetto.packets import PacketColumns, Packets, protos
from tests.report.perfetto.reader import read_trace

ODD_NAMES = (
    "<script>alert('1')</script>",
    '"quoted" \\ {0} %s',
    "שלום עולם",
    "x" * 5_000,
    "line\nbreak",
    "",
)


@given(st.integers(0, 2**64 - 1))
def test_a_number_is_written_as_the_package_writes_it(number: int) -> None:
    message = classes.TracePacket(timestamp=number)
    assert wire.field_key(8, wire.VARINT) + wire.varint(number) == message.SerializeToString()


@given(
    st.integers(0, 2**40),
    st.integers(1, 2**32 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(0, 2**64 - 1)),
)
def test_an_event_is_what_the_package_makes_of_it(
    time_ns: int, iid: int, value: int, flows: list[int]
) -> None:
    content = wire.event_packet(
        classes.TracePacket(trusted_packet_sequence_id=1).SerializeToString(),
        wire.number_argument(iid, value) + b"".join(map(wire.flow_start, flows)) + wire.flow_end(7),
    )
    written = b"".join(wire.timed_packets([time_ns], [content]))
    event = classes.TrackEvent(
        debug_annotations=[classes.DebugAnnotation(name_iid=iid, int_value=value)],
        flow_ids=flows,
        terminating_flow_ids=[7],
    )
    packet = classes.TracePacket(timestamp=time_ns, trusted_packet_sequence_id=1, track_event=event)
    assert classes.Trace.FromString(written) == classes.Trace(packet=[packet])


@given(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
def test_a_counter_is_what_the_package_makes_of_it(whole: int, value: float) -> None:
    event = classes.TrackEvent(counter_value=whole, double_counter_value=value)
    assert (
        classes.TrackEvent.FromString(wire.counter_count(whole) + wire.counter_value(value))
        == event
    )


def test_names_are_shown_as_they_are() -> None:
    out = BytesIO()
    packets = Packets(out)
    first = packets.uuids(len(ODD_NAMES))
    tracks = range(first, first + len(ODD_NAMES))
    for uuid, name in zip(tracks, ODD_NAMES, strict=True):
        packets.describe(uuid, name=f"track {name}")
    rows = pl.DataFrame(
        {
            "track": pl.Series(tracks, dtype=pl.UInt64),
            "start_ns": range(len(ODD_NAMES)),
            "end_ns": range(1, len(ODD_NAMES) + 1),
            "name": ODD_NAMES,
            "source": ODD_NAMES,
        }
    )
    packets.write_slices(rows, PacketColumns(texts=("source",)))
    found = read_trace(out.getvalue()).slices
    assert tuple(each.name for each in found) == ODD_NAMES
    assert tuple(each.arguments["source"] for each in found) == ODD_NAMES
    assert found[0].path == (f"track {ODD_NAMES[0]}",)


def test_a_slice_without_a_name_is_there() -> None:
    out = BytesIO()
    packets = Packets(out)
    packets.describe(packets.uuids(1), name="track")
    rows = pl.DataFrame(
        {"track": [1], "start_ns": [3], "end_ns": [3], "name": pl.Series([None], dtype=pl.String)}
    )
    packets.write_slices(rows, PacketColumns())
    (one,) = read_trace(out.getvalue()).slices
    assert (one.name, one.start_ns, one.ns) == ("(nameless)", 3, 0)


def test_a_name_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.report.perfetto.packets._ROWS", 2)
    out = BytesIO()
    packets = Packets(out)
    packets.describe(packets.uuids(1), name="track")
    rows = pl.DataFrame(
        {
            "track": pl.Series([1] * 5, dtype=pl.UInt64),
            "start_ns": [0, 2, 4, 6, 8],
            "end_ns": [1, 3, 5, 7, 9],
            "name": ["a long name", "other", "a long name", "a long name", "last"],
        }
    )
    packets.write_slices(rows, PacketColumns())
    assert out.getvalue().count(b"a long name") == 1
    assert [each.name for each in read_trace(out.getvalue()).slices] == rows["name"].to_list()


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(NsysflowError, match="perfetto is not installed") as raised:
        protos()
    assert raised.value.command == "pip install 'nsysflow[perfetto]'"
