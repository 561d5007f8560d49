"""`steps` gives every batch, marks each step once, and captures one window of a process."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow import region, steps
from nsysflow.runtime import protocol
from nsysflow.runtime import steps as window_module
from nsysflow.runtime.captures import WindowMark
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import CAPTURE, Window
from tests.recording import Notes, recorded

windows = st.builds(
    Window, wait=st.integers(0, 4), warmup=st.integers(0, 4), active=st.integers(1, 4)
)
loops = st.lists(st.integers(0, 14), max_size=5)
"""The lengths of consecutive loops."""


@dataclass
class Noted:
    """A capture whose starts and stops appear among the recorded ranges."""

    notes: Notes
    abouts: list[WindowMark | None] = field(default_factory=list)

    def start(self, about: WindowMark | None) -> None:
        self.abouts.append(about)
        self.notes.events.append(("start", "", None))

    def stop(self) -> None:
        self.notes.events.append(("stop", "", None))

    @property
    def whats(self) -> list[str]:
        """What happened, without ranges of data."""
        return [what for what, name, _ in self.notes.events if name != "data"]

    @property
    def marked(self) -> list[int | None]:
        """The steps that have a range."""
        return [number for what, name, number in self.notes.events if (what, name) == STEP]

    @property
    def captured(self) -> list[int | None]:
        """The steps whose range opened between start and stop."""
        found, inside = [], False
        for what, name, number in self.notes.events:
            inside = what == "start" or (inside and what != "stop")
            if inside and (what, name) == STEP:
                found.append(number)
        return found


STEP = ("open", "step")


@contextmanager
def captured(asked: str | None = None, collector: protocol.Collector = "nsys") -> Iterator[Noted]:
    """Make it look as if `profile --capture` had asked for that window."""
    with recorded(collector) as notes, pytest.MonkeyPatch.context() as patch:
        patch.delenv(CAPTURE, raising=False)
        if asked is not None:
            patch.setenv(CAPTURE, asked)
        noted = Noted(notes)
        patch.setattr(window_module, "new_capture", lambda _collector: noted)
        yield noted


@given(window=windows, lengths=loops, sized=st.booleans(), asked=st.booleans())
def test_loops_give_every_batch_once_and_share_one_window_of_exactly_the_active_steps(
    window: Window, lengths: list[int], sized: bool, asked: bool
) -> None:
    typed = {"wait": window.wait, "warmup": window.warmup, "active": window.active}
    with captured(str(window) if asked else None) as noted:
        for length in lengths:
            batches = range(length) if sized else iter(range(length))
            assert list(steps(batches, **({} if asked else typed))) == list(range(length))
        reported = THIS_PROCESS.window, THIS_PROCESS.captured
        window_module._stop()  # as at exit
    first, every = window.wait + window.warmup, [*range(sum(lengths))]
    inside = every[first : first + window.active]
    assert noted.captured == inside
    state = "closed" if len(inside) == window.active else "open" if inside else "never"
    assert reported == (state, len(inside))
    assert noted.marked == (every[: first + window.active] if asked else every)
    starts = [what for what in noted.whats if what in ("start", "stop")]
    assert starts == (["start", "stop"] if inside else [])
    depth = 0
    for what, *_ in noted.notes.events:
        depth += {"open": 1, "close": -1}.get(what, 0)
        assert depth == 0 or what not in ("start", "stop")


def test_a_break_closes_the_range_and_the_next_loop_goes_on() -> None:
    with captured("0:0:3") as noted:
        for index in steps(range(9)):
            if index == 1:
                break
        assert (THIS_PROCESS.window, THIS_PROCESS.captured) == ("open", 2)
        for _ in steps(range(9)):  # the last active step
            break
        assert (THIS_PROCESS.window, THIS_PROCESS.captured) == ("closed", 3)
    assert noted.whats == ["start", *["open", "close"] * 3, "stop"]


def test_an_exception_closes_what_is_open_and_leaves_the_window_open() -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise ZeroDivisionError

    def loop() -> None:
        for _ in steps(range(9)):
            raise ZeroDivisionError

    for fails in (loop, lambda: list(steps(broken()))):
        with captured("0:0:5") as noted:
            with pytest.raises(ZeroDivisionError):
                fails()
            assert (THIS_PROCESS.window, THIS_PROCESS.captured) == ("open", 1)
        assert noted.whats[:3] == ["start", "open", "close"]
        assert noted.whats.count("open") == noted.whats.count("close")


def test_of_many_threads_one_opens_the_window_and_every_step_counts() -> None:
    looping = threading.Barrier(4)

    def loop() -> None:
        looping.wait(timeout=10)
        list(steps(range(50)))

    with captured("10:0:60") as noted:
        starting, slow = threading.Event(), noted.start

        def start(about: WindowMark | None) -> None:
            starting.wait(timeout=0.1)  # never set: meanwhile the other threads pass
            slow(about)

        noted.start = start  # type: ignore[method-assign]
        with ThreadPoolExecutor(4) as threads:
            done = [threads.submit(loop) for _ in range(4)]
        assert [each.result() for each in done] == [None] * 4
        window_module._stop()
        assert THIS_PROCESS.steps == len(noted.marked) >= 10 + 60
    order = [what for what in noted.whats if what in ("start", "stop")]
    assert order == ["start", "stop"]


def test_a_forked_child_neither_stops_nor_closes_its_parents_window() -> None:
    with captured("0:0:2") as noted:
        list(steps(range(1)))
        with pytest.MonkeyPatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            child.setattr(window_module, "_running", window_module._running)
            list(steps(range(5)))
            window_module._stop()
            assert THIS_PROCESS.window == "open"
        assert "stop" not in noted.whats
        list(steps(range(5)))
    assert noted.whats[-1] == "stop"


@given(
    window=windows,
    lengths=loops,
    step_ns=st.integers(1, 10**7),
    between_loops_ns=st.integers(0, 10**9),
)
def test_the_unprofiled_step_is_the_mean_of_the_warm_up_inside_the_loops_only(
    window: Window, lengths: list[int], step_ns: int, between_loops_ns: int
) -> None:
    clock = SimpleNamespace(now_ns=0)
    with captured(str(window)) as noted, pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter_ns", lambda: clock.now_ns)
        for length in (*lengths, 20):
            clock.now_ns += between_loops_ns
            for _ in steps(range(length)):
                clock.now_ns += step_ns
        unprofiled_ns = THIS_PROCESS.unprofiled_step_ns
    assert unprofiled_ns == (step_ns if window.warmup else None)
    assert noted.abouts == [{"capture": str(window), "unprofiled_step_ns": unprofiled_ns}]


def test_a_warm_up_that_was_left_early_or_may_be_profiled_is_not_timed() -> None:
    with captured("0:1:1") as noted:
        for _ in steps(range(9)):
            break
        list(steps(range(9)))
    assert noted.abouts == [{"capture": "0:1:1", "unprofiled_step_ns": None}]
    with captured() as noted:
        list(steps(range(9), wait=1, warmup=2, active=3))
        assert THIS_PROCESS.unprofiled_step_ns is None
    assert noted.abouts == [None]


def test_the_gpu_is_synchronized_at_both_ends_of_the_warm_up() -> None:
    with captured("1:2:1"), pytest.MonkeyPatch.context() as patch:
        waited: list[int] = []
        patch.setattr(window_module, "synchronize", lambda: waited.append(THIS_PROCESS.steps))
        list(steps(range(9)))
    assert waited == [1, 3]


def test_a_step_contains_the_fetch_as_data_and_the_body() -> None:
    class Loader(list[str]):
        def __iter__(self) -> Iterator[str]:
            for batch in super().__iter__():
                with region("fetch"):
                    pass
                yield batch

    with captured() as noted:
        for _ in steps(Loader(["only"])):
            with region("body"):
                pass
    assert [(what, name) for what, name, _ in noted.notes.events] == [
        *(STEP, ("open", "data"), ("open", "fetch"), ("close", "fetch"), ("close", "data")),
        *(("open", "body"), ("close", "body"), ("close", "step")),
    ]


def test_a_loop_without_length_fetches_each_batch_before_its_step_and_before_the_window() -> None:
    data = [("open", "data"), ("close", "data")]
    step = [STEP, ("close", "step")]
    with captured("0:0:3") as noted:
        list(steps(iter("ab")))
    assert [(what, name) for what, name, _ in noted.notes.events] == [
        *(*data, ("start", ""), *step),
        *(*data, *step),
        *data,  # the loop ends in this one: no step is marked
    ]


@pytest.mark.parametrize("sized", [True, False])
def test_a_loop_may_continue_in_other_threads(sized: bool) -> None:
    with captured("1:1:3") as noted, ThreadPoolExecutor(1) as other:
        batches = steps(range(9) if sized else iter(range(9)))
        threads: list[Callable[[], int | None]] = [
            lambda: next(batches, None),
            lambda: other.submit(next, batches, None).result(),
        ]
        taken = [threads[turn % 2]() for turn in range(10)]
    assert taken == [*range(9), None]
    assert noted.captured == [2, 3, 4]


@pytest.mark.parametrize(
    "length",
    [
        AttributeError,  # a sampler that is not there
        TypeError,  # as PyTorch's loaders of iterable datasets
        RuntimeError,  # as a loader whose workers have died
        ZeroDivisionError,
        10**30,
        -1,
        "many",
    ],
)
def test_a_loader_that_cannot_tell_its_length_still_works(length: object) -> None:
    class Loader(list[int]):
        def __len__(self) -> Any:
            if isinstance(length, type) and issubclass(length, Exception):
                raise length
            return length

    with captured() as noted:
        assert [*steps(Loader([1, 2, 3]))] == [1, 2, 3]
    assert len(noted.marked) == 3


def test_without_a_profiler_steps_is_the_iterable_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "COLLECTOR_HERE", None)
    monkeypatch.setenv(CAPTURE, "0:0:1")
    monkeypatch.setattr(window_module, "synchronize", None)
    batches = iter(range(3))
    assert steps(batches) is batches
