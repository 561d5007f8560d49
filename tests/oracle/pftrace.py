"""Traces in Perfetto's format (spec §1.1), read with the classes of the `perfetto` package."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.oracle.model import LOW_24_BITS

CLEARED = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
BEGIN, END = (protos.TrackEvent.Type.Value(f"TYPE_SLICE_{side}") for side in ("BEGIN", "END"))
NAMES = ("event_names", "event_categories", "debug_annotation_names")
DIRECTIONS = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD"}

Row = tuple[Any, ...]


@dataclass(eq=False)
class Edge:
    """The begin or the end of a slice."""

    begins: bool
    time_ns: int
    track: int
    name: str | None = None
    category: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    end_ns: int | None = None


@dataclass
class Sequence:
    """What the packets of a sequence have said so far."""

    names: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    clock: int = 0
    clocks: dict[int, Any] = field(default_factory=dict)
    last_ns: dict[int, int] = field(default_factory=dict)
    track: int = 0


@dataclass
class Told:
    """The edges of slices in the file's order, and the tracks by number."""

    edges: list[Edge] = field(default_factory=list)
    tracks: dict[int, Any] = field(default_factory=dict)


def told(content: bytes) -> Told:
    """§1.1.1 to §1.1.3: what the packets say."""
    found = Told()
    sequences: dict[int, Sequence] = defaultdict(Sequence)
    for packet in protos.Trace.FromString(content).packet:
        number = packet.trusted_packet_sequence_id
        if packet.sequence_flags & CLEARED:
            sequences[number] = Sequence()
        of = sequences[number]
        learn(of, packet)
        time_ns = time_of(of, packet)
        if packet.HasField("track_descriptor"):
            found.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event") and packet.track_event.type in (BEGIN, END):
            found.edges.append(edge(of, packet.track_event, time_ns))
    return found


def learn(of: Sequence, packet: Any) -> None:
    """§1.1.2: names; §1.1.3: clocks."""
    for kind in NAMES:
        for entry in getattr(packet.interned_data, kind):
            of.names[kind][entry.iid] = entry.name
    if packet.HasField("trace_packet_defaults"):
        of.clock = packet.trace_packet_defaults.timestamp_clock_id
        of.track = packet.trace_packet_defaults.track_event_defaults.track_uuid
    for clock in packet.clock_snapshot.clocks:
        if clock.clock_id >= 64:
            of.clocks[clock.clock_id] = clock
            of.last_ns[clock.clock_id] = clock.timestamp * (clock.unit_multiplier_ns or 1)


def time_of(of: Sequence, packet: Any) -> int:
    """§1.1.3: when a packet is from."""
    number = packet.timestamp_clock_id or of.clock
    clock = of.clocks.get(number)
    if clock is None:
        return int(packet.timestamp)
    time_ns = packet.timestamp * (clock.unit_multiplier_ns or 1)
    if clock.is_incremental:
        of.last_ns[number] += time_ns
        return of.last_ns[number]
    return int(time_ns)


def edge(of: Sequence, event: Any, time_ns: int) -> Edge:
    """An event, its names looked up."""
    arguments: dict[str, Any] = {}
    for one in event.debug_annotations:
        name = one.name or of.names["debug_annotation_names"].get(one.name_iid)
        arguments[str(name)] = getattr(one, one.WhichOneof("value"))
    category = event.category_iids[0] if event.category_iids else 0
    return Edge(
        begins=event.type == BEGIN,
        time_ns=time_ns,
        track=event.track_uuid if event.HasField("track_uuid") else of.track,
        name=event.name or of.names["event_names"].get(event.name_iid),
        category=of.names["event_categories"].get(category),
        arguments=arguments,
    )


def slices(content: bytes) -> tuple[list[Edge], dict[int, Any]]:
    """§1.1.4: the slices that begin, each with its end if it has one; and the tracks."""
    found = told(content)
    left = paired_in_order(found.edges)
    open_: dict[int, list[Edge]] = defaultdict(list)
    for one in sorted(left, key=lambda one: one.time_ns):
        if one.begins:
            open_[one.track].append(one)
        elif open_[one.track]:
            open_[one.track].pop().end_ns = one.time_ns
    return [one for one in found.edges if one.begins], found.tracks


def paired_in_order(edges: list[Edge]) -> list[Edge]:
    """Give ends to the begins directly before as many; returns the edges that are left."""
    runs: list[list[Edge]] = []
    for one in edges:
        if not runs or runs[-1][0].begins != one.begins:
            runs.append([])
        runs[-1].append(one)
    left = list(edges)
    for begins, ends in pairwise(runs):
        times = [one.time_ns for one in (*begins, *ends)]
        fit = (
            begins[0].begins
            and [one.track for one in begins] == [one.track for one in ends]
            and all(b.time_ns <= e.time_ns for b, e in zip(begins, ends, strict=True))
            and (len(begins) == 1 or times != sorted(times))
        )
        if fit:
            for begin, end in zip(begins, ends, strict=True):
                begin.end_ns = end.time_ns
            left = [one for one in left if one not in begins and one not in ends]
    return left


