"""Memory snapshots of PyTorch: what is read from them, and what is refused (spec §26.12)."""

import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import is_
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.load.plain_pickle import OddPickle, plain_values
from nsysflow.analysis.load.snapshot import is_snapshot, read_snapshot
from nsysflow.analysis.schema import BEFORE_NS
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import Damaged
from tests.oracle.model import Failure, MemoryChange, PlainTrace, to_trace
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
    time_us = BEGUN_US + at_us
    return {
        "action": action,
        "addr": address,
        "size": size,
        "time_us": time_us,
        "frames": [],
        **more,
    }


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
    stages = [
        ("START", "step", 10),
        ("START", "loss", 20),
        ("END", "loss", 30),
        ("END", "step", 40),
    ]
    notes = [{"stage": s, "name": n, "device": 0, "time_us": BEGUN_US + t} for s, n, t in stages]
    history = [
        happened("alloc", MIB, 25, address=1),
        happened("free_requested", MIB, 35, address=1),
    ]
    notes.append({"stage": "END", "name": "begun before", "device": 0, "time_us": BEGUN_US + 45})
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


PLAIN: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
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
