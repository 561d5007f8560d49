"""Memory snapshots of PyTorch (spec §26.12), and what its allocator did under nsys, which is like
a snapshot on the report's clock (spec §26.14): what is read from them, and what is refused."""

import json
import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import is_
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.load.plain_pickle import OddPickle, plain_values
from nsysflow.analysis.load.snapshot import is_snapshot, read_snapshot
from nsysflow.analysis.schema import BEFORE_NS
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import Damaged
from nsysflow.runtime.memory import compact
from tests.analysis.load.frames import event, mark
from tests.exports import process, write_export
from tests.oracle.export import read_export
from tests.oracle.model import Failure, MemoryChange, PlainTrace, from_trace, to_trace
from tests.tiny import MAIN, PROCESS

Entry = dict[str, Any]

MIB: Final = 1 << 20
MODEL: Final = {"filename": "/home/me/model.py", "line": 88, "name": "attend"}
STACK: Final = [
    {"filename": "??", "line": 0, "name": "torch::unwind::unwind()"},
    {"filename": "", "line": 0, "name": "at::_ops::bmm::redispatch(c10::DispatchKeySet)"},
    {"filename": "", "line": 0, "name": "at::_ops::bmm::call(at::Tensor const&)"},
    {"filename": "/src/python/Objects/call.c", "line": 215, "name": "_PyObject_MakeTpCall"},
    {"filename": "", "line": 0, "name": "at::_ops::index_Tensor::call(at::Tensor const&)"},
    MODEL,
]


BEGUN_US: Final = 1_757_253_255_215_904
"""PyTorch takes the time of the system."""


def happened(action: str, size: int, at_us: int, *, address: int = 0, **more: object) -> Entry:
    of = {"action": action, "addr": address, "size": size, "time_us": BEGUN_US + at_us}
    return {**of, "frames": [], **more}


def segment(total: int, *blocks: Entry, device: int = 0) -> Entry:
    return {"device": device, "address": 0, "total_size": total, "blocks": [*blocks]}


def block(address: int, size: int, state: str = "active_allocated", **more: object) -> Entry:
    return {"address": address, "size": 2 * size, "requested_size": size, "state": state, **more}


def read(folder: Path, segments: Iterable[Entry], *histories: list[Entry], **more: object) -> Trace:
    path = folder / "run.pickle"
    content = {"segments": [*segments], "device_traces": [*histories], **more}
    path.write_bytes(pickle.dumps(content))
    assert is_snapshot(path.read_bytes()[:100])
    return read_snapshot(path, "run.pickle", "run")


def levels(trace: Trace) -> list[tuple[Any, ...]]:
    columns = ("time_ns", "device", "address", "bytes", "allocated_bytes", "reserved_bytes")
    return trace.memory.select(columns).rows()


def test_a_history_is_read_with_what_was_there_before(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [segment(4 * MIB, block(1, 600), block(3, 512), block(9, 512, "inactive"))],
        [
            happened("free_requested", 100, 1_000, address=2),
            happened("free_completed", 100, 1_000, address=2),
            happened("segment_alloc", 2 * MIB, 1_002),
            happened("alloc", 512, 1_002, address=3),
            happened("snapshot", 0, 1_003),
        ],
    )
    assert levels(trace) == [
        (BEFORE_NS, 0, 2, 512, 512, 2 * MIB),
        (BEFORE_NS + 1, 0, 1, 1024, 1536, 2 * MIB),
        (0, 0, 2, -512, 1024, 2 * MIB),
        (2_000, 0, None, 0, 1024, 4 * MIB),
        (2_001, 0, 3, 512, 1536, 4 * MIB),
    ]
    (row,) = nsysflow.analyze(trace).memory.rows(named=True)
    assert (row["begin_bytes"], row["peak_bytes"], row["end_bytes"]) == (1536, 1536, 1536)
    assert row["peak_reserved_bytes"] == 4 * MIB


