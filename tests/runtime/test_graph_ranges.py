"""Ranges in which a CUDA graph was captured before the window are listed in the window."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nsysflow import region
from nsysflow.runtime import graph_ranges
from nsysflow.runtime.auto import recording
from nsysflow.runtime.auto.recording import Recording
from nsysflow.runtime.graph_ranges import list_noted
from nsysflow.runtime.this_process import THIS_PROCESS
from tests.recording import Notes, recorded


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A torch whose current stream captures a graph, while its `on` is true."""
    state = SimpleNamespace(on=True)
    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: state.on
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(graph_ranges, "_NOTED", [])
    monkeypatch.setattr(graph_ranges, "_AWAITS_WINDOW", True)
    return state


def listed(notes: Notes) -> list[list[Any]]:
    """The ranges that the marks list."""
    notes.events.clear()
    list_noted(notes.mark)
    texts = [json.loads(text)["nsysflow"] for _, text, _ in notes.events]
    return [each for text in texts for each in text["graph_ranges"]]


def test_only_ranges_opened_during_a_capture_are_listed(capturing: SimpleNamespace) -> None:
    with recorded() as notes:
        before_ns = time.monotonic_ns()
        with region("forward"), region("norm"):
            capturing.on = False
        with region("replay"):
            pass
        ranges = listed(notes)
    assert [name for name, *_ in ranges] == ["norm", "forward"]
    for _, domain, begun_ns, ended_ns, thread in ranges:
        assert before_ns <= begun_ns <= ended_ns <= time.monotonic_ns()
        assert (domain, thread) == (None, threading.get_native_id())


def test_automatic_ranges_are_listed_with_their_domain(
    capturing: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert capturing.on
    with recorded() as notes:
        monkeypatch.setattr(recording, "find_recorder", lambda _collector, _domain: notes)
        Recording("nsys").open("forward")()
        assert [(name, domain) for name, domain, *_ in listed(notes)] == [
            ("forward", "nsysflow.auto")
        ]


def test_a_run_without_a_window_asks_cuda_nothing(
    capturing: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_ranges, "_AWAITS_WINDOW", False)
    monkeypatch.delattr(sys.modules["torch"].cuda, "is_current_stream_capturing")
    assert capturing.on
    with recorded() as notes:
        with region("forward"):
            pass
        assert listed(notes) == []


def test_a_range_that_is_listed_is_recorded_as_ever(capturing: SimpleNamespace) -> None:
    assert capturing.on
    with recorded() as notes:
        with region("forward"):
            pass
        assert [what for what, *_ in notes.events] == ["open", "close"]


@pytest.mark.parametrize("window", ["open", "closed"])
def test_captures_in_the_window_and_after_it_are_left_to_nsys(
    capturing: SimpleNamespace, window: str
) -> None:
    assert capturing.on
    with recorded() as notes:
        THIS_PROCESS.window = window  # type: ignore[assignment]
        with region("forward"):
            pass
        assert listed(notes) == []
        assert notes.events == []


def test_short_marks_with_the_clock_come_before_the_lists(capturing: SimpleNamespace) -> None:
    assert capturing.on
    with recorded() as notes:
        for _ in range(250):
            with region("a" * 500):
                pass
        assert len(listed(notes)) == 250
    texts = [text for _, text, _ in notes.events]
    assert [len(json.loads(text)["nsysflow"]["graph_ranges"]) for text in texts] == [
        *(0, 0, 0, 0, 0),
        *(100, 100, 50),
    ]
    assert max(map(len, texts)) < 64_000
    clocks = [json.loads(text)["nsysflow"]["clock_ns"] for text in texts]
    assert clocks == sorted(clocks)


def test_without_torch_nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(graph_ranges, "_AWAITS_WINDOW", True)
    with recorded() as notes:
        with region("forward"):
            pass
        assert listed(notes) == []
