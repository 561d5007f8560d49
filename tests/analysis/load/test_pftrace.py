"""Traces in Perfetto's format: of rocprofv3, of torch.profiler's monitor, and our own."""

import gzip
import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis import schema
from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.load.pftrace.contents import read_contents
from nsysflow.analysis.load.pftrace.exported import FRAMES
from nsysflow.analysis.load.pftrace.names import REPORT_FIELD, ROWS_FIELD
from nsysflow.analysis.load.pftrace.tracks import slices_of
from nsysflow.analysis.load.pftrace.wire import Block, Malformed, fields_of, is_pftrace
from nsysflow.analysis.trace import NoteKind, Trace
from nsysflow.base.errors import Damaged, NotAReport, NsysflowError
from nsysflow.report.perfetto.packets import field_key, framed_packet
from nsysflow.report.perfetto.packets import varint as encoded
from nsysflow.report.perfetto.trace import write_trace
from nsysflow.report.results import Origin, Results
from tests.analyses import EXAMPLES, OF_REPORT, analysed, run_of
from tests.analyses import loaded as report_of
from tests.analysis.idle.test_gil_estimate import AUDIT, PROGRAM, QUEUE, lock, sampled
from tests.analysis.load.frames import assert_schemas
from tests.oracle import pftrace as oracle
from tests.oracle.model import to_trace
from tests.pftrace import BOOTTIME, Rocprof, monitor_trace
from tests.rocpd import PID, assert_is_step
from tests.tiny import WORKER

KINETO: Final = Path("tests/data/h200-kineto.pt.trace.json.gz")


few = settings(max_examples=2 * EXAMPLES, deadline=None)


def loaded(tmp_path: Path, content: bytes, name: str = "run.pftrace") -> Trace:
    path = tmp_path / name
    path.write_bytes(content)
    trace = load(path)
    assert_schemas(trace)
    return trace


def step(*, converted: bool = False) -> Rocprof:
    """A step of rocprofv3: a kernel, a wait for it, a copy to the GPU."""
    run = Rocprof(converted=converted)
    run.call(0, 200, 9, "step 1", "marker_api")
    run.call(5, 10, 1)
    run.kernel(12, 40, 1)
    run.call(41, 100, 2, "hipDeviceSynchronize_spt")
    run.call(110, 150, 3, "hipMemcpy")
    run.copy(120, 149, 3, "CPU-0", "GPU-0", 4096, "HOST_TO_DEVICE")
    return run


@pytest.mark.parametrize("converted", [False, True])
def test_a_trace_of_rocprofv3_tells_what_its_database_does(
    tmp_path: Path, *, converted: bool
) -> None:
    trace = loaded(tmp_path, step(converted=converted).content())
    assert (trace.report, trace.collector) == ("run", "rocprof")
    grid = (2, 2, 1, 32, 2, 1) if converted else (4, 1, 1, 64, 1, 1)
    assert trace.shapes.rows() == [(*grid, 32, 1024)]
    assert_is_step(trace)
    assert {note.kind for note in trace.notes} == {NoteKind.NOT_CARRIED}
    gaps = nsysflow.analyze(trace).gaps
    assert gaps.select("duration_ns", "cause").rows() == [(80, "sync")]


_EDGES = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.integers(0, 6), st.integers(1, 2)), max_size=14
)


@few
@given(edges=_EDGES)
def test_slices_end_where_the_slow_reading_says(edges: list[tuple[int, int, int]]) -> None:
    out = Rocprof()
    for of, time, track in edges:
        out.out.event(time, BOOTTIME, type=of, track_uuid=track)
    expected = [(one.time_ns, one.end_ns, one.track) for one in oracle.slices(out.content())[0]]
    contents = read_contents(BytesIO(out.content()), frozenset())
    found = slices_of(contents.events).select("start_ns", "end_ns", "track").rows()
    assert found == expected


_CALLS = (
    *(("hipLaunchKernel", "hip_api"), ("hsa_signal", "hsa_api"), ("ncclAllReduce", "rccl_api")),
    *(("roctxMarkA", "marker_api"), ("forward", "marker_api")),
)
_AGENTS = ("CPU-0", "GPU-0", "GPU-1")
_NUMBER = st.integers(0, 4)
_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("call", "kernel", "copy", "clear")),
        *(st.integers(0, 60), st.integers(0, 40)),
        *(_NUMBER, _NUMBER, _NUMBER, st.sampled_from((*oracle.DIRECTIONS, "HOST_TO_HOST"))),
    ),
    max_size=12,
)


