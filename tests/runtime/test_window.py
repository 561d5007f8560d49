"""A process captures one window of steps, whichever loops it lies in."""

import os
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow import steps
from nsysflow.runtime import steps as pace
from nsysflow.runtime import steps as window_module
from nsysflow.runtime.captures import WindowMark
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import Window
from tests.runtime.windows import captured, captured_steps, lengths, marked_steps, windows


@given(length=lengths, window=windows, sized=st.booleans())
def test_exactly_the_active_steps_are_captured(length: int, window: Window, sized: bool) -> None:
    with captured(window) as noted:
        for _ in steps(range(length) if sized else iter(range(length))):
            pass
    first = window.wait + window.warmup
    assert captured_steps(noted.notes) == [*range(length)][first : first + window.active]
    assert bool(noted.abouts) == (length > first)


@given(length=lengths, window=windows)
def test_a_capture_starts_and_stops_between_steps(length: int, window: Window) -> None:
    with captured(window) as noted:
        list(steps(iter(range(length))))
        window_module._stop()  # as at exit
    depth, events = 0, noted.notes.events
    for what, *_ in events:
        depth += {"open": 1, "close": -1}.get(what, 0)
        assert depth == 0 or what not in ("start", "stop")
    order = [what for what, *_ in events if what in ("start", "stop")]
    assert order in ([], ["start", "stop"])


def test_the_environments_window_overrides_the_arguments() -> None:
    with captured(Window(wait=0, warmup=1, active=1)) as noted:
        list(steps(range(9), wait=5, warmup=0, active=3))
    assert captured_steps(noted.notes) == [1]


def test_a_break_inside_the_window_closes_the_range_and_the_next_loop_continues_the_window() -> (
    None
):
    with captured(Window(wait=0, warmup=0, active=3)) as noted:
        for index in steps(range(9)):
            if index == 1:
                break
        assert (THIS_PROCESS.window, THIS_PROCESS.captured) == ("open", 2)
        list(steps(range(9)))
        assert (THIS_PROCESS.window, THIS_PROCESS.captured) == ("closed", 3)
    assert [what for what, name, _ in noted.notes.events if name != "data"] == [
        *("start", "open", "close", "open", "close", "open", "close", "stop")
    ]


def test_a_break_in_the_last_active_step_closes_the_window() -> None:
    with captured(Window(wait=0, warmup=0, active=2)) as noted:
        for index in steps(range(9)):
            if index == 1:
                break
        assert THIS_PROCESS.window == "closed"
    assert noted.notes.events[-1][0] == "stop"


def test_an_exception_inside_the_window_closes_the_range_and_leaves_the_window_open() -> None:
    def loop() -> None:
        for _ in steps(range(9)):
            raise ZeroDivisionError

    with captured(Window(wait=0, warmup=0, active=5)) as noted:
        with pytest.raises(ZeroDivisionError):
            loop()
        assert (THIS_PROCESS.window, THIS_PROCESS.captured) == ("open", 1)
    assert [what for what, *_ in noted.notes.events] == ["start", *("open", "open"), *["close"] * 2]


@given(window=windows, lengths=st.lists(lengths, max_size=5), sized=st.booleans())
def test_consecutive_loops_share_one_window(
    window: Window, lengths: list[int], sized: bool
) -> None:
    with captured(window) as noted:
        for length in lengths:
            list(steps(range(length) if sized else iter(range(length))))
        reported = THIS_PROCESS.window, THIS_PROCESS.captured
    first = window.wait + window.warmup
    inside = [*range(sum(lengths))][first : first + window.active]
    state = "closed" if len(inside) == window.active else "open" if inside else "never"
    assert captured_steps(noted.notes) == inside
    assert reported == (state, len(inside))


