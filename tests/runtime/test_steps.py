"""`steps` gives every batch and marks each step once."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow import region, steps
from nsysflow.runtime import collectors
from nsysflow.runtime import steps as pace
from nsysflow.runtime.protocol import CAPTURE, Window
from tests.runtime.windows import captured, captured_steps, lengths, marked_steps, windows


@given(length=lengths, window=windows, asked=st.booleans(), sized=st.booleans())
def test_every_batch_comes_once_and_in_order(
    length: int, window: Window, asked: bool, sized: bool
) -> None:
    batches = range(length) if sized else iter(range(length))
    with captured(window if asked else None):
        assert list(steps(batches)) == list(range(length))


@given(length=lengths, window=windows)
def test_no_step_is_marked_after_the_requested_window(length: int, window: Window) -> None:
    with captured(window) as noted:
        list(steps(range(length)))
    end = window.wait + window.warmup + window.active
    assert marked_steps(noted.notes) == list(range(min(length, end)))


@given(length=lengths, sized=st.booleans())
def test_without_a_requested_window_every_step_is_marked_once(length: int, sized: bool) -> None:
    with captured() as noted:
        list(steps(range(length) if sized else iter(range(length)), wait=1, warmup=1, active=2))
    assert marked_steps(noted.notes) == list(range(length))


class Loader(list[str]):
    """Batches with a known length."""

    def __iter__(self) -> Iterator[str]:
        for batch in super().__iter__():
            with region("fetch"):
                pass
            yield batch


def test_a_step_contains_the_fetch_as_data_and_the_body() -> None:
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


def test_a_loop_without_length_fetches_each_batch_before_its_step_and_before_the_window() -> None:
    data = [("open", "data"), ("close", "data")]
    step = [("open", "step"), ("close", "step")]
    with captured(Window(wait=0, warmup=0, active=3)) as noted:
        list(steps(iter("ab")))
    assert [(what, name) for what, name, _ in noted.notes.events] == [
        *(*data, ("start", ""), *step),
        *(*data, *step),
        *data,  # the loop ends in this one: no step is marked
    ]


def test_an_iterable_that_fails_closes_what_is_open() -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise ZeroDivisionError

    with captured(Window(wait=0, warmup=0, active=5)) as noted, pytest.raises(ZeroDivisionError):
        list(steps(broken()))
    whats = [what for what, *_ in noted.notes.events]
    assert whats.count("open") == whats.count("close")
    assert whats[-1] == "close"


@pytest.mark.parametrize("sized", [True, False])
def test_a_loop_may_continue_in_other_threads(sized: bool) -> None:
    with captured(Window(wait=1, warmup=1, active=3)) as noted, ThreadPoolExecutor(1) as other:
        batches = steps(range(9) if sized else iter(range(9)))
        threads: list[Callable[[], int | None]] = [
            lambda: next(batches, None),
            lambda: other.submit(next, batches, None).result(),
        ]
        taken = [threads[turn % 2]() for turn in range(10)]
    assert taken == [*range(9), None]
    assert captured_steps(noted.notes) == [2, 3, 4]


def test_a_loop_that_was_left_may_be_freed_by_another_thread() -> None:
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


def test_a_range_around_next_gives_a_warning_and_every_batch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with captured():
        batches, taken = steps(range(4)), []
        for _ in range(4):
            with region("fetch"):
                taken.append(next(batches))
        del batches
    assert taken == [0, 1, 2, 3]
    assert capsys.readouterr().err.count("Do not call next() on nsysflow.steps inside a") == 1


def raising(error: type[Exception]) -> Callable[[], int]:
    def length() -> int:
        raise error

    return length


@pytest.mark.parametrize(
    "length",
    [
        raising(AttributeError),  # a sampler that is not there
        raising(RuntimeError),
        raising(TypeError),  # as PyTorch's loaders of iterable datasets
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
def test_a_loader_that_cannot_tell_its_length_still_works(length: Callable[[], int]) -> None:
    class Loader(list[int]):
        def __len__(self) -> int:
            return length()

    with captured() as noted:
        assert [*steps(Loader([1, 2, 3]))] == [1, 2, 3]
    assert len(marked_steps(noted.notes)) == 3


def test_under_torch_profiler_nothing_is_marked_after_the_window() -> None:
    with captured(collector="kineto") as noted:
        list(steps(range(9), wait=0, warmup=0, active=2))
    assert marked_steps(noted.notes) == [0, 1]


def test_without_a_profiler_the_loop_is_the_iterable_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collectors, "COLLECTOR_HERE", None)
    monkeypatch.setenv(CAPTURE, "0:0:1")
    monkeypatch.setattr(pace, "synchronize", None)
    batches = iter(range(3))
    assert steps(batches) is batches


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"warmup": -1}, {"active": 0}])
def test_an_impossible_window_is_refused_with_or_without_a_profiler(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="WAIT:WARMUP:ACTIVE"):
        steps(range(3), **wrong)
    with captured(), pytest.raises(ValueError, match="WAIT:WARMUP:ACTIVE"):
        steps(range(3), **wrong)
