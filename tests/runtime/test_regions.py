"""Ranges of a profiled program."""

import asyncio
import inspect
import json
import string
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nsysflow
from nsysflow import region, steps
from nsysflow.analysis.trace import NoteKind
from nsysflow.runtime import protocol, recorders, regions
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import OPENER, attached_collector
from nsysflow.runtime.recorders import ascii_name, original_name
from nsysflow.runtime.regions import Region, list_noted
from tests.recording import Notes, Tree, read_back, recorded

trees: st.SearchStrategy[Tree] = st.recursive(
    st.just([]),
    lambda inner: st.lists(st.tuples(st.sampled_from([*Region, "mine"]), inner), max_size=3),
    max_leaves=12,
)
"""Ranges and the ranges in them."""


def run_tree(tree: Tree) -> None:
    for name, inner in tree:
        with region(name):
            run_tree(inner)


@given(tree=trees)
def test_ranges_arrive_nested_as_they_were_written_and_are_counted(tree: Tree) -> None:
    with recorded() as notes:
        run_tree(tree)
        assert THIS_PROCESS.ranges == len(notes.opened())
        assert not regions._out_of_order_warned
    assert read_back(notes) == tree


def test_no_range_is_opened_once_the_recording_has_ended() -> None:
    with recorded() as notes:
        with region("open before"):
            THIS_PROCESS.recorded = True
            run_tree([("mine", [("inner", [])])])
        assert [name for what, name, *_ in notes.events] == ["open before", "open before"]
        assert THIS_PROCESS.ranges == 1


def test_a_range_closes_when_its_body_raises() -> None:
    with recorded() as notes, pytest.raises(ZeroDivisionError), region("outer"), region("inner"):
        raise ZeroDivisionError
    assert [what for what, *_ in notes.events] == ["open", "open", "close", "close"]


def happened(does: str) -> str:
    """What is recorded when ranges are entered (`+name`) and left (`-name`), with one object per
    name; `'` behind a name means another thread."""
    with recorded() as notes, ThreadPoolExecutor(1) as other:
        by_name = {word.strip("+-'"): region(word.strip("+-'")) for word in does.split()}
        for word in does.split():
            entered = by_name[word.strip("+-'")]
            act = entered.__enter__ if word[0] == "+" else entered.__exit__
            other.submit(act).result() if word.endswith("'") else act()
    assert not regions._OPEN.ranges
    return " ".join(("+" if what == "open" else "-") + name for what, name, _ in notes.events)


@pytest.mark.parametrize(
    ("does", "recorded"),
    [
        # the same object may be entered while it is open
        ("+loss +loss -loss -loss +loss -loss", ""),
        # a thread closes its own ranges, also of an object that others entered too
        ("+shared +a +shared' +b' -a -shared -b' -shared'", ""),
        # what another thread leaves is closed when its own thread next enters or leaves a range
        ("+left -left' +after -after", ""),
        # right after the ranges inside it
        ("+outer +left +inner -outer' -left' -inner", "+outer +left +inner -inner -left -outer"),
        # and none of the thread that left it
        ("+left +own' -left' +inner' -inner' -own' -left' +after -after",
         "+left +own +inner -inner -own -left +after -after"),
        # what ends before a range inside it closes only itself
        ("+outer +inner -outer -inner", ""),
    ],
)  # fmt: skip
def test_a_range_is_closed_by_its_own_thread_in_order(does: str, recorded: str) -> None:
    assert happened(does) == (recorded or does.replace("'", ""))


def test_ranges_that_overlap_give_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    happened("+outer +inner -outer -inner +outer +inner -outer -inner")
    said = capsys.readouterr().err
    assert said.startswith("nsysflow: the range 'outer' ended before 'inner'")
    assert len(said.splitlines()) == 1


def test_without_a_profiler_no_recorder_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Mock()
    monkeypatch.setattr(protocol, "COLLECTOR_HERE", None)
    monkeypatch.setattr(recorders, "find_recorder", looked)
    with region("forward"):
        regions.mark("not recorded")
    looked.assert_not_called()
    assert not regions._OPEN.ranges


@pytest.mark.parametrize("payload", [0, -(2**63), 2**63 - 1, None])
def test_a_range_has_its_payload_of_64_bits(payload: int | None) -> None:
    with recorded() as notes, region("step", payload):
        pass
    assert notes.events == [("open", "step", payload), ("close", "step", payload)]


