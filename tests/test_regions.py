"""Ranges are opened where a profiler takes them, always closed, and cost nothing elsewhere."""

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import NoReturn, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow import recorders, region, regions, steps
from nsysflow.handshake import OPENER
from nsysflow.recorders import attached, find_recorder
from nsysflow.regions import Region
from nsysflow.telling import RECORD
from tests.recording import Notes, recorded

Tree = list[tuple[str, "Tree"]]

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


def read_back(notes: Notes) -> Tree:
    """The tree that the notes tell of; fails where a range closes out of turn."""
    path: list[tuple[str, Tree]] = [("", [])]
    for what, name, _ in notes.events:
        if what == "open":
            path.append((name, []))
        else:
            assert path[-1][0] == name
            closed = path.pop()
            path[-1][1].append(closed)
    ((_, tree),) = path
    return tree


@given(tree=trees)
def test_ranges_arrive_nested_as_they_were_written(tree: Tree) -> None:
    with recorded() as notes:
        run_tree(tree)
    assert read_back(notes) == tree


@given(tree=trees)
def test_every_range_opened_is_counted_once(tree: Tree) -> None:
    with recorded() as notes:
        run_tree(tree)
        assert RECORD.ranges == len(notes.opened())


def test_a_range_closes_when_its_body_raises() -> None:
    with (
        recorded() as notes,
        pytest.raises(ZeroDivisionError),
        region("outer"),
        region("inner"),
    ):
        raise ZeroDivisionError
    assert [what for what, *_ in notes.events] == ["open", "open", "close", "close"]


def test_the_same_object_may_be_entered_while_it_is_open() -> None:
    with recorded() as notes:
        again = region("loss")
        with again, again:
            pass
        with again:
            pass
    assert read_back(notes) == [("loss", [("loss", [])]), ("loss", [])]


def test_a_payload_goes_with_its_range() -> None:
    with recorded() as notes, region("step", 7):
        pass
    assert notes.events == [("open", "step", 7), ("close", "step", 7)]