def random_run(events: list[tuple[Any, ...]], *, converted: bool) -> Rocprof:
    """A trace of these events, and a kernel behind them."""
    run = Rocprof(converted=converted)
    for kind, start, length, correlation, one, other, way in events:
        span = (start, start + length, correlation)
        if kind == "clear":
            run.out.clear()
        elif kind == "call":
            run.call(*span, *_CALLS[one], tid=(PID, 12)[other % 2], ancestor=other)
        elif kind == "kernel":
            name, agent = ("add", "mul<int>")[one % 2], ("GPU-0", "Agent-3", "7")[other % 3]
            run.kernel(*span, name, agent=agent, stream_ID=(one + other) % 3)
        else:
            run.copy(*span, _AGENTS[one % 3], _AGENTS[other % 3], 8, way)
    run.kernel(200, 210, 1)
    return run


def is_left_out(event: tuple[Any, ...]) -> bool:
    """Whether it is a copy within the host, or a range of a thread that the trace does not name."""
    kind, *_, one, other, way = event
    ranged = _CALLS[one][0] in ("ncclAllReduce", "forward")
    return way == "HOST_TO_HOST" if kind == "copy" else kind == "call" and ranged and other % 2 == 1


@few
@given(events=_EVENTS, converted=st.booleans())
def test_random_traces_of_rocprofv3_are_read_as_the_slow_reading_does(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[Any, ...]], *, converted: bool
) -> None:
    run = random_run(events, converted=converted)
    content = run.content()
    expected = oracle.rocprof(content)
    trace = loaded(tmp_path_factory.mktemp("random"), content)
    unusable = any(NoteKind.UNUSABLE_ROWS is note.kind for note in trace.notes)
    assert unusable == any(map(is_left_out, events))
    op = ["kind", "start_ns", "end_ns", "device", "process", "stream", "correlation", "name"]
    call = ["start_ns", "end_ns", "process", "thread", "correlation", "name"]
    opened = ["start_ns", "end_ns", "process", "thread", "domain", "name"]
    found = {
        "ops": trace.ops.select(op).rows(),
        "shapes": trace.shapes.drop("registers", "shared_bytes").rows(),
        "copies": trace.copy_details.select("bytes", "direction").rows(),
        "calls": trace.calls.select(call).rows(),
        "ranges": trace.ranges.select(opened).rows(),
    }
    assert {name: Counter(rows) for name, rows in found.items()} == {
        name: Counter(rows) for name, rows in expected.items()
    }


def test_times_of_an_incremental_clock_add_up(tmp_path: Path) -> None:
    run = Rocprof()
    category = [run.out.iid("event_categories", "kernel_dispatch")]
    agent = run.out.iid("debug_annotation_names", "agent")
    begin = protos.TrackEvent(
        type="TYPE_SLICE_BEGIN", track_uuid=9, category_iids=category, name="k"
    )
    begin.debug_annotations.add(name_iid=agent, string_value="GPU-1")
    for step_ns in (100, 1000):
        run.out.packet(timestamp=step_ns, track_event=begin)
        run.out.packet(
            timestamp=7, track_event=protos.TrackEvent(type="TYPE_SLICE_END", track_uuid=9)
        )
    ops = loaded(tmp_path, run.content()).ops
    assert ops.select("start_ns", "end_ns").rows() == [(105, 112), (1112, 1119)]


def test_a_track_around_itself_is_of_no_process(tmp_path: Path) -> None:
    run = step()
    run.track(50, parent_uuid=51)
    run.track(51, parent_uuid=50)
    run.slice(50, 160, 170, "hipFree", "hip_api", {"corr_id": 8})
    calls = loaded(tmp_path, run.content()).calls
    assert calls.filter(start_ns=160).select("process", "thread").rows() == [(None, None)]


