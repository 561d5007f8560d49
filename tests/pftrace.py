"""Small traces in Perfetto's format, as rocprofv3 and as torch.profiler's monitor write them, made
with the classes of the `perfetto` package."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from nsysflow.report.perfetto.packets import varint
from tests.rocpd import PID

PROCESS: Final = 1
STREAM: Final = 1000
MAIN_TRACK: Final = 2
BOOTTIME: Final = 6
INCREMENTAL: Final = 64

NAMES: Final = "event_names"
CATEGORIES: Final = "event_categories"
ARGUMENTS: Final = "debug_annotation_names"


@dataclass
class PacketWriter:
    """Packets of one sequence. Names are numbered, and written before they are used."""

    sequence: int = 1
    packets: list[Any] = field(default_factory=list)
    known: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def packet(self, **fields: Any) -> None:
        self.packets.append(protos.TracePacket(trusted_packet_sequence_id=self.sequence, **fields))

    def clear(self, **fields: Any) -> None:
        """Number names anew from here on."""
        self.known.clear()
        self.packet(sequence_flags=protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED, **fields)

    def iid(self, kind: str, name: str) -> int:
        known = self.known[kind]
        if name not in known:
            known[name] = len(known) + 1
            interned = protos.InternedData()
            getattr(interned, kind).add(iid=known[name], name=name)
            self.packet(interned_data=interned)
        return known[name]

    def event(self, time: int, clock: int | None = None, **fields: Any) -> None:
        self.packet(
            timestamp=time,
            timestamp_clock_id=clock,
            sequence_flags=protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE,
            track_event=protos.TrackEvent(**fields),
        )

    def content(self) -> bytes:
        return bytes(protos.Trace(packet=self.packets).SerializeToString())


def argument(name: str, value: Any) -> Any:
    """A DebugAnnotation with its name as text, as torch.profiler writes it."""
    told = protos.DebugAnnotation(name=name)
    if isinstance(value, dict):
        told.dict_entries.extend(argument(key, each) for key, each in value.items())
    elif isinstance(value, list):
        told.array_values.extend(argument("", each) for each in value)
        for each in told.array_values:
            each.ClearField("name")
    elif isinstance(value, bool):
        told.bool_value = value
    elif isinstance(value, int):
        told.int_value = value
    elif isinstance(value, float):
        told.double_value = value
    else:
        told.string_value = "null" if value is None else str(value)
    return told


@dataclass
class Rocprof:
    """A trace of rocprofv3.

    Attributes:
        out: its packets.
        converted: whether rocpd wrote it from a database, with sizes as text and names in events.
    """

    out: PacketWriter = field(default_factory=PacketWriter)
    converted: bool = False

    def __post_init__(self) -> None:
        defaults = protos.TracePacketDefaults(timestamp_clock_id=INCREMENTAL)
        defaults.track_event_defaults.track_uuid = MAIN_TRACK
        clocks = protos.ClockSnapshot()
        clocks.clocks.add(clock_id=BOOTTIME, timestamp=5)
        clocks.clocks.add(clock_id=INCREMENTAL, timestamp=5, is_incremental=True)
        self.out.clear(trace_packet_defaults=defaults, clock_snapshot=clocks)
        self.track(PROCESS, process=protos.ProcessDescriptor(pid=PID, process_name="python"))
        main = protos.ThreadDescriptor(pid=PID, tid=PID, thread_name="python")
        self.track(MAIN_TRACK, parent_uuid=PROCESS, thread=main)

    def track(self, uuid: int, **fields: Any) -> None:
        self.out.packet(track_descriptor=protos.TrackDescriptor(uuid=uuid, **fields))

    def slice(
        self, track: int, start: int, end: int, name: str, category: str, told: Mapping[str, Any]
    ) -> None:
        begin = protos.TrackEvent(
            type="TYPE_SLICE_BEGIN",
            track_uuid=track,
            category_iids=[self.out.iid(CATEGORIES, category)],
            flow_ids=[told["corr_id"] ^ PROCESS],
        )
        if self.converted:
            begin.name = name
        else:
            begin.name_iid = self.out.iid(NAMES, name)
        times = {"begin_ns": start, "end_ns": end, "delta_ns": end - start}
        for key, value in {**times, **told}.items():
            one = begin.debug_annotations.add(name_iid=self.out.iid(ARGUMENTS, key))
            setattr(one, "string_value" if isinstance(value, str) else "uint_value", value)
        flags = protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        at = {"timestamp_clock_id": BOOTTIME, "sequence_flags": flags}
        self.out.packet(timestamp=start, track_event=begin, **at)
        ends = protos.TrackEvent(type="TYPE_SLICE_END", track_uuid=track)
        self.out.packet(timestamp=end, track_event=ends, **at)

    def call(
        self,
        start: int,
        end: int,
        corr_id: int,
        name: str = "hipLaunchKernel",
        category: str = "hip_api",
        *,
        tid: int = PID,
        ancestor: int = 0,
    ) -> None:
        told = {"tid": tid, "corr_id": corr_id, "ancestor_id": ancestor}
        self.slice(MAIN_TRACK if tid == PID else 3, start, end, name, category, told)

    def kernel(self, start: int, end: int, corr_id: int, name: str = "add", **more: Any) -> None:
        told: dict[str, Any] = {"agent": "GPU-0", "corr_id": corr_id, "queue": 3, "tid": PID}
        sizes: dict[str, Any] = {"workgroup_size": 64, "grid_size": 256}
        if self.converted:
            sizes = {
                "workgroup_size": "64 (x=32, y=2, z=1)",
                "grid_size": "256 (x=64, y=4, z=1)",
            }
        told |= {"LDS_Block_Size": 1024, "VGPR_Count": 32, **sizes, "stream_ID": 1, **more}
        track = STREAM + told["stream_ID"]
        self.track(track, parent_uuid=PROCESS, name=f'STREAM [" {told["stream_ID"]} "] ')
        self.slice(track, start, end, name, "kernel_dispatch", told)

    def copy(
        self, start: int, end: int, corr_id: int, source: str, target: str, moved: int, way: str
    ) -> None:
        told: dict[str, Any] = {"src_agent": source, "dst_agent": target, "copy_bytes": moved}
        told |= {"corr_id": corr_id, "tid": PID, "stream_ID": 1}
        self.slice(STREAM + 1, start, end, f"MEMORY_COPY_{way}", "memory_copy", told)

    def content(self) -> bytes:
        return self.out.content()


_GPU: Final = {"kernel": (1, "Kernel"), "gpu_memcpy": (2, "Memcpy"), "gpu_memset": (3, "Memset")}
_LANES: Final = 100
_EXTRA: Final = {
    "device": "device id",
    "stream": "stream id",
    **{name: name for name in ("correlation", "graph id", "graph node id", "bytes")},
}
_KERNELS: Final = 1000
_LAUNCH_ARGUMENTS: Final = 1001


def _interned(number: int, iid: int, field_number: int, text: str) -> bytes:
    """A field of InternedData that the package's class lacks."""
    content = protos.EventName(iid=iid, name=text).SerializeToString()
    if field_number != 2:  # the name of an EventName
        content = content.replace(b"\x12", bytes([field_number << 3 | 2]), 1)
    key = number << 3 | 2
    return varint(key) + varint(len(content)) + bytes(content)


