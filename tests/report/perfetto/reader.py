"""Reads a trace back with the classes of the `perfetto` package, as trace_processor would: in the
order of time, a stack for each track, each flow from where it begins to where it ends."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from nsysflow.report.perfetto.trace import write_trace
from nsysflow.report.results import Results


@dataclass(eq=False)
class Slice:
    """A slice, its words looked up. `path` is its track's name behind those of all around it."""

    path: tuple[str, ...]
    start_ns: int
    name: str
    category: str
    arguments: Mapping[str, str | int]
    end_ns: int = -1

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass
class Read:
    """What is in a trace.

    Attributes:
        tracks: the descriptors by uuid.
        slices: in the order of time.
        flows: the slice in which each begins and that in which it ends.
        counters: the times and values of each, by its path.
    """

    tracks: dict[int, Any] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    flows: list[tuple[Slice, Slice]] = field(default_factory=list)
    counters: dict[tuple[str, ...], list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def path(self, uuid: int) -> tuple[str, ...]:
        """The names of a track and of those around it, outermost first."""
        track = self.tracks[uuid]
        name = track.name or track.thread.thread_name or track.process.process_name
        around = self.path(track.parent_uuid) if track.HasField("parent_uuid") else ()
        return (*around, name)

    def on(self, *path: str) -> list[Slice]:
        """The slices on tracks whose path ends so."""
        return [each for each in self.slices if each.path[-len(path) :] == path]


def read_results(results: Results) -> Read:
    out = BytesIO()
    written = write_trace(results, out)
    read = read_trace(out.getvalue())
    assert written == len(read.slices)
    return read


def read_trace(content: bytes) -> Read:
    """What is in a trace. Fails where trace_processor would drop or misplace something."""
    trace = protos.Trace.FromString(content)
    read = Read()
    words: dict[str, dict[int, str]] = defaultdict(dict)
    events = []
    first, flags = trace.packet[0], protos.TracePacket
    assert first.sequence_flags & flags.SEQ_INCREMENTAL_STATE_CLEARED
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == first.trusted_packet_sequence_id
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                text = entry.str.decode() if hasattr(entry, "str") else entry.name
                assert words[kind.name].setdefault(entry.iid, text) == text
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in read.tracks
            read.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            assert packet.sequence_flags & flags.SEQ_NEEDS_INCREMENTAL_STATE
            event = packet.track_event
            known = event.name_iid in words["event_names"]
            assert known or event.type != protos.TrackEvent.TYPE_SLICE_BEGIN
            events.append((packet.timestamp, event))
    events.sort(key=lambda each: each[0])  # stable, as trace_processor's
    _play(events, words, read)
    return read


def _play(events: list[tuple[int, Any]], words: dict[str, dict[int, str]], read: Read) -> None:
    """Fill in the slices, flows and counters."""
    open_on: dict[int, Slice] = {}
    begun: dict[int, Slice] = {}
    kinds = protos.TrackEvent
    for time_ns, event in events:
        uuid = event.track_uuid
        if event.type == kinds.TYPE_COUNTER:
            whole = event.HasField("counter_value")
            value = event.counter_value if whole else event.double_counter_value
            read.counters[read.path(uuid)].append((time_ns, value))
            continue
        if event.type == kinds.TYPE_SLICE_BEGIN:
            assert uuid not in open_on, "slices of one track overlap"
            here = open_on[uuid] = _slice(time_ns, event, words, read)
            read.slices.append(here)
        else:
            here = open_on.pop(uuid)
            here.end_ns = time_ns
        for flow in event.flow_ids:
            assert flow not in begun
            begun[flow] = here
        read.flows += [(begun.pop(flow), here) for flow in event.terminating_flow_ids]
    assert not open_on
    assert not begun


def _slice(time_ns: int, event: Any, words: dict[str, dict[int, str]], read: Read) -> Slice:
    names, texts = words["debug_annotation_names"], words["debug_annotation_string_values"]
    return Slice(
        path=read.path(event.track_uuid),
        start_ns=time_ns,
        name=words["event_names"][event.name_iid],
        category="".join(words["event_categories"][iid] for iid in event.category_iids),
        arguments={
            names[each.name_iid]: texts[each.string_value_iid]
            if each.HasField("string_value_iid")
            else each.int_value
            for each in event.debug_annotations
        },
    )
