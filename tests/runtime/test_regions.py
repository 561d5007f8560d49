"""Ranges of a profiled program."""

import json
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nsysflow
from nsysflow import region
from nsysflow.analysis.notes import NoteKind
from nsysflow.runtime import collectors, recorders, regions
from nsysflow.runtime import regions as graph_ranges
from nsysflow.runtime.auto import steps as recording
from nsysflow.runtime.auto.steps import Recording
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import CAPTURE, COLLECTOR
from nsysflow.runtime.recorders import ascii_name, original_name
from nsysflow.runtime.regions import Region, list_noted
from tests.recording import Notes, Tree, read_back, recorded
from tests.runtime.programs import run_torch

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
    with recorded() as notes, pytest.raises(ZeroDivisionError), region("outer"), region("inner"):
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


SAFE = set(string.ascii_letters + string.digits + string.punctuation + " ") - set('"\\')
CHARACTERS = st.characters(exclude_categories=["Cs"])  # half of a surrogate pair is no character
names = st.text(CHARACTERS | st.sampled_from('<U+>09AF"\\'), max_size=8)

UNUSUAL = [
    *("für", "日本", "\U0001f600", 'a "quote"', "C:\\new\\u"),
    *("tab\there", "<U+FC>", "plain/x y"),
]
NAMES_RANGES = f"""
import torch
from nsysflow import region, steps
for _ in steps(range(1)):
    for name in {UNUSUAL!a}:
        with region(name):
            torch.ones(2)
"""


@given(names)
def test_a_name_comes_back_as_it_was(name: str) -> None:
    assert original_name(ascii_name(name)) == name


@given(names)
def test_an_ascii_name_has_only_characters_that_torch_keeps(name: str) -> None:
    assert set(ascii_name(name)) <= SAFE


@given(st.text(sorted(SAFE - {"<"})))
def test_a_name_that_torch_keeps_is_unchanged(name: str) -> None:
    assert ascii_name(name) == name


@given(st.text("<U+>0DF9", max_size=12))
@example("<U+D800>")
@example("<U+110000>")
def test_any_text_in_a_trace_is_read_as_valid_characters(text: str) -> None:
    assert len(original_name(text).encode()) <= len(text)


@pytest.mark.slow
def test_ranges_of_any_name_are_in_the_trace_of_a_run(tmp_path: Path) -> None:
    ran = run_torch(NAMES_RANGES, tmp_path, **{COLLECTOR: "kineto", CAPTURE: "0:0:1"})
    assert ran.returncode == 0, ran.stderr
    trace = nsysflow.load(tmp_path / "report.pt.trace.json.gz")
    assert set(trace.ranges["name"].cast(str)) == {"step", "data", *UNUSUAL}
    assert not any(note.kind == NoteKind.NAMELESS_RANGES for note in trace.notes)


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
