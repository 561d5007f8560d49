"""Ranges are recorded if a profiler is attached, always closed, and cost nothing otherwise."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow import region
from nsysflow.runtime import collectors, recorders, regions
from nsysflow.runtime.regions import Region
from nsysflow.runtime.this_process import THIS_PROCESS
from tests.recording import Tree, read_back, recorded

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
def test_ranges_arrive_nested_as_they_were_written(tree: Tree) -> None:
    with recorded() as notes:
        run_tree(tree)
    assert read_back(notes) == tree


@given(tree=trees)
def test_every_range_opened_is_counted_once(tree: Tree) -> None:
    with recorded() as notes:
        run_tree(tree)
        assert THIS_PROCESS.ranges == len(notes.opened())


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


def test_a_range_has_its_payload() -> None:
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
    """Call it in another thread, and raise what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(does).result()


def test_a_range_that_another_thread_leaves_is_closed_when_its_own_thread_next_opens_one() -> None:
    with recorded() as notes:
        left, after = region("left"), region("after")
        left.__enter__()
        on_another_thread(left.__exit__)
        assert notes.events == [("open", "left", None)]
        with after:
            pass
    assert read_back(notes) == [("left", []), ("after", [])]
    assert not regions._OPEN.ranges


def test_a_range_left_by_another_thread_closes_right_after_the_ranges_inside_it() -> None:
    with recorded() as notes:
        outer, left = region("outer"), region("left")
        outer.__enter__()
        left.__enter__()
        with region("inner"):
            on_another_thread(outer.__exit__)
            on_another_thread(left.__exit__)
        assert read_back(notes) == [("outer", [("left", [("inner", [])])])]


def test_leaving_another_threads_range_closes_none_of_this_thread() -> None:
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


def test_a_range_that_ends_before_one_inside_it_closes_only_itself_with_one_warning(
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
def test_nested_ranges_give_no_warning(tree: Tree) -> None:
    with recorded():
        run_tree(tree)
        assert not regions._out_of_order_warned


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


def test_without_a_profiler_no_recorder_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(_collector: collectors.Collector) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(collectors, "COLLECTOR_HERE", None)
    monkeypatch.setattr(recorders, "find_recorder", looked)
    with region("forward"):
        regions.mark("not recorded")
    assert not regions._OPEN.ranges


@pytest.mark.parametrize("payload", [0, -(2**63), 2**63 - 1, None])
def test_a_payload_may_have_64_bits(payload: int | None) -> None:
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
def test_any_other_payload_is_refused_with_or_without_a_profiler(
    monkeypatch: pytest.MonkeyPatch,
    payload: int,
    error: type[Exception],
    collector: collectors.Collector | None,
) -> None:
    monkeypatch.setattr(collectors, "COLLECTOR_HERE", collector)
    with pytest.raises(error, match="at most 64 bits"):
        region("step", payload)


def test_importing_region_and_steps_loads_neither_polars_nor_torch() -> None:
    code = (
        "import sys; from nsysflow import region, steps\n"
        "with region('forward'): list(steps(range(12)))\n"
        "print(*sorted({'polars', 'torch', 'nvtx', 'numpy', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