@st.composite
def lives(draw: Callable[..., Any]) -> tuple[list[Entry], dict[int, int], list[int]]:
    """A history that begins somewhere in the life of an allocator, what is allocated at its end,
    and how much was after each change that is in it."""
    live: dict[int, int] = {}
    entries: list[Entry] = []
    after: list[int] = []
    for at in range(draw(st.integers(0, 24))):
        address = draw(st.integers(1, 5))
        size = live.pop(address, 0)
        action = "free_requested" if size else "alloc"
        if not size:
            size = live[address] = draw(st.sampled_from((1, 512, 513, 4096)))
        entries.append(happened(action, size, at, address=address))
        after.append(sum(-(-each // 512) * 512 for each in live.values()))
    cut = draw(st.integers(0, len(entries)))
    return entries[cut:], live, after[cut:]


@given(lives())
def test_levels_are_those_of_the_allocator_wherever_the_history_begins(
    tmp_path_factory: pytest.TempPathFactory, life: tuple[list[Entry], dict[int, int], list[int]]
) -> None:
    entries, live, after = life
    blocks = [block(address, size) for address, size in live.items()]
    trace = read(tmp_path_factory.mktemp("life"), [segment(MIB, *blocks)], entries)
    recorded = trace.memory.filter(pl.col("time_ns") >= 0)
    assert recorded["allocated_bytes"].to_list() == after
    assert trace.memory["bytes"].cum_sum().to_list() == trace.memory["allocated_bytes"].to_list()


def test_stacks_have_python_s_frames_and_operators(tmp_path: Path) -> None:
    allocated = [happened("alloc", MIB, at, address=at, frames=STACK) for at in (1, 2)]
    older = block(7, MIB, frames=["odd", {"filename": 1}, MODEL])
    trace = read(tmp_path, [segment(4 * MIB, older, block(1, MIB), block(2, MIB))], allocated)
    assert trace.frames.select("function", "file", "line").rows() == [
        ("attend", "/home/me/model.py", 88),
        ("aten::bmm", None, None),
        ("aten::index", None, None),
        ("attend", "/home/me/model.py", 88),
    ]
    place = ("source", "operator", "allocations", "bytes")
    assert nsysflow.analyze(trace).peak_memory.select(place).rows() == [
        ("model.py:88 in attend", "aten::index", 2, 2 * MIB),
        ("model.py:88 in attend", None, 1, MIB),
    ]


def test_annotations_are_phases(tmp_path: Path) -> None:
    stages = [("START", "step", 10), ("START", "loss", 20), ("END", "loss", 30)]
    stages += [("END", "step", 40), ("END", "begun before", 45)]
    notes = [{"stage": s, "name": n, "device": 0, "time_us": BEGUN_US + t} for s, n, t in stages]
    history = [
        happened("alloc", MIB, 25, address=1),
        happened("free_requested", MIB, 35, address=1),
    ]
    trace = read(tmp_path, [], history, external_annotations=notes)
    rows = nsysflow.analyze(trace).memory.select("phase", "peak_bytes", "end_bytes").rows()
    assert rows == [("", MIB, 0), ("step", MIB, 0), ("step/loss", MIB, MIB)]


def failing(reserved: int) -> list[Entry]:
    return [
        happened("segment_alloc", reserved, 0),
        happened("alloc", MIB, 1, address=1, frames=[MODEL]),
        happened("oom", 2 * MIB, 2, device_free=7, frames=STACK),
    ]


@pytest.mark.parametrize(
    ("reserved", "first"), [(2 * MIB, "have less at a time"), (3 * MIB, "let segments grow")]
)
def test_memory_that_ran_out_is_a_finding_with_what_there_was(
    reserved: int, first: str, tmp_path: Path
) -> None:
    parts = [segment(reserved, block(1, MIB), device=1)]
    analysis = nsysflow.analyze(read(tmp_path, parts, [], failing(reserved)))
    columns = ("device", "asked_bytes", "allocated_bytes", "reserved_bytes", "free_bytes")
    assert analysis.out_of_memory.select(columns).row(0) == (1, 2 * MIB, MIB, reserved, 7)
    (valued,) = analysis.found.valued
    assert valued.finding.rule == "out-of-memory"
    assert valued.finding.title == (
        "GPU memory ran out: 2.10 MB more were asked for at model.py:88 in attend"
    )
    assert valued.finding.change[0].startswith(first)
    assert (
        valued.finding.evidence[1]
        == "100 % of the peak, 1.05 MB, allocated at model.py:88 in attend"
    )


CUDA: Final = MemoryChange(0, 0, 0, PROCESS, "cuda", MIB, reserved_bytes=MIB)


@pytest.mark.parametrize(
    ("failures", "memory", "evidence"),
    [
        (1, (), ()),
        (1, (CUDA,), ("1.05 MB were reserved",)),
        (2, (), ("2 allocations failed; this is the first one",)),
    ],
)
def test_what_is_not_known_of_memory_that_ran_out_is_not_said(
    failures: int, memory: tuple[MemoryChange, ...], evidence: tuple[str, ...]
) -> None:
    failed = (Failure(5, 0, PROCESS, MAIN, MIB),) * failures
    trace = PlainTrace(report="r", memory=memory, out_of_memory=failed)
    (valued,) = nsysflow.analyze(to_trace(trace)).found.valued
    assert valued.finding.evidence == evidence
    assert valued.finding.title == "GPU memory ran out: 1.05 MB more were asked for"


def test_a_snapshot_without_times_or_without_a_history_says_so(tmp_path: Path) -> None:
    untimed = [happened("alloc", MIB, 0, address=at) for at in (1, 2)]
    for entry in untimed:
        del entry["time_us"]
    trace = read(tmp_path, [], untimed)
    assert trace.memory["time_ns"].to_list() == [0, 1_000]
    assert "has no times" in trace.notes[0].text
    bare = read(tmp_path, [segment(MIB, block(1, 512))], [])
    assert "has no history" in bare.notes[0].text
    assert nsysflow.analyze(bare).peak_memory["bytes"].to_list() == [512]


SHARED: Final = [happened("alloc", 1, 1, address=1)]


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (["segments"], "it holds a list"),
        ({"segments": 1}, "its segments are no list of dicts"),
        ({"segments": [{"device": "0"}]}, "an entry has no device"),
        ({"segments": [], "device_traces": {}}, "its device_traces are no list"),
        ({"segments": [], "device_traces": [SHARED, SHARED]}, "two of its histories are one"),
        ({"segments": [], "device_traces": [[{"action": "alloc"}]]}, "an entry has no addr"),
        ({"segments": [], "device_traces": [[{"action": []}]]}, "an entry has no action"),
        ({"segments": Path}, "other objects than plain values"),
        ({"segments": [segment(1, device=1024)]}, "it is of GPU 1024"),
        (
            {"segments": [segment(1, *[block(at, (1 << 52) - 1) for at in (1, 2)])]},
            "there are 4503599627370496 bytes allocated",
        ),
    ],
)
def test_what_is_no_snapshot_is_refused(content: object, seen: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(Damaged, match=seen):
        read_snapshot(path, "odd.pickle", "odd")


NUMBERS: Final = st.integers() | st.floats(allow_nan=False)
PLAIN: Final = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(PLAIN, st.sampled_from((3, 4, 5)))
def test_plain_values_are_what_was_pickled(value: object, protocol: int) -> None:
    assert plain_values(pickle.dumps([value, value], protocol)) == [value, value]


def test_many_values_that_are_used_again_are_one_each() -> None:
    words = [f"word {number}" for number in range(300)]
    again = plain_values(pickle.dumps([words, [*words]]))
    assert again == [words, words]
    assert all(map(is_, *again))


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"\x80\x04.", "cut off"),
        (b"\x80\x04K\x01\x86.", "cut off"),
        (b"\x80\x04]\x94(K\x01", "cut off"),
        (b"\x80\x04h\x07.", "cut off"),
        (b"\x80\x04N(K\x01e.", "appends to what is no list"),
        (b"\x80\x04}(K\x01u.", "a key without a value"),
        (b"\x80\x04]K\x01K\x02s.", "sets a key of what is no dict"),
        (b"\x80\x04}]K\x01s.", "neither text nor a number"),
        (b"\x80\x04cos\nsystem\n.", "other objects"),
    ],
)
def test_a_pickle_that_makes_no_sense_is_odd(content: bytes, seen: str) -> None:
    with pytest.raises(OddPickle, match=seen):
        plain_values(content)