def test_of_many_threads_one_opens_the_window_and_every_step_counts() -> None:
    looping = threading.Barrier(4)

    def loop() -> None:
        looping.wait(timeout=10)
        list(steps(range(50)))

    with captured(Window(wait=10, warmup=0, active=60)) as noted:
        starting, slow = threading.Event(), noted.start

        def start(about: WindowMark | None) -> None:
            starting.wait(timeout=0.1)  # never set: meanwhile the other threads pass
            slow(about)

        noted.start = start  # type: ignore[method-assign]
        threads = [threading.Thread(target=loop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        window_module._stop()
        assert THIS_PROCESS.steps == len(marked_steps(noted.notes)) >= 10 + 60
    order = [what for what, *_ in noted.notes.events if what in ("start", "stop")]
    assert order == ["start", "stop"]


def test_a_forked_child_neither_stops_nor_closes_its_parents_window() -> None:
    with captured(Window(wait=0, warmup=0, active=2)) as noted:
        for _ in steps(range(1)):
            pass
        with pytest.MonkeyPatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            child.setattr(window_module, "_running", window_module._running)
            list(steps(range(5)))
            window_module._stop()
            assert THIS_PROCESS.window == "open"
        assert "stop" not in [what for what, *_ in noted.notes.events]
        list(steps(range(5)))
    assert noted.notes.events[-1][0] == "stop"


def test_a_loop_may_end_before_the_window_and_the_next_opens_it() -> None:
    with captured(Window(wait=2, warmup=2, active=2)) as noted:
        list(steps(range(3)))
        assert (THIS_PROCESS.window, THIS_PROCESS.steps) == ("never", 3)
        list(steps(range(9)))
        assert THIS_PROCESS.window == "closed"
    assert captured_steps(noted.notes) == [4, 5]


def test_a_process_captures_one_window() -> None:
    with captured() as noted:
        for _ in range(3):
            list(steps(range(4), wait=0, warmup=1, active=2))
    assert captured_steps(noted.notes) == [1, 2]
    assert len(noted.abouts) == 1


@given(window=windows, step_ns=st.integers(1, 10**7), between_loops_ns=st.integers(0, 10**7))
def test_the_unprofiled_step_is_the_mean_of_the_warm_up(
    window: Window, step_ns: int, between_loops_ns: int
) -> None:
    clock = SimpleNamespace(now_ns=0)
    with captured(window) as noted, pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter_ns", lambda: clock.now_ns)
        for length in (window.wait, 20):  # time between two loops belongs to no step
            clock.now_ns += between_loops_ns
            for _ in steps(range(length)):
                clock.now_ns += step_ns
        unprofiled_ns = THIS_PROCESS.unprofiled_step_ns
    assert unprofiled_ns == (step_ns if window.warmup else None)
    assert noted.abouts == [{"capture": str(window), "unprofiled_step_ns": unprofiled_ns}]


@given(lengths=st.lists(st.integers(0, 4), max_size=6), step_ns=st.integers(1, 10**7))
def test_a_warm_up_over_several_loops_is_timed_inside_the_loops_only(
    lengths: list[int], step_ns: int
) -> None:
    clock = SimpleNamespace(now_ns=0)
    with (
        captured(Window(wait=1, warmup=3, active=1)) as noted,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("time.perf_counter_ns", lambda: clock.now_ns)
        for length in (*lengths, 20):
            clock.now_ns += 10**9
            for _ in steps(range(length)):
                clock.now_ns += step_ns
    assert noted.abouts == [{"capture": "1:3:1", "unprofiled_step_ns": step_ns}]


def test_a_warm_up_that_was_left_early_is_not_timed() -> None:
    with captured(Window(wait=0, warmup=1, active=1)) as noted:
        for _ in steps(range(9)):
            break
        list(steps(range(9)))
    assert noted.abouts == [{"capture": "0:1:1", "unprofiled_step_ns": None}]


def test_warm_up_steps_that_may_be_profiled_are_not_timed() -> None:
    with captured() as noted:
        list(steps(range(9), wait=1, warmup=2, active=3))
        assert THIS_PROCESS.unprofiled_step_ns is None
    assert noted.abouts == [None]


def test_the_gpu_is_synchronized_at_both_ends_of_the_warm_up() -> None:
    with captured(Window(wait=1, warmup=2, active=1)), pytest.MonkeyPatch.context() as patch:
        waited: list[int] = []
        patch.setattr(pace, "synchronize", lambda: waited.append(THIS_PROCESS.steps))
        list(steps(range(9)))
    assert waited == [1, 3]