def counted(frame: pl.DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(frame.rows())


def bytes_field(number: int, content: bytes) -> bytes:
    return field_key(number, 2) + encoded(len(content)) + content


def packet(*fields: bytes) -> bytes:
    return framed_packet(b"".join(fields))


def test_the_monitor_s_trace_tells_what_its_json_does(tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(KINETO.read_bytes()))
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    for number, event in enumerate(event for event in events if event.get("cat") == "cpu_op"):
        event["args"] |= {"Input Dims": [[number % 3, 4], []], "Input type": ["float", "Scalar"]}
    plain = tmp_path / "run.json"
    plain.write_text(json.dumps({"traceEvents": events}))
    known = load(plain)
    trace = loaded(tmp_path, gzip.compress(monitor_trace(events)), "run.pftrace.gz")
    assert trace.collector == "kineto"
    named = pl.when(pl.col("kind") != "memcpy").then(pl.col("name", "short_name"))
    assert counted(trace.ops.with_columns(named)) == counted(known.ops.with_columns(named))
    assert counted(trace.shapes.drop("shared_bytes")) == counted(known.shapes.drop("shared_bytes"))
    assert trace.copy_details["bytes"].equals(known.copy_details["bytes"])
    for name in ("calls", "ranges", "running", "operators"):
        assert counted(getattr(trace, name)) == counted(getattr(known, name)), name
    assert len(known.operators)
    dims = [json.loads(text) for text in trace.operator_shapes["dims"]]
    assert dims == [json.loads(text) for text in known.operator_shapes["dims"]]
    assert {NoteKind.NOT_CARRIED} <= {note.kind for note in trace.notes}


def gpu_event(cat: str, name: str, start: float, **args: Any) -> dict[str, Any]:
    args = {"device": 1, "stream": 7, "correlation": 3, **args}
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": 1.5, "args": args}


def test_nodes_of_graphs_have_the_number_of_their_graph_too(tmp_path: Path) -> None:
    events = [
        gpu_event("kernel", "add", 2.0, **{"graph id": 2, "graph node id": 5, "grid": [4, 1, 1]}),
        gpu_event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 4.0, bytes=64),
        gpu_event("gpu_memset", "Memset (Device)", 6.0, bytes=64),
    ]
    trace = loaded(tmp_path, monitor_trace(events, base_ns=10**18))
    first = 10**18 + 2000
    assert trace.ops.drop("process", "detail", "short_name").rows() == [
        ("kernel", first, first + 1500, 1, 7, 3, 2 << 32 | 5, "add"),
        ("memcpy", first + 2000, first + 3500, 1, 7, 3, None, "memcpy unknown"),
        ("memset", first + 4000, first + 5500, 1, 7, 3, None, "memset"),
    ]
    assert trace.shapes["grid_x"].to_list() == [4]
    assert trace.copy_details.rows() == [(64, "unknown", None, None)]


ROUND_TRIPS: Final = (
    *("h2d-pageable", "trainstep-graph", "overlap-side_stream", "ddp-bucketed-rank0"),
    *("nan_check-sync-metrics", "h200-graph-level", "h200-host-split"),
)
"""Reports with copies of each kind of memory, graphs, streams, NCCL, marked windows, samples of
counters and of Python, and operators."""


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_our_own_export_gives_the_same_frames_and_tables(name: str, tmp_path: Path) -> None:
    known, first = report_of(name), analysed(name)
    trace = loaded(tmp_path, exported(run_of(name)), f"{name}.pftrace")
    op = [column for column in schema.OPS if column != "detail"]
    assert counted(trace.ops.select(op)) == counted(known.ops.select(op))
    for frame in ("shapes", "copy_details", "calls", *FRAMES):
        if frame not in ("diagnostics", "frames"):  # what was lost; short names of files
            assert counted(getattr(trace, frame)) == counted(getattr(known, frame)), frame
    again = nsysflow.analyze(trace)
    for table in OF_REPORT:
        assert_frame_equal(getattr(again, table), getattr(first, table))
    assert (trace.collector, trace.devices.rows()) == (known.collector, known.devices.rows())
    assert trace.notes == known.notes


def exported(results: Results) -> bytes:
    """The trace of a report for Perfetto."""
    out = BytesIO()
    write_trace(results, out)
    return out.getvalue()