@given(PLAIN, st.data())
def test_a_cut_or_changed_pickle_gives_a_value_or_says_that_it_is_odd(
    value: object, data: st.DataObject
) -> None:
    content = bytearray(pickle.dumps(value))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(OddPickle):
        plain_values(bytes(content[: data.draw(st.integers(0, len(content)))]))


# --- under nsys -----------------------------------------------------------------------------------

PID: Final = 1000
LIBRARY: Final = {"filename": "/usr/lib/python3/dist-packages/torch/x.py", "line": 3, "name": "run"}
CALLED: Final = [LIBRARY, MODEL]
BEGAN_NS: Final = 1000 * BEGUN_US - 5_000
"""When the report's clock was 0, by the time of the system."""


def history(segments: list[Entry], *histories: list[Entry], **more: object) -> dict[str, Any]:
    """What a process leaves of a snapshot."""
    kept = compact({"segments": segments, "device_traces": [*histories]})
    left: dict[str, Any] = json.loads(json.dumps({**kept, "pid": PID, **more}))
    return left


def export(folder: Path, *histories: object, late_ns: tuple[int, ...] = (900, 7)) -> Path:
    """An export with these histories, and marks of the process's clock that were late."""
    marks = [
        event(mark(unix_ns=BEGAN_NS + at), start=at + late)
        for at, late in zip((0, 1000), late_ns, strict=False)
    ]
    rows = [{"pid": PID, "history": json.dumps(each)} for each in histories]
    tables = {"NSYSFLOW_MEMORY": rows}
    on_gpu_1 = [{"deviceId": 1}]
    return write_export(folder / "r.sqlite", kernels=on_gpu_1, nvtx=marks, tables=tables)