@pytest.fixture(params=["nsys", None])
def collector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a profiler."""
    monkeypatch.setattr(protocol, "COLLECTOR_HERE", request.param)


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("payload", [2**63, -(2**63) - 1, True, 1.0, "1"])
def test_any_other_payload_is_refused(payload: Any) -> None:
    error = ValueError if type(payload) is int else TypeError
    with pytest.raises(error, match="at most 64 bits"):
        region("step", payload)


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A torch whose current stream captures a graph, while its `on` is true."""
    state = SimpleNamespace(on=True)
    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: state.on
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(regions, "_NOTED", [])
    monkeypatch.setattr(regions, "_AWAITS_WINDOW", True)
    return state


def listed(notes: Notes) -> list[list[Any]]:
    """The ranges that the marks list."""
    notes.events.clear()
    list_noted(notes.mark)
    texts = [json.loads(text)["nsysflow"] for _, text, _ in notes.events]
    return [each for text in texts for each in text["graph_ranges"]]


def test_ranges_opened_during_a_capture_are_listed_too(capturing: SimpleNamespace) -> None:
    with recorded() as notes:
        before_ns = time.monotonic_ns()
        with region("forward"), region("norm"):
            capturing.on = False
        with region("replay"):
            pass
        assert notes.opened() == ["forward", "norm", "replay"]
        ranges = listed(notes)
    assert [name for name, *_ in ranges] == ["norm", "forward"]
    for _, domain, begun_ns, ended_ns, thread in ranges:
        assert before_ns <= begun_ns <= ended_ns <= time.monotonic_ns()
        assert (domain, thread) == (None, threading.get_native_id())


@pytest.mark.usefixtures("capturing")
def test_short_marks_with_the_clock_come_before_the_lists() -> None:
    with recorded() as notes:
        for _ in range(250):
            with region("a" * 500):
                pass
        assert len(listed(notes)) == 250
    texts = [text for _, text, _ in notes.events]
    marks = [json.loads(text)["nsysflow"] for text in texts]
    assert [len(mark["graph_ranges"]) for mark in marks] == [0, 0, 0, 0, 0, 100, 100, 50]
    assert max(map(len, texts)) < 64_000
    clocks = [mark["clock_ns"] for mark in marks]
    assert clocks == sorted(clocks)


SAFE = set(string.ascii_letters + string.digits + string.punctuation + " ") - set('"\\')
CHARACTERS = st.characters(exclude_categories=["Cs"])  # half of a surrogate pair is no character
names = st.text(CHARACTERS | st.sampled_from('<U+>09AF"\\'), max_size=8)


@given(names)
def test_a_name_comes_back_as_it_was_from_characters_that_torch_keeps(name: str) -> None:
    assert original_name(ascii_name(name)) == name
    assert set(ascii_name(name)) <= SAFE
    assert ascii_name(name) == name or not set(name) <= SAFE - {"<"}


@pytest.mark.parametrize(("ours", "name"), [(True, "ü"), (False, "<U+FC>")])
def test_names_are_unescaped_only_in_a_trace_of_ours(tmp_path: Path, ours: bool, name: str) -> None:
    what = {"ph": "X", "cat": "user_annotation", "pid": 8, "tid": 8, "ts": 1, "dur": 2}
    events = [{**what, "name": "<U+FC>"}, {**what, "name": "unknown"}]
    window = {"nsysflow": {"capture": "0:0:1", "unprofiled_step_ns": None}} if ours else {}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events, **window}))
    trace = nsysflow.load(path)
    assert trace.ranges["name"].to_list() == [name, "unknown"]
    assert any(note.kind == NoteKind.NAMELESS_RANGES for note in trace.notes)


def test_a_decorated_function_is_a_range_each_time_it_is_called() -> None:
    with recorded() as notes:

        @region("loss")
        def loss(value: int) -> int:
            """Half of it."""
            return value // 2

        assert loss(4) == 2
        assert loss(6) == 3
    assert notes.opened() == ["loss", "loss"]
    assert (loss.__name__, loss.__doc__) == ("loss", "Half of it.")


def test_without_a_profiler_a_function_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "COLLECTOR_HERE", None)
    assert region("loss")(run_tree) is run_tree


def test_a_decorated_coroutine_is_a_range_over_all_of_its_body() -> None:
    with recorded() as notes:

        @region("outer")
        async def outer() -> int:
            with region("before"):
                pass
            await asyncio.sleep(0)
            with region("after"):
                return 3

        assert inspect.iscoroutinefunction(outer)
        assert asyncio.run(outer()) == 3
    assert read_back(notes) == [("outer", [("before", []), ("after", [])])]


