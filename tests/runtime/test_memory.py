"""The history of PyTorch's allocator, as a process keeps it and leaves it."""

import copy
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsysflow.runtime.memory import AllocatorHistory
from nsysflow.runtime.protocol import MEMORY, RUN_FOLDER

FRAMES = [{"filename": "model.py", "line": 88, "name": "attend"}]
ALLOCATED = {"action": "alloc", "addr": 7, "size": 600, "time_us": 5, "frames": FRAMES}
USED = {
    "address": 7, "requested_size": 600, "size": 1024, "state": "active_allocated",
    "frames": FRAMES,
}  # fmt: skip
UNUSED = {"address": 9, "requested_size": 0, "size": 1024, "state": "inactive"}
SNAPSHOT: dict[str, Any] = {
    "device_traces": [
        [],
        [ALLOCATED, ALLOCATED | {"action": "free_completed"}, ALLOCATED | {"frames": []}],
    ],
    "segments": [{"device": 1, "total_size": 2048, "blocks": [USED, UNUSED]}],
}


def torch_with(
    asked: list[object], *, has: bool = False, fails: bool = False, skips: bool = False
) -> SimpleNamespace:
    """A torch whose CUDA has started; `has`: the program keeps a history itself; `skips`: it can
    leave out kinds of entries."""

    def record(*how: object, **more: object) -> None:
        asked.append((*how, *more))
        if fails:
            raise RuntimeError("no history")

    def record_some(*how: object, skip_actions: object = None, **more: object) -> None:
        record(*how, *([] if skip_actions is None else ["skip_actions"]), **more)

    memory = SimpleNamespace(
        _C=SimpleNamespace(_cuda_isHistoryEnabled=lambda: has),
        _record_memory_history=record_some if skips else record,
        _snapshot=lambda: copy.deepcopy(SNAPSHOT),
        memory_snapshot=lambda include_traces: SNAPSHOT["segments"][:include_traces],
        mem_get_info=lambda device: (100 * device, 1 << 30),
        memory_reserved=lambda device: 2048 * device,
    )
    cuda = SimpleNamespace(memory=memory, _lazy_call=lambda call: call())
    built = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: True))
    return SimpleNamespace(cuda=cuda, backends=built)


Start = Callable[[SimpleNamespace], tuple[AllocatorHistory, list[str]]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Begins a history with such a torch, and gives the marks that it makes."""

    monkeypatch.setenv(MEMORY, "1")
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path))
    monkeypatch.setattr("atexit.register", lambda _function: None)

    def begun(torch: SimpleNamespace) -> tuple[AllocatorHistory, list[str]]:
        monkeypatch.setitem(sys.modules, "torch", torch)
        marks: list[str] = []
        history = AllocatorHistory()
        history.begin(marks.append)
        history.begin(marks.append)  # the second time does nothing
        return history, marks

    return begun


def test_a_process_leaves_its_history_once_with_each_stack_once(
    start: Start, tmp_path: Path
) -> None:
    asked: list[object] = []
    history, marks = start(torch_with(asked))
    assert all(json.loads(mark)["nsysflow"].keys() == {"unix_ns"} for mark in marks)
    assert 1 < len(marks) < 10
    history.save()
    history.save()
    on, off = asked
    assert isinstance(on, tuple)
    assert "max_entries" in on
    assert off == (None,)
    (file,) = tmp_path.iterdir()
    assert file.name == f"memory-{os.getpid()}.json"
    assert json.loads(file.read_text()) == {
        "pid": os.getpid(),
        "rank": None,
        "full": False,
        "frames": [["model.py", 88, "attend"]],
        "stacks": [[0]],
        "devices": [
            {"history": [], "blocks": [], "reserved": 0, "usable": None},
            {"history": [["alloc", 7, 600, 5, 0], ["alloc", 7, 600, 5, None]],
             "blocks": [[7, 600, 0]], "reserved": 2048, "usable": 2148},
        ],
    }  # fmt: skip


def test_a_history_that_the_program_keeps_goes_on(start: Start, tmp_path: Path) -> None:
    asked: list[object] = []
    history, _ = start(torch_with(asked, has=True))
    history.save()
    assert asked == []
    assert len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize("skips", [False, True])
def test_what_comes_after_enough_is_left_out(start: Start, tmp_path: Path, skips: bool) -> None:
    asked: list[object] = []
    torch = torch_with(asked, skips=skips)
    history, _ = start(torch)
    history.freeze()
    later = ALLOCATED | {"addr": 8, "time_us": 1 << 60}
    traces = [[], [*SNAPSHOT["device_traces"][1], later]]
    torch.cuda.memory._snapshot = lambda: {"device_traces": traces, "segments": []}
    history.freeze()
    history.save()
    (file,) = tmp_path.iterdir()
    left = json.loads(file.read_text())["devices"][1]
    assert [entry[1] for entry in left["history"]] == [7, 7]
    assert left["blocks"] == ([] if skips else [[7, 600, 0]])  # those of that time
    assert len(asked) == 2 + skips


def test_the_program_runs_on_without_a_history_or_a_folder(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, _ = start(torch_with([], fails=True))
    assert "this torch keeps no history of its memory: no history" in capsys.readouterr().err
    history.save()
    assert not [*tmp_path.iterdir()]
    history, _ = start(torch_with([]))
    tmp_path.rmdir()
    history.save()
    assert "the history of memory is lost" in capsys.readouterr().err
