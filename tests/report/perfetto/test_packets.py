from io import BytesIO

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as classes

from nsysflow.report.perfetto import packets as wire
from nsysflow.report.perfetto.packets import PacketColumns, Packets
from tests.report.perfetto.reader import Slice, read_trace

ODD_NAMES = (
    *("<script>alert('1')</script>", '"quoted" \\ {0} %s', "שלום עולם"),
    *("x" * 5_000, "line\nbreak", ""),
)


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


def read_back(*names: str | None, track: str = "track") -> tuple[bytes, list[Slice]]:
    """Slices without length of these names, which are also a text of each: written, and read."""
    out = BytesIO()
    packets = Packets(out)
    uuid = packets.uuids(1)
    packets.describe(uuid, name=track)
    words, times = pl.Series(names, dtype=pl.String), range(len(names))
    columns = {"start_ns": times, "end_ns": times, "name": words, "source": words}
    rows = pl.DataFrame(columns).with_columns(pl.lit(uuid, pl.UInt64).alias("track"))
    packets.write_slices(rows, PacketColumns(texts=("source",)))
    return out.getvalue(), read_trace(out.getvalue()).slices


def test_names_are_shown_as_they_are() -> None:
    _, found = read_back(*ODD_NAMES, track=ODD_NAMES[0])
    assert tuple(each.name for each in found) == ODD_NAMES
    assert tuple(each.arguments["source"] for each in found) == ODD_NAMES
    assert [(each.start_ns, each.ns) for each in found] == [(at, 0) for at in range(len(found))]
    assert found[0].path == (ODD_NAMES[0],)


def test_a_name_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nsysflow.report.perfetto.packets._ROWS", 2)
    names = ["a long name", "other", "a long name", "a long name", "last"]
    content, found = read_back(*names)
    assert content.count(b"a long name") == 2  # as a name and as a text
    assert [each.name for each in found] == names