def owner(tracks: dict[int, Any], number: int, of: str) -> int | None:
    """§1.1.5: the pid or tid that a track or the nearest one around it names."""
    seen = set()
    while number in tracks and number not in seen:
        seen.add(number)
        track = tracks[number]
        if track.HasField("thread") and track.thread.HasField(of):
            return int(getattr(track.thread, of))
        if of == "pid" and track.HasField("process") and track.process.HasField("pid"):
            return int(track.process.pid)
        number = track.parent_uuid
    return None


def key(pid: int | None, tid: int | None = 0) -> int | None:
    """The key of a process, or of a thread in it."""
    if pid is None or tid is None:
        return None
    return (pid & LOW_24_BITS) << 24 | tid & LOW_24_BITS


def rocprof(content: bytes) -> dict[str, list[Row]]:
    """Operations, calls and ranges of a trace of rocprofv3."""
    found, tracks = slices(content)
    told: dict[str, list[Row]] = {"ops": [], "shapes": [], "copies": [], "calls": [], "ranges": []}
    calls = {
        one.arguments.get("corr_id")
        for one in found
        if one.category == "hip_api" and one.name is not None
    }
    around = {
        one.arguments.get("corr_id"): one.arguments.get("ancestor_id")
        for one in found
        if one.category in ("hsa_api", "hip_api")
    }
    for one in found:
        args = one.arguments
        start, end = args.get("begin_ns", one.time_ns), args.get("end_ns", one.end_ns)
        pid = owner(tracks, one.track, "pid")
        tid = args.get("tid", owner(tracks, one.track, "tid"))
        place = (key(pid), key(pid, tid))
        own = args.get("corr_id")
        outer = around.get(own)
        correlation = (outer if own not in calls and outer in calls else own) or None
        stream = args.get("stream_ID", args.get("stream_id", args.get("queue")))
        if end is None:
            continue
        if one.category == "kernel_dispatch" and one.name and agent(args.get("agent")) is not None:
            where = agent(args["agent"]), place[0], stream, correlation
            told["ops"].append(("kernel", start, end, *where, one.name))
            told["shapes"].append(shape(args))
        elif one.category == "memory_copy":
            way = direction(one.name or "", args)
            source, target = agent(args.get("src_agent")), agent(args.get("dst_agent"))
            device = {"DtoH": source, "unknown": None}.get(way, target)
            if device is not None:
                where = device, place[0], stream, correlation
                told["ops"].append(("memcpy", start, end, *where, f"memcpy {way}"))
                told["copies"].append((args.get("copy_bytes"), way))
        elif one.category == "hip_api" and one.name:
            told["calls"].append((start, end, *place, own or None, one.name))
        elif one.category in ("rccl_api", "marker_api") and place[1] is None:
            continue
        elif one.category == "rccl_api" and one.name:
            told["ranges"].append((start, end, *place, "NCCL", one.name))
        elif (
            one.category == "marker_api"
            and one.name
            and not re.fullmatch(r"roctx[A-Z]\w*", one.name)
        ):
            told["ranges"].append((start, end, *place, None, one.name))
    return told


def agent(value: Any) -> int | None:
    """The number of an agent."""
    match = re.search(r"(\d+)$", str(value))
    return int(match[1]) if match else None


def direction(name: str, args: dict[str, Any]) -> str:
    """The direction of a copy."""
    way = next((way for text, way in DIRECTIONS.items() if text in name), "unknown")
    peers = way == "DtoD" and agent(args.get("src_agent")) != agent(args.get("dst_agent"))
    return "PtoP" if peers else way


def shape(args: dict[str, Any]) -> Row:
    """The blocks of a kernel's grid and the threads of a block, by axis."""
    threads, block = (sizes(args.get(name)) for name in ("grid_size", "workgroup_size"))
    blocks = [
        None if of is None or not by else -(-of // by)
        for of, by in zip(threads, block, strict=True)
    ]
    return (*blocks, *block)


def sizes(value: Any) -> list[int | None]:
    """A size by axis."""
    if value is None:
        return [None] * 3
    if isinstance(value, int):
        return [value, 1, 1]
    return [
        int(match[1]) for match in (re.search(rf"{axis}=(\d+)", value) for axis in "xyz") if match
    ]