def test_an_export_of_a_trace_of_torch_profiler_has_its_operators(tmp_path: Path) -> None:
    first = nsysflow.analyze(replace(load(KINETO), report="run"))
    run = Results([first], origin=Origin(paths={"run": KINETO}, typed=(KINETO,)))
    again = nsysflow.analyze(loaded(tmp_path, exported(run)))
    assert len(first.trace.running)
    for table in OF_REPORT:
        assert_frame_equal(getattr(again, table), getattr(first, table))


def test_an_export_has_the_samples_that_an_estimate_of_the_lock_needs(tmp_path: Path) -> None:
    stacks = [*sampled(PROGRAM, QUEUE), *sampled(QUEUE, AUDIT, thread=WORKER)]
    first = nsysflow.analyze(replace(to_trace(lock(15, 20, samples=stacks)), report="run"))
    again = nsysflow.analyze(loaded(tmp_path, exported(Results([first]))))
    assert first.gil["function"].to_list() == ["redact"]
    assert first.gil["gil_ns"].sum() > 0
    for table in ("gil", "gaps", "cpu", "host_stacks"):
        assert_frame_equal(getattr(again, table), getattr(first, table))


def test_an_export_of_several_reports_is_refused(tmp_path: Path) -> None:
    one = exported(run_of("h2d-pageable"))
    with pytest.raises(NotAReport, match="an export of 2 reports"):
        loaded(tmp_path, one + one)