def monitor_trace(events: Iterable[Mapping[str, Any]], base_ns: int = 0) -> bytes:
    """The events of a JSON trace of torch.profiler as its monitor writes them: the begins of all
    slices, their ends, and a render stage for each operation of a GPU."""
    out = PacketWriter()
    host = [event for event in events if event.get("ph") == "X" and event["cat"] not in _GPU]
    gpu = [event for event in events if event.get("ph") == "X" and event["cat"] in _GPU]
    clocks = protos.ClockSnapshot()
    clocks.clocks.add(clock_id=BOOTTIME, timestamp=base_ns)
    out.packet(timestamp=base_ns, clock_snapshot=clocks)
    tracks = _tracks(out, host)
    words: dict[str, dict[str, int]] = defaultdict(dict)

    def iid(kind: str, text: str) -> int:
        return words[kind].setdefault(text, len(words[kind]) + 1)

    begins, ends, stages = [], [], []
    for event in host:
        start, end = _span(event, base_ns)
        args = event.get("args", {})
        begin = protos.TrackEvent(
            type="TYPE_SLICE_BEGIN",
            track_uuid=tracks[event["pid"], event["tid"]],
            name_iid=iid("name", event["name"]),
            debug_annotations=[argument(name, value) for name, value in args.items()],
        )
        if event["cat"] == "cuda_sync":
            begin.debug_annotations.append(argument("cuda_sync_kind", event["name"]))
        else:
            begin.category_iids.append(iid("category", event["cat"]))
        ending = protos.TrackEvent(type="TYPE_SLICE_END", track_uuid=begin.track_uuid)
        begins.append((start, begin))
        ends.append((end, ending))
    for number, event in enumerate(gpu, 1):
        stages.append(_stage(event, number, base_ns, iid))
    _intern(out, words)
    for time, of in (*begins, *ends):
        out.packet(timestamp=time, sequence_flags=2, track_event=of)
    for time, stage in stages:
        out.packet(timestamp=time, sequence_flags=2, gpu_render_stage_event=stage)
    return out.content()


