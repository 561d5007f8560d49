"""What marks and Kineto traces say of loaders."""

import json
from pathlib import Path
from typing import Any

import pytest

from nsysflow.analysis.load import load
from nsysflow.runtime.loaders import mark_of, marks_of
from tests.analysis.load.frames import loaded_and_packed
from tests.analysis.load.kineto.traces import event, kernel, write
from tests.analysis.load.test_gpu_states import BASE_NS, mark
from tests.exports import process, thread, write_export
from tests.oracle.export import read_export
from tests.oracle.model import from_trace

SETTINGS = (3, 2, 8, 4, True, False, "spawn", 16)
ABOUT = (2, 8, 4, True, False, "spawn", 16)


def told(clock_ns: int, **more: Any) -> str:
    """A mark about a loader, as the runtime writes it."""
    settings = more.get("loader", SETTINGS)
    (about,) = marks_of(settings, more.get("batches", []), more.get("waits", []))
    return mark_of(clock_ns, about)


def test_times_of_loaders_come_onto_the_clock_of_the_report(tmp_path: Path) -> None:
    """By the mark that was recorded soonest after its clock was read."""
    texts = [
        mark(1_005, told(100, batches=[(1, 10, 20, 30)])),
        mark(1_102, told(200, waits=[(40, 50)])),
        mark(7, told(3, loader=(0, 0, None, None, False, False, "", 1), waits=[(1, 2)])),
        mark(9, told(5, waits=[(1, 2)]), thread(2000, 2000)),
    ]
    path = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=texts)
    assert process() >> 24 == 1000
    for trace in loaded_and_packed(path):
        key = process()
        expected = [
            (key, 3, 1, 14, 24, 34, *ABOUT),
            (key, 3, None, 44, None, 54, *ABOUT),
            (key, 0, None, 5, None, 6, 0, None, None, False, False, None, 1),
            (process(2000), 3, None, 5, None, 6, *ABOUT),
        ]
        assert sorted(trace.loader_times.rows(), key=repr) == sorted(expected, key=repr)
        assert trace.ranges.is_empty()
    found = from_trace(load(path)).loader_times
    assert sorted(found, key=repr) == sorted(read_export(path).loader_times, key=repr)


@pytest.mark.parametrize(
    "odd",
    [
        *({"batches": [[0, 1, 2]]}, {"waits": [[-1, 2]]}, {"waits": [[1, 1 << 62]]}),
        *({"loader": [0, 1]}, {"loader": [-1, *SETTINGS[1:]]}, {"batches": None}),
    ],
)
def test_a_mark_with_impossible_times_is_left_out(odd: dict[str, Any], tmp_path: Path) -> None:
    about = {"clock_ns": 1, "loader": SETTINGS, "batches": [], "waits": [[1, 2]], **odd}
    texts = [mark(5, json.dumps({"nsysflow": about})), mark(6, told(1, waits=[(1, 2)]))]
    path = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=texts)
    for trace in loaded_and_packed(path):
        assert trace.loader_times["start_ns"].to_list() == [6]


def test_torch_profiler_has_what_loaders_did_beside_its_events(tmp_path: Path) -> None:
    about = {"clock_ns": 500, "loader": SETTINGS, "batches": [[1, 10, 20, 30]], "waits": [[7, 8]]}
    path = write(
        tmp_path,
        event("user_annotation", "step"),
        kernel(correlation=1),
        nsysflow={"loaders": [[BASE_NS + 2_000, about]]},
        baseTimeNanoseconds=BASE_NS,
    )
    trace = load(path)
    assert trace.loader_times.drop("process").rows() == [
        (3, 1, 1_510, 1_520, 1_530, *ABOUT),
        (3, None, 1_507, None, 1_508, *ABOUT),
    ]


def test_what_is_long_is_told_in_pieces() -> None:
    batches, waits = [(0, at, at, at) for at in range(250)], [(at, at) for at in range(120)]
    pieces = [json.loads(text) for text in marks_of(SETTINGS, batches, waits)]
    assert [len(piece["batches"]) for piece in pieces] == [100, 100, 50]
    assert [len(piece["waits"]) for piece in pieces] == [100, 20, 0]
    assert not [*marks_of(SETTINGS, [], [])]
