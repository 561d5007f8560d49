"""A torch.profiler trace is decoded exactly, and becomes the same frames as an nsys report."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind
from nsysflow.base.errors import Damaged, NotAReport
from tests.analysis.load.frames import assert_schemas
from tests.analysis.load.kineto.traces import REAL, SIZES, agreed, call, event, kernel, write
from tests.exports import note_kinds


def test_a_real_trace_has_all_its_work_with_its_calls() -> None:
    trace = load(REAL)
    assert_schemas(trace)
    assert trace.report == "h200-kineto"
    assert trace.ops["kind"].value_counts().sort("kind")["count"].to_list() == [105, 9, 15]
    assert trace.calls.height == 154
    assert trace.ops.join(trace.calls, on=["process", "correlation"], how="anti").is_empty()
    assert trace.devices.rows() == [(0, "NVIDIA H200", None, 132, None)]
    assert trace.notes == ()
    # steps lose their number, so that they repeat
    phases = nsysflow.analyze(trace).phases
    assert phases.filter(path="ProfilerStep")["instances"].to_list() == [3]
    sides = trace.copy_details.select("direction", "source_memory", "target_memory").unique()
    assert set(sides.cast(pl.String).rows()) == {
        ("HtoD", "pageable", "device"),
        ("DtoH", "device", "pinned"),
        ("DtoD", "device", "device"),
    }


def test_what_a_trace_lacks_is_null(tmp_path: Path) -> None:
    copy = event("gpu_memcpy", "Memcpy HtoD", pid=1, tid=7, args={})
    trace = load(write(tmp_path, kernel(correlation=0), copy))
    assert_schemas(trace)
    assert trace.shapes.rows() == [(None,) * 8]
    assert trace.copy_details.rows() == [(None, "HtoD", None, None)]
    assert trace.ops["correlation"].to_list() == [None, None]
    assert trace.ops["process"].to_list() == [None, None]
    assert trace.ops["device"].to_list() == [0, 1]


@pytest.mark.parametrize("zero", [0, "0"])
def test_a_grid_of_no_blocks_is_not_known(tmp_path: Path, zero: int | str) -> None:
    """Kineto writes so of `attn_fwd.kd` on an MI300X, 658 ms of which read "runs as 0 blocks"."""
    unseen = kernel(3, 4, "attn_fwd.kd", grid=[zero] * 3, block=[zero] * 3)
    seen = kernel(8, 4, "gemm", grid=[3, 2, 1], block=[64, 1, 1])
    shapes = load(write(tmp_path, unseen, seen)).shapes.select(pl.selectors.matches("grid|block"))
    assert shapes.rows() == [(None,) * 6, (3, 2, 1, 64, 1, 1)]


def quoted(one: dict[str, Any]) -> None:
    """Write numbers as text."""
    for held in (one, one.get("args", {})):
        numbers = {key: held[key] for key in held if isinstance(held[key], int)}
        held.update({key: str(held[key]) for key in numbers if key not in ("ts", "dur")})


def aged(one: dict[str, Any]) -> None:
    """Write the categories of early Kineto versions."""
    once = {"cuda_runtime": "Runtime", "cpu_op": "Operator", "gpu_memcpy": "Memcpy"}
    once |= {"kernel": "Kernel", "gpu_memset": "Memset"}
    if str(one.get("name")).startswith("ProfilerStep#"):
        once["user_annotation"] = "Operator"
    one["cat"] = once.get(one.get("cat", ""), one.get("cat"))


@pytest.mark.parametrize("change", [quoted, aged])
def test_numbers_in_quotes_and_early_categories_are_read_alike(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    document = json.loads(gzip.decompress(REAL.read_bytes()))
    for one in document["traceEvents"]:
        change(one)
    path = tmp_path / "h200-kineto.json"
    path.write_text(json.dumps(document))
    trace, real = load(path), load(REAL)
    for frame in ("ops", "calls", "ranges", "threads", "devices", "copy_details", "shapes"):
        assert_frame_equal(getattr(trace, frame), getattr(real, frame))


def test_operators_are_not_ranges(tmp_path: Path) -> None:
    trace = load(write(tmp_path, event("cpu_op", "aten::mm")))
    assert trace.ranges.is_empty()
    assert note_kinds(trace) == [NoteKind.NO_GPU_WORK, NoteKind.NO_RANGES]


def test_steps_are_ranges_where_they_are_called_operators(tmp_path: Path) -> None:
    """As in the first versions of Kineto (its own resnet50 sample of 2021)."""
    names = [
        "ProfilerStep#16",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "Optimizer.step#SGD.step",
        "Optimizer.zero_grad#SGD.zero_grad",
    ]
    opened = [event("Operator", name, ts) for ts, name in enumerate([*names, "aten::mm"])]
    trace = load(write(tmp_path, *opened))
    assert trace.ranges["name"].to_list() == names


SPANS = st.tuples(st.integers(0, 4_300_000_000_000_999), st.integers(0, 10**12))


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "t.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def microseconds(ns: int) -> str:
    """A time as torch writes it: three decimals."""
    return f"{ns // 1000}.{ns % 1000:03}"


@settings(max_examples=5)
@given(st.lists(SPANS, min_size=20, max_size=50))
def test_times_are_exact_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]]
) -> None:
    blank = json.dumps(event("user_annotation", "a", "TS", "DUR"))
    events = [
        blank.replace('"TS"', microseconds(start)).replace('"DUR"', microseconds(length))
        for start, length in spans
    ]
    text = f'{{"traceEvents": [{", ".join(events)}]}}'
    found = (
        load(written(tmp_path_factory.mktemp("t"), text)).ranges.select("start_ns", "end_ns").rows()
    )
    assert found == [(start, start + length) for start, length in spans]


def test_a_drawn_lane_is_not_a_stream(tmp_path: Path) -> None:
    moved: dict[str, Any] = {"stream": 7, "original_stream": 41, "graph node id": 3}
    noted: dict[str, Any] = {"stream": 12, "annotated_stream": 7}
    trace = load(write(tmp_path, kernel(**moved), kernel(**noted), cudaGraphInlineAnnotated=True))
    assert trace.ops["stream"].to_list() == [41, 12]


@pytest.mark.parametrize("where", [{"correlation": 2**63}, {"stream": "9" * 20}, {"bytes": 2**70}])
def test_a_number_too_large_is_null(tmp_path: Path, where: dict[str, Any]) -> None:
    copy = {"cat": "gpu_memcpy", "name": "Memcpy HtoD"}
    trace = load(write(tmp_path, kernel(**where) | copy))
    held = pl.concat([trace.ops, trace.copy_details], how="horizontal").row(0, named=True)
    assert [held[name] for name in where] == [None]


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    assert load(written(tmp_path, json.dumps([kernel()]))).ops.height == 1


def test_json_of_another_kind_is_not_a_report(tmp_path: Path) -> None:
    events = '{"traceEvents": {}}', '{"traceEvents": [{"ph": "X"}]}'
    for document in ("{}", "[]", '{"a": [1]}', *events):
        with pytest.raises(NotAReport, match="not a trace of torch"):
            load(written(tmp_path, document))


WHOLE: Final = gzip.decompress(REAL.read_bytes()).strip()


@pytest.mark.parametrize(
    "content",
    [*(WHOLE[:size] for size in (1, 100, 5000, -1, -20)), b"[" * 100_000],
    ids=["1", "100", "5000", "all but 1", "all but 20", "brackets without end"],
)
def test_a_truncated_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Damaged, match="truncated or corrupt"):
        load(written(tmp_path, content))


CHANGE: Final[dict[str, Any]] = event("", "[memory]") | {
    "ph": "i",
    "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512},
}
COUNTER: Final[dict[str, Any]] = event("", "gpc__cycles_elapsed.avg.per_second") | {
    "ph": "C",
    "pid": "GPU 0 Counters",
    "args": {"value": 1e9},
}


@pytest.mark.parametrize("pid", ["python3", 1 << 40])
def test_a_range_of_no_process_is_left_out_with_a_note(tmp_path: Path, pid: object) -> None:
    """It became a phase around all others. Found by make fuzz on 2026-11-29."""
    rows = [
        *(event("user_annotation", "step", 0, 9), call(1, 1), kernel(3, correlation=1, **SIZES)),
        event("user_annotation", "elsewhere", 0, 90, pid=pid),
    ]
    trace = load(write(tmp_path, *rows))
    assert agreed(trace).phases["path"].to_list() == ["step"]
    assert [note.text for note in trace.notes if note.kind == NoteKind.UNUSABLE_ROWS] == [
        "1 ranges were left out: their thread is unknown"
    ]


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (event("user_annotation", "a", ts=None), "user_annotation (no time in microseconds)"),
        (event("user_annotation", "a", ts="soon"), "user_annotation (no time in microseconds)"),
        (event("python_function", "a", ts="NaN"), "python_function (no time in microseconds)"),
        (event("cpu_op", "record_param_comms", dur=2**60), "cpu_op (no time in microseconds)"),
        (event("cpu_op", "a", 9e15, 9e15), "cpu_op (no time in microseconds)"),
        (event("user_annotation", "a", tid=True), "user_annotation (no pid or no tid)"),
        (call(1, 1) | {"ts": None}, "cuda_runtime (no time in microseconds)"),
        (call(1, 1, pid=[1]), "cuda_runtime (no pid or no tid)"),
        (kernel(device="zero"), "kernel (no GPU)"),
        (kernel(device=2**40), "kernel (no GPU)"),
        (CHANGE | {"ts": 4.7e15}, "memory (no time in microseconds)"),
        (CHANGE | {"ts": None}, "memory (no time in microseconds)"),
        (COUNTER | {"ts": None}, "counter (no time in microseconds)"),
    ],
)
def test_an_impossible_event_is_left_out_with_a_note(
    tmp_path: Path, odd: dict[str, Any], said: str
) -> None:
    usable = [kernel(), call(1, 1), event("user_annotation", "a"), event("cpu_op", "b")]
    usable += [CHANGE, COUNTER]
    without, trace = load(write(tmp_path, *usable)), load(write(tmp_path, *usable, odd, odd))
    note, *others = trace.notes
    assert (note.kind, others) == (NoteKind.UNUSABLE_ROWS, [*without.notes])
    assert note.text.startswith("events were left out: 2 of ")
    assert said in note.text
    for name in ("ops", "calls", "ranges", "running", "threads", "memory", "gpu_states"):
        assert_frame_equal(getattr(trace, name), getattr(without, name))


@pytest.mark.parametrize("odd", [kernel(device="zero"), call(1, 1) | {"ts": None}])
def test_a_trace_whose_calls_or_kernels_are_all_impossible_is_damage(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    path = write(tmp_path, odd, odd, event("user_annotation", "a"))
    with pytest.raises(Damaged, match=r"none of its 2 (calls|operations of GPUs) can be used"):
        load(path)


@pytest.mark.parametrize(
    ("letter", "read"),
    [("\ud800", "\ufffd"), ("\udc00\ud800", "\ufffd\ufffd"), ("\U0001f600", "\U0001f600")],
)
def test_half_of_a_letter_has_a_mark_instead(tmp_path: Path, letter: str, read: str) -> None:
    trace = load(write(tmp_path, event("user_annotation", f"a{letter}b")))
    assert trace.ranges["name"].to_list() == [f"a{read}b"]


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "-Infinity", "1e400", '"\t"', '"caf\xe9"'])
def test_near_json_that_python_reads_is_read(tmp_path: Path, odd: str) -> None:
    text = write(tmp_path, event("user_annotation", "a"), kernel(occupancy="ODD")).read_text()
    trace = load(written(tmp_path, text.replace('"ODD"', odd).encode("latin-1")))
    assert trace.ops.height == 1
    assert trace.ranges["end_ns"].to_list() == [3000]


@pytest.mark.parametrize("properties", [None, 3, [3], [{"id": "0"}], [{"id": 2**40}], [{"id": 0}]])
def test_a_gpu_is_listed_whatever_is_said_of_it(tmp_path: Path, properties: object) -> None:
    trace = load(write(tmp_path, kernel(), deviceProperties=properties))
    assert trace.devices["device"].to_list() == [0]


# --- waits ----------------------------------------------------------------------------------------


def waited(number: int, **args: int) -> dict[str, Any]:
    of = {"device": 0, "stream": -1, "correlation": number, **args}
    return event("cuda_sync", "Event Sync", pid=0, tid=-1, args=of)


def on(stream: int, ts: int, dur: int, number: int) -> dict[str, Any]:
    return kernel(ts, dur, f"k{number}", correlation=number, **{**SIZES, "stream": stream})


RECORDED: Final = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 3}
WAITING: Final = (
    *(call(0, 1), call(2, 2), call(4, 3, "cudaEventRecord"), call(6, 4, "cudaStreamWaitEvent")),
    *(call(8, 5), call(10, 6, "cudaEventSynchronize"), call(12, 7, "cudaStreamWaitEvent")),
    *(call(50, 8, "cudaDeviceSynchronize"), on(7, 10, 5, 1), on(7, 15, 10, 2), on(20, 26, 4, 5)),
    *(waited(4, stream=20, **RECORDED), waited(6, **RECORDED)),
    *(waited(7, stream=20, wait_on_stream=7), waited(8, stream=(1 << 32) - 1)),
)


def test_a_stream_waits_for_what_came_before_the_record(tmp_path: Path) -> None:
    trace = load(write(tmp_path, *WAITING))
    assert trace.event_records.drop("process").rows() == [(0, 3, 7, 3)]
    assert trace.waits.select("correlation", "stream", "record").rows() == [
        *((4, 20, 3), (6, None, 3), (7, 20, None), (8, None, None))
    ]
    timeline = agreed(trace).timeline
    assert timeline.event_waits.missing == 1
    names = timeline.events.ops["name"].cast(str)
    edges = [(names[op], names[source]) for op, source in timeline.event_waits.edges.rows()]
    assert edges == [("k5", "k2")]


def test_odd_waits_do_not_stop_a_trace(tmp_path: Path) -> None:
    odd = (event("cuda_sync", "x"), event("cuda_sync", "x", args={"stream": "7", "record": []}))
    assert load(write(tmp_path, *WAITING, *odd)).waits.height == 6


# --- graphs and counters --------------------------------------------------------------------------


def replayed(*kernels: dict[str, Any], at: int = 0, number: int = 1) -> list[dict[str, Any]]:
    """A graph in a step, with these arguments of its kernels."""
    of = {"graph id": 5, "correlation": number, **SIZES}
    return [
        event("user_annotation", "step", at + 10, 90),
        call(at + 20, number, "cudaGraphLaunch", 10),
        *(
            kernel(at + 50 + 10 * n, 9) | {"args": {"device": 0, "stream": 7, **of, **args}}
            for n, args in enumerate(kernels)
        ),
    ]


def test_kernels_of_a_graph_are_in_the_phases_that_the_program_named_in_its_capture(
    tmp_path: Path,
) -> None:
    attention = {"graph node id": 1, "name": "attention"}
    events = replayed(
        attention,
        {"graph node id": 2, "str": "mlp"},
        {"graph node id": 3, "annotated_stream": 9},
        {"graph node id": 4, "name": "attention"},
        {"name": "outside of a graph"},
    )
    again = replayed(attention, at=1_000, number=2)
    analysis = agreed(load(write(tmp_path, *events, *again)))
    rows = analysis.phases.select("path", "kernels").rows()
    assert dict(rows) == {"step": 6, "step/attention": 3, "step/mlp": 1}
    assert not any(note.kind is NoteKind.CAPTURES_NOT_RECORDED for note in analysis.notes)


def test_names_of_no_use_leave_the_trace_readable(tmp_path: Path) -> None:
    odd: tuple[Any, ...] = (3, "", None, [], {"a": 1})
    events = replayed(*({"graph node id": at, "name": name} for at, name in enumerate(odd, 1)))
    trace = load(write(tmp_path, *events))
    assert trace.graph_nodes.is_empty()
    assert trace.graph_ranges.is_empty()


def test_a_note_says_which_counters_are_not_read(tmp_path: Path) -> None:
    counters = [
        {"ph": "C", "name": name, "pid": 0, "ts": at, "args": {"W": at}}
        for at, name in enumerate(("power", "power", "temperature", "sm clock", "a", "b\n"))
    ]
    trace = load(write(tmp_path, *replayed({}), *counters))
    (note,) = (note.text for note in trace.notes if note.kind is NoteKind.OTHER_COUNTERS)
    assert note == "counters in this trace are not read: a, b·, power, sm clock and 1 more"


# --- collectives ----------------------------------------------------------------------------------

GROUP: Final = {"Group size": 4, "Process Group Name": "3", "Process Group Ranks": "[0, 1, 2, 3]"}
NCCL: Final = "ncclDevKernel_Generic(int)"


def collective(name: str, *, ts: Any = 0, **args: Any) -> dict[str, Any]:
    moved = {"In msg nelems": 8, "Out msg nelems": 32, "dtype": "BFloat16", **GROUP}
    given = {"Collective name": name, **moved, **args}
    return event("cpu_op", "record_param_comms", ts, 9, args=given)


@pytest.mark.parametrize(
    ("name", "operation", "size"),
    [
        ("allreduce", "ncclAllReduce", 16),
        ("_allgather_base", "ncclAllGather", 16),
        ("allgather_into_tensor_coalesced", "ncclAllGather", 16),
        ("_reduce_scatter_base", "ncclReduceScatter", 64),
        ("all_to_allv", "ncclAlltoAll", 4),
        ("_broadcast_oop", "ncclBroadcast", 16),
        ("_reduce_oop", "ncclReduce", 16),
        ("recv 0<-1", "ncclRecv", 64),
    ],
)
def test_an_operation_has_nccls_name_and_size(
    tmp_path: Path, name: str, operation: str, size: int
) -> None:
    trace = load(write(tmp_path, collective(name)))
    assert trace.ranges.select("domain", "name", "end_ns").rows() == [("NCCL", operation, 9_000)]
    assert trace.messages["bytes"].to_list() == [size]
    assert trace.messages["communicator"].is_null().item() == (operation == "ncclRecv")


def test_what_a_trace_does_not_say_is_null(tmp_path: Path) -> None:
    odd = (
        collective("allreduce", dtype="Odd"),
        collective("allreduce", **{"In msg nelems": "many"}),
        collective("all_to_all", **{"Group size": 0}),
        collective("wait"),
        event("cpu_op", "record_param_comms", args=[]),
    )
    trace = load(write(tmp_path, *odd))
    assert trace.messages.is_empty()
    assert len(trace.ranges) == 3
    alone = load(write(tmp_path, collective("allreduce", **{"Process Group Ranks": "[]"})))
    assert alone.messages["communicator"].to_list() == [None]


def test_ranks_of_a_group_state_the_same_communicator(tmp_path: Path) -> None:
    other = {"Process Group Ranks": "[4, 5, 6, 7]"}
    rows = (collective("allreduce"), collective("barrier", ts=20), collective("reduce", **other))
    first, second, third = load(write(tmp_path, *rows)).messages["communicator"]
    assert first == second != third


def test_a_kernel_has_the_collective_of_its_launch(tmp_path: Path) -> None:
    ran = kernel(5, 4, NCCL, correlation=1, **SIZES)
    trace = load(write(tmp_path, collective("allreduce"), call(2, 1), ran))
    (row,) = agreed(trace).comm.to_dicts()
    assert (row["operation"], row["bytes"]) == ("ncclAllReduce", 16)
