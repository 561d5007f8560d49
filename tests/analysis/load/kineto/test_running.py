"""What threads ran, and what it says of launches and of steps of engines; their keys."""

from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind, Trace
from tests.analysis.load.frames import assert_schemas
from tests.analysis.load.kineto.traces import (
    PID,
    REAL,
    SIZES,
    agreed,
    call,
    event,
    function,
    kernel,
    write,
)
from tests.oracle.running import Span, innermost, ran

SPANS: Final = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 8), st.booleans(), st.sampled_from("abc")),
    max_size=7,
)


def operator(name: str, start: int, length: int, **more: object) -> dict[str, Any]:
    return event("cpu_op", name, start, length, **more)


def stacks_of(trace: Trace) -> dict[int, tuple[str, ...]]:
    """The functions of each stack, innermost first."""
    frames = trace.frames.sort("stack", "depth").group_by("stack", maintain_order=True)
    return {number: tuple(rows["function"]) for (number,), rows in frames}


def ran_at(trace: Trace, us: int, stacks: dict[int, tuple[str, ...]]) -> tuple[str, ...]:
    """What ran in a microsecond of a trace of one thread."""
    (found, *more) = [
        stacks[stack]
        for start_ns, end_ns, _, stack in trace.running.iter_rows()
        if start_ns <= 1_000 * us < end_ns
    ] or [()]
    assert not more, "stretches overlap"
    return found


@settings(max_examples=100, deadline=None)
@given(SPANS)
def test_at_each_instant_the_innermost_is_the_one_that_started_last(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, bool, str]]
) -> None:
    made, spans, rows = [], [], {True: 0, False: 0}
    for start, length, is_operator, name in drawn:
        made.append((operator if is_operator else function)(name, start, length))
        spans.append(Span(start, start + length, is_operator, rows[is_operator], name))
        rows[is_operator] += 1
    trace = load(write(tmp_path_factory.mktemp("t"), event("user_annotation", "r"), *made))
    stacks = stacks_of(trace)
    for us in range(22):
        assert ran_at(trace, us, stacks) == ran(spans, us)


def test_functions_have_files_and_lines_and_operators_only_names(tmp_path: Path) -> None:
    calls = [function("train.py(42): step", 0, 9), operator("aten::mm", 1, 2)]
    trace = load(write(tmp_path, *calls))
    assert_schemas(trace)
    inside = trace.running.filter(start_ns=1_000)["stack"].item()
    assert trace.frames.filter(stack=inside).sort("depth").rows() == [
        (inside, 0, None, None, "aten::mm"),
        (inside, 1, "train.py", 42, "step"),
    ]


def test_files_of_libraries_are_told_by_their_first_folder(tmp_path: Path) -> None:
    files = {
        "torch/nn/modules/linear.py": "site-packages/torch/nn/modules/linear.py",
        "typing.py": "lib/python3/typing.py",
        "concurrent/futures/thread.py": "lib/python3/concurrent/futures/thread.py",
        "model/torch.py": "model/torch.py",
        "/opt/app/train.py": "/opt/app/train.py",
    }
    calls = [function(f"{file}(1): f", 10 * at, 9) for at, file in enumerate(files)]
    assert load(write(tmp_path, *calls)).frames["file"].to_list() == [*files.values()]


def test_the_same_method_of_two_objects_is_one_function(tmp_path: Path) -> None:
    name = "<built-in method randn of type object at 0x{}>"
    calls = (function(name.format("7f1"), 0, 2), function(name.format("7f2"), 5, 2))
    trace = load(write(tmp_path, *calls))
    assert trace.frames["function"].to_list() == ["<built-in method randn of type object>"]
    assert trace.running["stack"].n_unique() == 1


def test_threads_do_not_run_inside_each_other(tmp_path: Path) -> None:
    trace = load(write(tmp_path, operator("outer", 0, 9), operator("alone", 1, 2, tid=900)))
    assert set(stacks_of(trace).values()) == {("outer",), ("alone",)}


def test_the_real_trace_agrees_with_the_oracle() -> None:
    assert len(agreed(load(REAL)).idle_stacks)


def test_autograd_threads_are_known_by_name_and_the_main_thread_by_its_id() -> None:
    threads = load(REAL).threads
    tids = threads.select(pid=pl.col("process") // 2**24, tid=pl.col("thread") & 0xFFFFFF)
    assert tids.rows() == [(813, 813), (813, 834)]
    assert threads["name"].to_list() == ["python3", "pt_autograd_0"]


def test_ids_too_large_for_an_os_thread_become_small_distinct_ones(tmp_path: Path) -> None:
    large = [140_737_000_000_001, 140_737_000_000_002, -5]
    events = [event("cuda_runtime", "cudaLaunchKernel", tid=tid) for tid in [PID, *large]]
    calls = load(write(tmp_path, *events)).calls
    assert calls["process"].unique().to_list() == [PID << 24]
    tids = [thread & 0xFFFFFF for thread in calls["thread"].to_list()]
    assert tids[0] == PID
    assert len(set(tids)) == 4
    assert [thread & ~0xFFFFFF for thread in calls["thread"].to_list()] == [PID << 24] * 4


OPERATORS: Final = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 8), st.booleans(), st.booleans()), max_size=7
)
"""Start, length, whether shapes were recorded, and whether it is on the other thread."""
LAUNCHES: Final = st.lists(
    st.tuples(st.integers(0, 20), st.booleans(), st.sampled_from(("Kernel", "Kernel", "Graph"))),
    max_size=5,
)