def test_a_decorated_generator_is_a_range_between_its_yields_and_not_around_its_consumer() -> None:
    with recorded() as notes:

        @region("generator")
        def numbers() -> Generator[int, int, str]:
            with region("first"):
                sent = yield 1
            try:
                yield sent
            except KeyError:
                return "ended"
            return "never thrown"

        assert inspect.isgeneratorfunction(numbers)
        made = numbers()
        with region("consumer"):
            assert next(made) == 1
        assert made.send(5) == 5
        with pytest.raises(StopIteration, match="ended"):
            made.throw(KeyError())
    opened = notes.opened()
    assert opened == ["consumer", "generator", "first", "generator", "generator"]
    assert sorted(name for what, name, _ in notes.events if what == "close") == sorted(opened)
    assert not regions._OPEN.ranges


def test_a_decorated_generator_that_is_closed_cleans_up_inside_its_range() -> None:
    with recorded() as notes:

        @region("generator")
        def numbers() -> Iterator[int]:
            try:
                yield 1
            finally:
                with region("cleanup"):
                    pass

        made = numbers()
        next(made)
        cast("Generator[int]", made).close()
    assert read_back(notes) == [("generator", []), ("generator", [("cleanup", [])])]


def test_a_decorated_async_generator_is_a_range_between_its_yields() -> None:
    with recorded() as notes:

        @region("generator")
        async def numbers() -> AsyncIterator[int]:
            yield 1
            await asyncio.sleep(0)
            yield 2

        async def consume() -> list[int]:
            found = []
            async for number in numbers():
                with region("consumer"):
                    found.append(number)
            return found

        assert inspect.isasyncgenfunction(numbers)
        assert asyncio.run(consume()) == [1, 2]
    names = ["generator", "consumer", "generator", "consumer", "generator"]
    assert read_back(notes) == [(name, []) for name in names]


class Callable_:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "thing", [Callable_, Callable_(), staticmethod(len), classmethod(lambda _cls: None), len]
)
@pytest.mark.usefixtures("collector")
def test_only_functions_can_be_decorated(thing: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="@region decorates functions"):
        region("loss")(thing)


@pytest.mark.parametrize(("collector", "package"), [("nsys", "nvtx"), ("kineto", "torch.profiler")])
def test_a_missing_package_does_not_stop_a_loop(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    collector: protocol.Collector,
    package: str,
) -> None:
    regions.warn_nothing_recorded.cache_clear()
    monkeypatch.setattr(recorders, "_missing", set())
    for name in ("nvtx", "torch", package):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv(OPENER, "nvtx")
    with recorded(collector):
        monkeypatch.setattr(regions, "_recorder", None)
        assert list(steps(range(5), wait=0, warmup=1, active=2)) == list(range(5))
        assert (THIS_PROCESS.ranges, THIS_PROCESS.window) == (0, "closed")
    said = capsys.readouterr().err
    assert said.count(f"pip install {package.partition('.')[0]}\n") == 1
    assert said.count("nsysflow:") == 1


def test_a_recorder_found_later_records_only_later_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    later = Notes()
    with recorded():
        monkeypatch.setattr(regions, "_recorder", None)
        monkeypatch.setattr(recorders, "find_recorder", lambda _collector: None)
        with region("before"):
            monkeypatch.setattr(regions, "_recorder", later)
            with region("after"):
                pass
    assert read_back(later) == [("after", [])]


@pytest.mark.parametrize(
    ("environ", "collector"),
    [
        ({}, None),
        ({"NSYS_PROFILING_SESSION_ID": ""}, None),
        ({"NSYS_PROFILING_SESSION_ID": "17"}, "nsys"),
        ({"NVTX_INJECTION64_PATH": "libToolsInjection64.so"}, "nsys"),
        ({"NSYSFLOW_COLLECTOR": "nsys"}, "nsys"),
        ({"NSYSFLOW_COLLECTOR": "kineto"}, "kineto"),
        ({"NSYSFLOW_COLLECTOR": "kineto", "NSYS_PROFILING_SESSION_ID": "17"}, "kineto"),
    ],
)
def test_the_environment_says_who_profiles(environ: dict[str, str], collector: str | None) -> None:
    assert attached_collector(environ) == collector
