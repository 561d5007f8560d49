"""The history of PyTorch's allocator, as a process keeps it and leaves it."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsysflow.runtime.memory import MOST_ENTRIES, AllocatorHistory
from nsysflow.runtime.protocol import MEMORY, RUN_FOLDER

FRAMES = [{"filename": "model.py", "line": 88, "name": "attend"}]
ALLOCATED = {"action": "alloc", "addr": 7, "size": 600, "time_us": 5, "frames": FRAMES}
SNAPSHOT: dict[str, Any] = {
    "device_traces": [
        [],
        [ALLOCATED, ALLOCATED | {"action": "free_completed"}, ALLOCATED | {"frames": []}],
    ],
    "segments": [
        {
            "device": 1,
            "total_size": 2048,
            "blocks": [
                {
                    "address": 7,
                    "requested_size": 600,
                    "size": 1024,
                    "state": "active_allocated",
                    "frames": FRAMES,
                },
                {"address": 9, "requested_size": 0, "size": 1024, "state": "inactive"},
            ],
        }
    ],
}


def torch_with(asked: list[object], *, has: bool = False, fails: bool = False) -> SimpleNamespace:
    """A torch whose CUDA has started; `has`: the program keeps a history itself."""

    def record(*how: object, **more: object) -> None:
        asked.append((*how, *more.items()))
        if fails:
            raise RuntimeError("no history")

    memory = SimpleNamespace(
        _C=SimpleNamespace(_cuda_isHistoryEnabled=lambda: has),
        _record_memory_history=record,
        _snapshot=lambda: SNAPSHOT,
    )
    cuda = SimpleNamespace(memory=memory, _lazy_call=lambda call: call())
    return SimpleNamespace(
        cuda=cuda, backends=SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: True))
    )


Start = Callable[[SimpleNamespace], tuple[AllocatorHistory, list[str]]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Begins a history with such a torch, and gives the marks that it makes."""

    def begun(torch: SimpleNamespace) -> tuple[AllocatorHistory, list[str]]:
        monkeypatch.setenv(MEMORY, "1")
        monkeypatch.setenv(RUN_FOLDER, str(tmp_path))
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr("atexit.register", lambda _function: None)
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
    assert ("max_entries", MOST_ENTRIES) in on
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
            {"history": [], "blocks": [], "reserved": 0},
            {
                "history": [["alloc", 7, 600, 5, 0], ["alloc", 7, 600, 5, None]],
                "blocks": [[7, 600, 0]],
                "reserved": 2048,
            },
        ],
    }


def test_a_history_that_the_program_keeps_goes_on(start: Start, tmp_path: Path) -> None:
    asked: list[object] = []
    history, _ = start(torch_with(asked, has=True))
    history.save()
    assert asked == []
    assert len([*tmp_path.iterdir()]) == 1


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