@settings(max_examples=20)
@given(lives())
def test_levels_are_those_of_the_same_snapshot(
    tmp_path_factory: pytest.TempPathFactory, life: tuple[list[Entry], dict[int, int], list[int]]
) -> None:
    entries, live, _ = life
    folder = tmp_path_factory.mktemp("life")
    segments = [segment(MIB, *[block(address, size) for address, size in live.items()])]
    path = export(folder, history(segments, entries))
    found, expected = load(path), read(folder, segments, entries)
    levels = pl.exclude("time_ns", "process")
    assert found.memory.select(levels).equals(expected.memory.select(levels))
    assert {*from_trace(found).memory} == {*read_export(path).memory}


FULL: Final = history(
    [segment(4 * MIB, block(3, MIB, frames=CALLED), device=1)],
    [],
    [
        happened("alloc", MIB, 0, address=2, frames=CALLED),
        happened("segment_alloc", 2 * MIB, 2),
        happened("oom", 9 * MIB, 4, device_free=7, frames=[MODEL]) | {"addr": 7},
        happened("free_requested", MIB, 4, address=2),
    ],
    full=True,
)
FULL["devices"][1]["usable"] = 99


def test_times_are_the_report_s_and_lines_those_of_the_program(tmp_path: Path) -> None:
    path = export(tmp_path, FULL)
    pack(path, tmp_path / "packed.sqlite")
    for file in (path, tmp_path / "packed.sqlite"):
        trace = load(file)
        recorded = trace.memory.filter(pl.col("time_ns") > 0)
        assert recorded["time_ns"].to_list() == [5_007, 7_007, 9_008]
        assert recorded["device"].unique().to_list() == [1]
        assert recorded["process"].unique().to_list() == [process()]
        assert [str(note)[:32] for note in trace.notes][-1] == "PyTorch kept only the last chang"
        analysis = nsysflow.analyze(trace)
        failed = ("time_ns", "asked_bytes", "allocated_bytes", "reserved_bytes", "free_bytes")
        assert analysis.out_of_memory.select(failed).rows() == [
            (9_007, 9 * MIB, 2 * MIB, 4 * MIB, 7)
        ]
        assert analysis.out_of_memory["source"].to_list() == ["model.py:88 in attend"]
        assert not analysis.found.valued or analysis.found.valued[0].finding.rule == "out-of-memory"
    packed = (tmp_path / "packed.sqlite").read_bytes()
    assert b"/home/me" in path.read_bytes()
    assert b"/home/me" not in packed
    assert load(path).gpu_memory.rows() == [(process(), 1, 99)]
    assert {*from_trace(load(path)).out_of_memory} == {*read_export(path).out_of_memory}


HUGE: Final = {"history": [], "blocks": [[1, (1 << 52) - 1, None]] * 2, "reserved": 0}


@pytest.mark.parametrize(
    ("left", "late_ns", "seen"),
    [
        ({"pid": 1}, (0,), "is damaged (it is none)"),
        (FULL | {"stacks": [[9]]}, (0,), "is damaged (list index"),
        (FULL | {"stacks": []}, (0,), "is damaged (0)"),
        (FULL | {"devices": [HUGE]}, (0,), "is damaged (there are"),
        (FULL, (), "has no mark of its clock"),
    ],
)
def test_a_history_that_cannot_be_used_is_left_out(
    left: object, late_ns: tuple[int, ...], seen: str, tmp_path: Path
) -> None:
    trace = load(export(tmp_path, left, late_ns=late_ns))
    assert trace.memory.is_empty()
    assert any(seen in str(note) and str(PID) in str(note) for note in trace.notes)