def _span(event: Mapping[str, Any], base_ns: int) -> tuple[int, int]:
    start = base_ns + round(event["ts"] * 1000)
    return start, start + round(event.get("dur", 0) * 1000)


def _tracks(out: PacketWriter, events: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, Any], int]:
    """Describe the processes and threads; the number of each thread's track."""
    numbers: dict[tuple[Any, Any], int] = {}
    for event in events:
        pid, tid = event["pid"], event["tid"]
        for key in ((pid, None), (pid, tid)):
            if key not in numbers:
                numbers[key] = len(numbers) + 1
                described = protos.TrackDescriptor(uuid=numbers[key])
                if key[1] is None:
                    described.process.pid = _number(pid)
                else:
                    described.parent_uuid = numbers[pid, None]
                    described.thread.pid, described.thread.tid = _number(pid), _number(tid)
                    described.thread.thread_name = f"thread {tid}"
                out.packet(track_descriptor=described)
    return numbers


def _number(value: Any) -> int:
    return value & 0x7FFF_FFFF if isinstance(value, int) else 1


def _stage(event: Mapping[str, Any], number: int, base_ns: int, iid: Any) -> tuple[int, Any]:
    start, end = _span(event, base_ns)
    args = event["args"]
    stage = protos.GpuRenderStageEvent(
        event_id=number,
        duration=end - start,
        gpu_id=args["device"],
        hw_queue_iid=_LANES + iid("lane", f"[{args['stream']:03}] stream {args['stream']}"),
        stage_iid=_GPU[event["cat"]][0],
        context=1,
    )
    for key, name in _EXTRA.items():
        if args.get(key):
            stage.extra_data.add(name=name, value=str(args[key]))
    if event["cat"] == "kernel":
        stage.name_iid = iid("name", event["name"])
        stage.kernel_iid = iid("kernel", event["name"])
        for side, of in (("grid", stage.launch.grid_size), ("block", stage.launch.workgroup_size)):
            of.x, of.y, of.z = args.get(side) or (1, 1, 1)
        stage.launch.args.add(name_iid=1, uint_value=args.get("registers per thread", 0))
    return start, stage


def _intern(out: PacketWriter, words: Mapping[str, Mapping[str, int]]) -> None:
    interned = protos.InternedData()
    for text, number in words["name"].items():
        interned.event_names.add(iid=number, name=text)
    for text, number in words["category"].items():
        interned.event_categories.add(iid=number, name=text)
    for number, text in _GPU.values():
        interned.gpu_specifications.add(iid=number, name=text)
    for text, number in words["lane"].items():
        interned.gpu_specifications.add(iid=_LANES + number, name=text)
    beyond = b"".join(_interned(_KERNELS, of, 3, text) for text, of in words["kernel"].items())
    beyond += _interned(_LAUNCH_ARGUMENTS, 1, 2, "registers_per_thread")
    interned.MergeFromString(beyond)
    out.clear(interned_data=interned)