def test_a_thread_closes_its_own_ranges() -> None:
    shared, met = region("forward"), threading.Barrier(2)

    def work(notes: list[str], name: str) -> None:
        with shared, region(name):
            met.wait(timeout=10)
            notes.append(name)
        met.wait(timeout=10)

    with recorded() as notes:
        done: list[str] = []
        threads = [threading.Thread(target=work, args=(done, name)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(done) == ["a", "b"]
    opened = sorted(name for what, name, _ in notes.events if what == "open")
    closed = sorted(name for what, name, _ in notes.events if what == "close")
    assert opened == closed == ["a", "b", "forward", "forward"]
    assert not regions._OPEN.ranges


def on_another_thread(does: Callable[[], object]) -> None:
    """Do it there, and raise what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(does).result()


def test_a_range_that_another_thread_leaves_is_closed_by_its_own_at_the_next() -> None:
    with recorded() as notes:
        left, after = region("left"), region("after")
        left.__enter__()
        on_another_thread(left.__exit__)
        assert notes.events == [("open", "left", None)]
        with after:
            pass
    assert read_back(notes) == [("left", []), ("after", [])]
    assert not regions._OPEN.ranges


def test_a_range_left_elsewhere_outlives_what_is_open_in_it_and_no_more() -> None:
    with recorded() as notes:
        outer, left = region("outer"), region("left")
        outer.__enter__()
        left.__enter__()
        with region("inner"):
            on_another_thread(outer.__exit__)
            on_another_thread(left.__exit__)
        assert read_back(notes) == [("outer", [("left", [("inner", [])])])]


def test_leaving_a_range_of_another_thread_closes_none_of_this_threads() -> None:
    with recorded() as notes:
        left = region("left")
        left.__enter__()

        def leave() -> None:
            with region("own"):
                left.__exit__()
                with region("inner"):
                    pass
            left.__exit__()

        on_another_thread(leave)
        with region("after"):
            pass
    assert [event[:2] for event in notes.events] == [
        *(("open", "left"), ("open", "own"), ("open", "inner")),
        *(("close", "inner"), ("close", "own")),
        *(("close", "left"), ("open", "after"), ("close", "after")),
    ]


def test_a_range_that_ends_before_one_inside_it_closes_itself_and_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with recorded() as notes:
        for _ in range(2):
            outer, inner = region("outer"), region("inner")
            outer.__enter__()
            inner.__enter__()
            outer.__exit__()
            inner.__exit__()
    ends = [name for what, name, _ in notes.events if what == "close"]
    assert ends == ["outer", "inner"] * 2
    said = capsys.readouterr().err
    assert said.count("nsysflow: the range 'outer' ended before 'inner'") == 1
    assert len(said.splitlines()) == 1
    assert not regions._OPEN.ranges


@given(tree=trees)
def test_nested_ranges_are_never_called_out_of_turn(tree: Tree) -> None:
    with recorded():
        run_tree(tree)
        assert not regions._out_of_turn_said


def test_a_closed_range_is_freed_without_a_garbage_collection() -> None:
    with recorded():
        closed, inner = region("loss"), region("inner")
        with closed:
            pass
        assert closed._latest is None
        closed.__enter__()
        inner.__enter__()
        closed.__exit__()
        assert closed._latest is None
        inner.__exit__()


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


def test_without_a_profiler_a_decorated_function_is_the_function_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorders, "COLLECTOR_HERE", None)

    def loss() -> None:
        pass

    assert region("loss")(loss) is loss


def test_without_a_profiler_nobody_looks_for_a_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(_collector: recorders.Collector) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(recorders, "COLLECTOR_HERE", None)
    monkeypatch.setattr(recorders, "find_recorder", looked)
    with region("forward"):
        regions.mark("nobody hears this")
    assert not regions._OPEN.ranges


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
    assert attached(environ) == collector


def without_nvtx(monkeypatch: pytest.MonkeyPatch, torch: object) -> None:
    monkeypatch.setattr(recorders, "_missing", set())
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", torch)


@pytest.mark.parametrize("built", [True, False])
def test_torch_marks_ranges_only_where_it_was_built_with_cuda(
    monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    notes: list[str] = []
    nvtx = SimpleNamespace(range_push=notes.append, range_pop=lambda: notes.append("pop"))
    backends = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: built))
    torch = SimpleNamespace(cuda=SimpleNamespace(nvtx=nvtx), backends=backends)
    without_nvtx(monkeypatch, torch)
    recorder = find_recorder("nsys")
    if not built:
        assert recorder is None
        return
    assert recorder is not None
    recorder.open("forward", 3)()
    assert notes == ["forward", "pop"]


def test_it_is_said_once_that_nothing_can_mark_ranges(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    regions.say_that_nothing_is_recorded.cache_clear()
    without_nvtx(monkeypatch, None)
    with recorded():
        monkeypatch.setattr(regions, "_recorder", None)
        for _ in range(3):
            with region("forward"):
                pass
        assert RECORD.ranges == 0
    assert capsys.readouterr().err.count("pip install nvtx") == 1


@pytest.mark.parametrize(("collector", "package"), [("nsys", "nvtx"), ("kineto", "torch.profiler")])
def test_a_profiler_whose_package_is_missing_stops_no_loop(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    collector: recorders.Collector,
    package: str,
) -> None:
    regions.say_that_nothing_is_recorded.cache_clear()
    without_nvtx(monkeypatch, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv(OPENER, "nvtx")
    with recorded(collector):
        monkeypatch.setattr(regions, "_recorder", None)
        assert list(steps(range(5), wait=0, warmup=1, active=2)) == list(range(5))
        assert (RECORD.ranges, RECORD.window) == (0, "closed")
    said = capsys.readouterr().err
    assert said.count(f"pip install {package.partition('.')[0]}\n") == 1
    assert said.count("nsysflow:") == 1


@pytest.mark.parametrize(
    ("collector", "package", "has"),
    [("nsys", "nvtx", "push_range"), ("kineto", "torch.profiler", "record_function")],
)
def test_a_missing_package_is_searched_for_once_and_taken_once_somebody_has_it(
    monkeypatch: pytest.MonkeyPatch, collector: recorders.Collector, package: str, has: str
) -> None:
    searched: list[str] = []

    def search(name: str) -> object:
        searched.append(name)
        if name not in sys.modules:
            raise ImportError
        return sys.modules[name]

    monkeypatch.setattr(recorders, "_missing", set())
    monkeypatch.setattr(recorders, "import_module", search)
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert [find_recorder(collector) for _ in range(3)] == [None] * 3
    assert searched == [package]
    monkeypatch.setitem(sys.modules, package, cast("ModuleType", SimpleNamespace(**{has: None})))
    assert find_recorder(collector) is not None


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
    opened = [name for what, name, _ in notes.events if what == "open"]
    closed = [name for what, name, _ in notes.events if what == "close"]
    assert opened == ["consumer", "generator", "first", "generator", "generator"]
    assert sorted(closed) == sorted(opened)
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
    "thing", [Callable_, Callable_(), staticmethod(run_tree), classmethod(lambda _cls: None), len]
)
@pytest.mark.parametrize("collector", ["nsys", None])
def test_what_is_no_function_cannot_be_decorated_with_or_without_a_profiler(
    monkeypatch: pytest.MonkeyPatch,
    thing: Callable[..., object],
    collector: recorders.Collector | None,
) -> None:
    monkeypatch.setattr(recorders, "COLLECTOR_HERE", collector)
    with pytest.raises(TypeError, match="@region goes on a function"):
        region("loss")(thing)


@pytest.mark.parametrize("payload", [0, -(2**63), 2**63 - 1, None])
def test_a_payload_of_64_bits_is_taken(payload: int | None) -> None:
    with recorded() as notes, region("step", payload):
        pass
    assert notes.events[0] == ("open", "step", payload)


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        *((2**63, ValueError), (-(2**63) - 1, ValueError)),
        *((True, TypeError), (1.0, TypeError), ("1", TypeError)),
    ],
)
@pytest.mark.parametrize("collector", ["nsys", None])
def test_another_payload_is_refused_with_or_without_a_profiler(
    monkeypatch: pytest.MonkeyPatch,
    payload: int,
    error: type[Exception],
    collector: recorders.Collector | None,
) -> None:
    monkeypatch.setattr(recorders, "COLLECTOR_HERE", collector)
    with pytest.raises(error, match="at most 64 bits"):
        region("step", payload)


def test_a_recorder_that_comes_later_takes_only_what_opens_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = Notes()
    with recorded():
        monkeypatch.setattr(regions, "_recorder", None)
        monkeypatch.setattr(recorders, "find_recorder", lambda _collector: None)
        with region("before"):
            monkeypatch.setattr(regions, "_recorder", later)
            with region("after"):
                pass
    assert read_back(later) == [("after", [])]


def test_importing_region_and_steps_loads_neither_polars_nor_torch() -> None:
    code = (
        "import sys; from nsysflow import region, steps\n"
        "with region('forward'): list(steps(range(12)))\n"
        "print(*sorted({'polars', 'torch', 'nvtx', 'numpy', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