@settings(max_examples=100, deadline=None)
@given(OPERATORS, LAUNCHES)
def test_a_launch_is_of_the_innermost_operator_with_shapes(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, int, bool, bool]],
    launched: list[tuple[int, bool, str]],
) -> None:
    """A graph's launch is of none."""
    rows: list[dict[str, Any]] = [event("user_annotation", "r")]
    spans: dict[bool, list[Span]] = {False: [], True: []}
    for row, (start, length, shaped, other) in enumerate(drawn):
        args: dict[str, Any] = {"Input Dims": [[row]]} if shaped else {}
        rows.append(operator(f"op{row}", start, length, tid=PID + other, args=args))
        if shaped:
            spans[other].append(Span(start, start + length, is_operator=True, row=row, name=""))
    expected = {}
    for number, (at, other, what) in enumerate(launched, 1):
        name = {"Kernel": "cudaLaunchKernel", "Graph": "cudaGraphLaunch"}[what]
        rows += [call(at, number, name, tid=PID + other), kernel(correlation=number)]
        inside = innermost(spans[other], at)
        if inside is not None and what == "Kernel":
            expected[number] = f"op{inside.row}"
    trace = load(write(tmp_path_factory.mktemp("t"), *rows))
    names = trace.operator_shapes["name"]
    links = trace.operators.select("correlation", "shape").rows()
    assert {correlation: names[shape] for correlation, shape in links} == expected


RUN: Final = "/opt/sglang/srt/managers/tp_worker.py(445): forward_batch_generation"
RUNNER: Final = "/opt/sglang/srt/model_executor/model_runner.py(9): "
GRAPH: Final = "/opt/sglang/srt/model_executor/cuda_graph_runner.py(9): replay"
VLLM: Final = "vllm/v1/worker/gpu_model_runner.py(3380): execute_model"

STEPS: Final = {
    "a prompt": ([function(RUNNER + "forward_extend", 20, 5)], "prefill"),
    "tokens, launched one by one": ([function(RUNNER + "forward_decode", 20, 5)], "decode"),
    "tokens, as a graph": ([function(GRAPH, 20, 5)], "decode"),
    "neither": ([function(RUNNER + "forward_idle", 20, 5)], ""),
    "a step in a step": ([function(RUN, 20, 30), function(GRAPH, 25, 5)], "decode"),
    "on another thread": ([function(GRAPH, 20, 5, tid=PID + 1)], ""),
    "after it": ([function(GRAPH, 120, 5)], ""),
    "an operator": ([operator(GRAPH, 20, 5)], ""),
}


@pytest.mark.parametrize("what", STEPS)
def test_a_function_tells_a_step_and_those_in_it_what_it_does(what: str, tmp_path: Path) -> None:
    inside, kind = STEPS[what]
    trace = load(write(tmp_path, function(RUN, 10, 100), *inside))
    steps = trace.ranges.select("start_ns", "end_ns", "name").rows()
    assert steps == [(10_000, 110_000, f"engine step by function[{kind}]")]
    (note,) = (note.text for note in trace.notes if note.kind is NoteKind.ENGINE_FRAMES)
    assert note.startswith(
        "steps are the calls of forward_batch_generation (sglang/srt/managers/tp_worker.py)"
    )


def test_steps_that_ranges_name_are_not_looked_for_in_functions(tmp_path: Path) -> None:
    named = event("user_annotation", "step[DECODE bs=4]", 11, 50)
    assert len(load(write(tmp_path, named, function(RUN, 10, 100))).ranges) == 1
    assert load(write(tmp_path, function(RUN + "_embedding", 10, 100))).ranges.is_empty()


def test_these_steps_are_an_engines(tmp_path: Path) -> None:
    events = [
        one
        for at in range(0, 4_000, 1_000)
        for one in (
            function(VLLM, at, 100),
            call(at + 5, at + 1),
            kernel(at + 20, 500, correlation=at + 1, **SIZES),
        )
    ]
    analysis = agreed(load(write(tmp_path, *events)))
    assert analysis.phases["path"].to_list() == ["engine step"]
    assert len(analysis.serving_steps) == 4