def test_a_file_without_its_last_bytes_is_read_up_to_there_and_says_so(tmp_path: Path) -> None:
    whole = step().content()
    ends = [field.end for field in fields_of(whole, 0, len(whole))]
    around = (end + more for end in ends[:: len(ends) // 5] for more in (-1, 0, 1))
    for size in (size for size in around if ends[0] <= size < len(whole)):
        path = tmp_path / "run.pftrace"
        path.write_bytes(whole[:size])
        try:
            trace = load(path)
        except NotAReport:  # no event is whole
            assert size < len(whole) // 2
            continue
        said = [str(note) for note in trace.notes if note.kind is NoteKind.CUT_OFF]
        missing = size - max(end for end in ends if end <= size)
        assert bool(said) == bool(missing)
        assert not said or f" {missing:,} bytes" in said[0]
    with pytest.raises(Damaged, match="no whole packet"):
        loaded(tmp_path, packet(bytes_field(33, bytes(9999)))[:9000])


HOSTILE: Final = {
    "length beyond the file": b"\x0a\xff\xff\xff\xff\x7f",
    "length of 2^63": b"\x0a" + b"\xff" * 9 + b"\x01",
    "endless varint": b"\x0a" + b"\xff" * 40,
    "group": b"\x0b\x0c",
    "number for a packet": b"\x08\x01",
    "zeros": bytes(64),
}


@pytest.mark.parametrize("behind", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_packet_ends_the_trace(behind: bytes, tmp_path: Path) -> None:
    trace = loaded(tmp_path, step().content() + behind)
    assert len(trace.ops) == 2
    assert NoteKind.CUT_OFF in {note.kind for note in trace.notes}


def nested(levels: int) -> bytes:
    """An argument in so many lists."""
    return bytes_field(12, nested(levels - 1)) if levels else b""


MALFORMED: Final = {
    "event that is too long": packet(field_key(11, 2), encoded(99), b"\x48\x01"),
    "event as a number": packet(field_key(11, 0), encoded(1)),
    "names that end within a name": packet(bytes_field(12, b"\x12\x05\x08\x01\x12\x09a")),
    "descriptor of wrong types": packet(bytes_field(60, b"\x0a\x01\x01\x18\x07\x20\x07")),
    "field 0": packet(b"\x00\x00"),
    "name with NUL": packet(bytes_field(12, b"\x12\x06\x08\x63\x12\x02a\x00")),
    "clock that turns time back": packet(
        bytes_field(6, b"\x0a" + encoded(14) + b"\x08\x40\x10" + b"\xff" * 9 + b"\x01\x18\x01")
    ),
    "deep argument": packet(
        bytes_field(11, b"\x48\x01" + bytes_field(4, b"\x52\x07corr_id" + nested(200)))
    ),
    "name of an unknown kind": packet(bytes_field(12, bytes_field(99, b"\x08\x01\x12\x01a"))),
    "name without a number": packet(bytes_field(12, bytes_field(2, b"\x12\x01a"))),
    "number for a name": packet(bytes_field(12, bytes_field(2, b"\x08\x63\x10\x05"))),
    "clock beside clocks": packet(bytes_field(6, b"\x10\x05" + bytes_field(1, b"\x08\x06"))),
    "defaults of nothing": packet(bytes_field(59, b"\x08\x01")),
    "defaults of a track of no number": packet(bytes_field(59, bytes_field(11, b"\x08\x01"))),
    "event with many fields": packet(bytes_field(11, b"\x48\x01" * 5000)),
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_packet_hurts_no_other(content: bytes, tmp_path: Path) -> None:
    whole = step().content()
    first = next(fields_of(whole, 0, len(whole))).end
    trace = loaded(tmp_path, whole[:first] + content + whole[first:] + content)
    assert len(trace.ops) == 2


REPORT: Final = (
    REPORT_FIELD,
    b'{"report":"r","collector":"nsys","source":"s","shift_ns":0,"lanes":[],"notes":[]}',
)
DAMAGED_EXPORTS: Final = {
    "no description": [(REPORT_FIELD, b"{}")],
    "rows of an unknown frame": [REPORT, (ROWS_FIELD, b'{"frame":"x","columns":{}}')],
    "columns of different lengths": [
        REPORT,
        (ROWS_FIELD, b'{"frame":"threads","columns":{"process":[1],"thread":[],"name":[]}}'),
    ],
}


@pytest.mark.parametrize("fields", DAMAGED_EXPORTS.values(), ids=DAMAGED_EXPORTS)
def test_a_damaged_export_is_corrupt(fields: list[tuple[int, bytes]], tmp_path: Path) -> None:
    content = b"".join(packet(bytes_field(*of)) for of in fields)
    with pytest.raises(Damaged, match="corrupt"):
        loaded(tmp_path, content)


@few
@given(place=st.integers(0, 5000), value=st.integers(0, 255))
def test_an_overwritten_byte_raises_nothing_but_report_errors(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    content = bytearray(step().content())
    content[place % len(content)] = value
    path = tmp_path_factory.mktemp("byte") / "run.pftrace"
    path.write_bytes(content)
    with suppress(NsysflowError):
        assert nsysflow.analyze(load(path)).gap_summary.width


@given(content=st.binary(max_size=60), sizes=st.lists(st.integers(0, 30), max_size=4))
def test_many_messages_are_read_as_each_alone(content: bytes, sizes: list[int]) -> None:
    edges = [min(sum(sizes[:at]), len(content)) for at in range(len(sizes) + 1)]
    places = {"row": range(len(sizes)), "start": edges[:-1], "end": edges[1:]}
    messages = pl.DataFrame(places, dict.fromkeys(places, pl.UInt32))
    expected = []
    for row, start, end in messages.iter_rows():
        with suppress(Malformed):
            for one in fields_of(content, start, end):
                value = one.end - one.value if one.wire == 2 else one.value
                expected.append((row, one.number, one.wire, value, one.end))
    block = Block.of(content, [])
    fields = block.fields(messages).sort("row", maintain_order=True)
    assert fields.select("row", "number", "wire", "value", "end").rows() == expected


def test_it_is_known_by_its_content(tmp_path: Path) -> None:
    for name in ("run.pb", "run.json", "run", "run.sqlite", "run.perfetto-trace.gz"):
        content = step().content()
        packed = gzip.compress(content) if name.endswith(".gz") else content
        assert len(loaded(tmp_path, packed, name).ops) == 2, name


def test_text_that_begins_with_a_line_feed_is_none() -> None:
    texts = (b"\n{}", b'\n{"traceEvents": []}', b"\n\n[]\n", b"\n", b"\nid,name\n")
    assert not any(map(is_pftrace, texts))


def test_a_trace_of_another_program_is_named(tmp_path: Path) -> None:
    run = Rocprof()
    run.slice(2, 1, 2, "frame", "viz", {"corr_id": 1})
    with pytest.raises(NotAReport, match=r"a trace of Perfetto.*events of viz"):
        loaded(tmp_path, run.content())
    with pytest.raises(NotAReport, match="none of their events"):
        loaded(tmp_path, Rocprof().content())


def test_it_cannot_be_packed(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    path.write_bytes(step().content())
    with pytest.raises(NotAReport, match="in Perfetto's format"):
        pack(path, tmp_path / "run.sqlite.xz")
