"""`steps` gives every batch, marks each step, and captures the active ones, once."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow import recorders, region, stepping, steps, windowing
from nsysflow.capturing import Announcement, CudaProfilerRange, synchronize
from nsysflow.handshake import CAPTURE, Window
from nsysflow.telling import RECORD
from tests.recording import Notes, recorded

windows = st.builds(
    Window, wait=st.integers(0, 4), warmup=st.integers(0, 4), active=st.integers(1, 4)
)
lengths = st.integers(0, 14)


@dataclass
class Noted:
    """A capture that writes down, among the ranges, when it starts and stops."""

    notes: Notes
    announced: list[Announcement | None] = field(default_factory=list)

    def start(self, announcement: Announcement | None) -> None:
        self.announced.append(announcement)
        self.notes.events.append(("start", "", None))

    def stop(self) -> None:
        self.notes.events.append(("stop", "", None))


@contextmanager
def captured(
    asked: Window | None = None, collector: recorders.Collector = "nsys"
) -> Iterator[Noted]:
    """As if a profiler were attached, and `profile --capture` had asked for that window."""
    with recorded(collector) as notes, pytest.MonkeyPatch.context() as patch:
        patch.delenv(CAPTURE, raising=False)
        if asked is not None:
            patch.setenv(CAPTURE, str(asked))
        noted = Noted(notes)
        patch.setattr(windowing, "capture_with", lambda _collector: noted)
        yield noted


def marked_steps(notes: Notes) -> list[int | None]:
    return [payload for what, name, payload in notes.events if (what, name) == ("open", "step")]


def captured_steps(notes: Notes) -> list[int | None]:
    """The steps whose range opened between start and stop."""
    found, inside = [], False
    for what, name, payload in notes.events:
        inside = what == "start" or (inside and what != "stop")
        if inside and (what, name) == ("open", "step"):
            found.append(payload)
    return found


@given(length=lengths, window=windows, asked=st.booleans(), sized=st.booleans())
def test_every_batch_comes_once_and_in_order(
    length: int, window: Window, asked: bool, sized: bool
) -> None:
    batches = range(length) if sized else iter(range(length))
    with captured(window if asked else None):
        assert list(steps(batches)) == list(range(length))


@given(length=lengths, window=windows, sized=st.booleans())
def test_exactly_the_active_steps_are_captured(length: int, window: Window, sized: bool) -> None:
    with captured(window) as noted:
        for _ in steps(range(length) if sized else iter(range(length))):
            pass
    first = window.wait + window.warmup
    assert captured_steps(noted.notes) == [*range(length)][first : first + window.active]
    assert bool(noted.announced) == (length > first)


@given(length=lengths, window=windows)
def test_what_starts_is_stopped_outside_every_step(length: int, window: Window) -> None:
    with captured(window) as noted:
        list(steps(iter(range(length))))
        windowing._stop()  # as at exit
    depth, events = 0, noted.notes.events
    for what, *_ in events:
        depth += {"open": 1, "close": -1}.get(what, 0)
        assert depth == 0 or what not in ("start", "stop")
    order = [what for what, *_ in events if what in ("start", "stop")]
    assert order in ([], ["start", "stop"])


@given(length=lengths, window=windows)
def test_after_the_asked_window_nothing_more_is_marked(length: int, window: Window) -> None:
    with captured(window) as noted:
        list(steps(range(length)))
    end = window.wait + window.warmup + window.active
    assert marked_steps(noted.notes) == list(range(min(length, end)))


@given(length=lengths, sized=st.booleans())
def test_without_an_asked_window_every_step_is_marked_and_no_more(length: int, sized: bool) -> None:
    with captured() as noted:
        list(steps(range(length) if sized else iter(range(length)), wait=1, warmup=1, active=2))
    assert marked_steps(noted.notes) == list(range(length))


class Loader(list[str]):
    """Batches whose number is known."""

    def __iter__(self) -> Iterator[str]:
        for batch in super().__iter__():
            with region("fetch"):
                pass
            yield batch


def test_a_step_holds_the_fetch_as_data_and_the_body() -> None:
    with captured() as noted:
        for _ in steps(Loader(["only"])):
            with region("body"):
                pass
    assert [(what, name) for what, name, _ in noted.notes.events][:8] == [
        ("open", "step"),
        ("open", "data"),
        ("open", "fetch"),
        ("close", "fetch"),
        ("close", "data"),
        ("open", "body"),
        ("close", "body"),
        ("close", "step"),
    ]


def test_the_window_given_in_the_environment_wins_over_the_arguments() -> None:
    with captured(Window(wait=0, warmup=1, active=1)) as noted:
        list(steps(range(9), wait=5, warmup=0, active=3))
    assert captured_steps(noted.notes) == [1]


def test_a_break_inside_the_window_closes_the_range_and_leaves_the_window_to_the_next_loop() -> (
    None
):
    with captured(Window(wait=0, warmup=0, active=3)) as noted:
        for index in steps(range(9)):
            if index == 1:
                break
        assert (RECORD.window, RECORD.captured) == ("open", 2)
        list(steps(range(9)))
        assert (RECORD.window, RECORD.captured) == ("closed", 3)
    assert [what for what, name, _ in noted.notes.events if name != "data"] == [
        *("start", "open", "close", "open", "close", "open", "close", "stop")
    ]


def test_a_break_in_the_last_active_step_closes_the_window() -> None:
    with captured(Window(wait=0, warmup=0, active=2)) as noted:
        for index in steps(range(9)):
            if index == 1:
                break
        assert RECORD.window == "closed"
    assert noted.notes.events[-1][0] == "stop"


def test_an_exception_inside_the_window_closes_the_range_and_leaves_the_window_open() -> None:
    def loop() -> None:
        for _ in steps(range(9)):
            raise ZeroDivisionError

    with captured(Window(wait=0, warmup=0, active=5)) as noted:
        with pytest.raises(ZeroDivisionError):
            loop()
        assert (RECORD.window, RECORD.captured) == ("open", 1)
    assert [what for what, *_ in noted.notes.events] == ["start", *("open", "open"), *["close"] * 2]


@given(window=windows, lengths=st.lists(lengths, max_size=5), sized=st.booleans())
def test_loops_after_each_other_are_captured_as_one(
    window: Window, lengths: list[int], sized: bool
) -> None:
    with captured(window) as noted:
        for length in lengths:
            list(steps(range(length) if sized else iter(range(length))))
        told = RECORD.window, RECORD.captured
    first = window.wait + window.warmup
    inside = [*range(sum(lengths))][first : first + window.active]
    state = "closed" if len(inside) == window.active else "open" if inside else "never"
    assert captured_steps(noted.notes) == inside
    assert told == (state, len(inside))


def test_a_loop_without_length_asks_for_each_batch_before_its_step_and_before_the_window() -> None:
    data = [("open", "data"), ("close", "data")]
    step = [("open", "step"), ("close", "step")]
    with captured(Window(wait=0, warmup=0, active=3)) as noted:
        list(steps(iter("ab")))
    assert [(what, name) for what, name, _ in noted.notes.events] == [
        *(*data, ("start", ""), *step),
        *(*data, *step),
        *data,  # in which the end is seen: no step is marked
    ]


def test_of_many_threads_one_opens_the_window_and_every_step_counts() -> None:
    looping = threading.Barrier(4)

    def loop() -> None:
        looping.wait(timeout=10)
        list(steps(range(50)))

    with captured(Window(wait=10, warmup=0, active=60)) as noted:
        starting, slow = threading.Event(), noted.start

        def start(announcement: Announcement | None) -> None:
            starting.wait(timeout=0.1)  # never set: the others come by meanwhile
            slow(announcement)

        noted.start = start  # type: ignore[method-assign]
        threads = [threading.Thread(target=loop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        windowing._stop()
        assert RECORD.steps == len(marked_steps(noted.notes)) >= 10 + 60
    order = [what for what, *_ in noted.notes.events if what in ("start", "stop")]
    assert order == ["start", "stop"]


def test_a_forked_child_neither_stops_nor_closes_its_parents_window() -> None:
    with captured(Window(wait=0, warmup=0, active=2)) as noted:
        for _ in steps(range(1)):
            pass
        with pytest.MonkeyPatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            child.setattr(windowing, "_started", windowing._started)
            list(steps(range(5)))
            windowing._stop()
            assert RECORD.window == "open"
        assert "stop" not in [what for what, *_ in noted.notes.events]
        list(steps(range(5)))
    assert noted.notes.events[-1][0] == "stop"


def test_an_iterable_that_fails_closes_what_is_open() -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise ZeroDivisionError

    with (
        captured(Window(wait=0, warmup=0, active=5)) as noted,
        pytest.raises(ZeroDivisionError),
    ):
        list(steps(broken()))
    whats = [what for what, *_ in noted.notes.events]
    assert whats.count("open") == whats.count("close")
    assert whats[-1] == "close"


@pytest.mark.parametrize("sized", [True, False])
def test_a_loop_may_go_on_in_other_threads(sized: bool) -> None:
    with captured(Window(wait=1, warmup=1, active=3)) as noted, ThreadPoolExecutor(1) as other:
        batches = steps(range(9) if sized else iter(range(9)))
        threads: list[Callable[[], int | None]] = [
            lambda: next(batches, None),
            lambda: other.submit(next, batches, None).result(),
        ]
        taken = [threads[turn % 2]() for turn in range(10)]
    assert taken == [*range(9), None]
    assert captured_steps(noted.notes) == [2, 3, 4]


def test_a_loop_that_was_left_may_be_forgotten_by_another_thread() -> None:
    def loop_and_break() -> Iterator[int]:
        batches = steps(range(9))
        next(batches)
        return batches

    with captured() as noted:
        kept = [loop_and_break()]

        def forget() -> None:
            with region("other"):
                kept.clear()
                with region("eval"):
                    pass

        with ThreadPoolExecutor(1) as other:
            other.submit(forget).result()
        with region("after"):
            pass
    events = [event[:2] for event in noted.notes.events if event[1] != "data"]
    assert events == [
        *(("open", "step"), ("open", "other"), ("open", "eval")),
        *(("close", "eval"), ("close", "other")),
        *(("close", "step"), ("open", "after"), ("close", "after")),
    ]


def test_a_range_around_next_is_said_to_be_out_of_turn_and_every_batch_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with captured():
        batches, taken = steps(range(4)), []
        for _ in range(4):
            with region("fetch"):
                taken.append(next(batches))
        del batches
    assert taken == [0, 1, 2, 3]
    assert capsys.readouterr().err.count("Call no next() on steps inside a region") == 1


def raising(error: type[Exception]) -> Callable[[], int]:
    def length() -> int:
        raise error

    return length


@pytest.mark.parametrize(
    "length",
    [
        raising(AttributeError),  # a sampler that is not there
        raising(RuntimeError),
        raising(TypeError),  # what PyTorch's loaders of an iterable dataset raise
        raising(NotImplementedError),
        raising(ZeroDivisionError),
        lambda: 10**30,
        lambda: -1,
        lambda: "many",
    ],
    ids=[
        *("attribute", "runtime", "type", "not implemented", "division"),
        *("beyond an index", "negative", "no number"),
    ],
)
def test_a_loader_that_cannot_tell_its_length_is_looped_over_all_the_same(
    length: Callable[[], int],
) -> None:
    class Loader(list[int]):
        def __len__(self) -> int:
            return length()

    with captured() as noted:
        assert [*steps(Loader([1, 2, 3]))] == [1, 2, 3]
    assert len(marked_steps(noted.notes)) == 3


def test_a_loop_that_ends_before_the_window_leaves_it_to_the_next() -> None:
    with captured(Window(wait=2, warmup=2, active=2)) as noted:
        list(steps(range(3)))
        assert (RECORD.window, RECORD.steps) == ("never", 3)
        list(steps(range(9)))
        assert RECORD.window == "closed"
    assert captured_steps(noted.notes) == [4, 5]


def test_a_process_captures_one_window() -> None:
    with captured() as noted:
        for _ in range(3):
            list(steps(range(4), wait=0, warmup=1, active=2))
    assert captured_steps(noted.notes) == [1, 2]
    assert len(noted.announced) == 1


def test_under_torch_profiler_nothing_is_marked_after_the_window() -> None:
    with captured(collector="kineto") as noted:
        list(steps(range(9), wait=0, warmup=0, active=2))
    assert marked_steps(noted.notes) == [0, 1]


def test_without_a_profiler_the_loop_is_the_iterable_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorders, "COLLECTOR_HERE", None)
    monkeypatch.setenv(CAPTURE, "0:0:1")
    monkeypatch.setattr(stepping, "synchronize", None)
    batches = iter(range(3))
    assert steps(batches) is batches


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"warmup": -1}, {"active": 0}])
def test_a_window_that_cannot_be_is_refused_with_or_without_a_profiler(
    wrong: dict[str, int],
) -> None:
    with pytest.raises(ValueError, match="WAIT:WARMUP:ACTIVE"):
        steps(range(3), **wrong)
    with captured(), pytest.raises(ValueError, match="WAIT:WARMUP:ACTIVE"):
        steps(range(3), **wrong)


@given(window=windows, step_ns=st.integers(1, 10**7), between_loops_ns=st.integers(0, 10**7))
def test_the_unprofiled_step_is_the_mean_of_the_warm_up(
    window: Window, step_ns: int, between_loops_ns: int
) -> None:
    clock = SimpleNamespace(now_ns=0)
    with captured(window) as noted, pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter_ns", lambda: clock.now_ns)
        for length in (window.wait, 20):  # what passes between two loops is no step's time
            clock.now_ns += between_loops_ns
            for _ in steps(range(length)):
                clock.now_ns += step_ns
        unprofiled_ns = RECORD.unprofiled_step_ns
    assert unprofiled_ns == (step_ns if window.warmup else None)
    assert noted.announced == [{"capture": str(window), "unprofiled_step_ns": unprofiled_ns}]


@given(lengths=st.lists(st.integers(0, 4), max_size=6), step_ns=st.integers(1, 10**7))
def test_a_warm_up_over_several_loops_is_timed_in_the_loops_alone(
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
    assert noted.announced == [{"capture": "1:3:1", "unprofiled_step_ns": step_ns}]


def test_a_warm_up_that_was_left_early_is_not_timed() -> None:
    with captured(Window(wait=0, warmup=1, active=1)) as noted:
        for _ in steps(range(9)):
            break
        list(steps(range(9)))
    assert noted.announced == [{"capture": "0:1:1", "unprofiled_step_ns": None}]


def test_warm_up_steps_that_may_be_profiled_are_not_timed() -> None:
    with captured() as noted:
        list(steps(range(9), wait=1, warmup=2, active=3))
        assert RECORD.unprofiled_step_ns is None
    assert noted.announced == [None]


def test_the_gpu_is_waited_for_at_both_edges_of_the_warm_up() -> None:
    with captured(Window(wait=1, warmup=2, active=1)), pytest.MonkeyPatch.context() as patch:
        waited: list[int] = []
        patch.setattr(stepping, "synchronize", lambda: waited.append(RECORD.steps))
        list(steps(range(9)))
    assert waited == [1, 3]


def fake_torch(
    notes: Notes, *, available: bool = True, reserved: tuple[int, int] = (0, 0)
) -> SimpleNamespace:
    def note(what: str) -> None:
        notes.events.append((what, "", None))

    profiler = SimpleNamespace(start=lambda: note("start"), stop=lambda: note("stop"))
    return SimpleNamespace(
        cuda=SimpleNamespace(
            profiler=profiler,
            is_available=lambda: available,
            is_initialized=lambda: available,
            synchronize=lambda _device=None: note("synchronize"),
            device_count=lambda: 2,
            memory_reserved=lambda device: reserved[device],
        )
    )


def test_every_gpu_that_holds_memory_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setitem(sys.modules, "torch", fake_torch(notes, reserved=(0, 1024)))
    synchronize()
    assert len(notes.events) == 2  # the current one, and the second one


def test_the_mark_is_recorded_first_and_says_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with recorded() as notes:
        monkeypatch.setitem(sys.modules, "torch", fake_torch(notes))
        capture = CudaProfilerRange()
        capture.start({"capture": "3:2:5", "unprofiled_step_ns": 4_500_000})
        capture.stop()
    assert notes.events == [
        ("synchronize", "", None),
        ("start", "", None),
        ("mark", '{"nsysflow": {"capture": "3:2:5", "unprofiled_step_ns": 4500000}}', None),
        ("synchronize", "", None),
        ("stop", "", None),
    ]


def test_a_step_that_was_not_timed_is_null_in_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded() as notes:
        monkeypatch.setitem(sys.modules, "torch", fake_torch(notes, available=False))
        CudaProfilerRange().start({"capture": "0:0:5", "unprofiled_step_ns": None})
    assert [text for _, text, _ in notes.events] == [
        '{"nsysflow": {"capture": "0:0:5", "unprofiled_step_ns": null}}'
    ]


def test_what_was_captured_is_kept_when_the_last_wait_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails() -> None:
        raise RuntimeError

    with recorded() as notes:
        torch = fake_torch(notes)
        monkeypatch.setitem(sys.modules, "torch", torch)
        capture = CudaProfilerRange()
        capture.start(None)
        monkeypatch.setattr(torch.cuda, "synchronize", fails)
        with pytest.raises(RuntimeError):
            capture.stop()
    assert notes.events[-1][0] == "stop"
