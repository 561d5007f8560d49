"""Captures beside a trace: which operators the kernels of its CUDA graphs get."""

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind, Trace
from nsysflow.base.names import CAPTURES
from nsysflow.runs.cache import fingerprint
from tests.analysis.load.kineto.traces import call, event, kernel, write

Kernels = list[tuple[str, int | None]]
"""The name of each kernel, and the first size of its operator, or None outside of operators."""


def captured(*graphs: Kernels, named: bool = True) -> list[dict[str, Any]]:
    """The events of a capture of these graphs."""
    events: list[dict[str, Any]] = []
    at = 0
    for graph in graphs:
        events.append(event("cuda_runtime", "hipStreamBeginCapture", at, 1))
        for name, size in graph:
            at += 10
            if size is not None:
                dims = {"Input Dims": [[size, 4], [4, 8]], "Input type": ["float"] * 2}
                events.append(event("cpu_op", "aten::mm", at, 8, args=dims))
            kind = "hipMemcpyAsync" if name == "memcpy" else "hipLaunchKernel"
            args = {"kernel": name} if named and name != "memcpy" else {}
            events.append(event("cuda_runtime", kind, at + 1, 2, args=args))
        events.append(event("cuda_runtime", "hipStreamEndCapture", at + 10, 1))
        at += 20
    return events


def put(folder: Path, name: str, events: list[dict[str, Any]]) -> None:
    """Write a capture beside the traces of a folder."""
    (folder / CAPTURES).mkdir(exist_ok=True)
    content = json.dumps({"traceEvents": events}).encode()
    (folder / CAPTURES / name).write_bytes(gzip.compress(content))


Replayed = list[tuple[str, int]]
"""Names and streams."""


def replayed(folder: Path, *steps: tuple[str, list[Replayed]], **document: object) -> Trace:
    """A trace of steps, each with graphs that it launches."""
    events: list[dict[str, Any]] = []
    number = 0
    for place, (step, graphs) in enumerate(steps):
        at = 10_000 * place
        events.append(event("user_annotation", step, at, 5_000))
        for graph in graphs:
            number += 1
            at += 100
            events.append(call(at, number, "hipGraphLaunch", 5))
            for order, (name, stream) in enumerate(graph):
                ran = kernel(at + 10 + 3 * order, 2, name, correlation=number, stream=stream)
                kind = {"cat": "gpu_memcpy"} if name.startswith("Memcpy") else {}
                events.append(ran | kind)
    return load(write(folder, *events, **document))


def sizes(trace: Trace) -> list[tuple[int, int, int | None]]:
    """Launch, when the kernel starts, and the first size of its operator; in order."""
    dims = [json.loads(text)[0][0] for text in trace.operator_shapes["dims"]]
    kernels = {row["detail"]: row["start_ns"] for row in trace.ops.filter(kind="kernel").to_dicts()}
    rows = trace.operators.sort("correlation", "detail").to_dicts()
    return [
        (row["correlation"], kernels[row["detail"]] // 1_000, dims[row["shape"]]) for row in rows
    ]


def told(trace: Trace) -> list[str]:
    """What the notes say of captures."""
    return [note.text for note in trace.notes if note.kind is NoteKind.CAPTURED_OPERATORS]


ONE: Final[Kernels] = [("a", 32), ("memcpy", None), ("b", 33), ("a", 34), ("plain", None)]
RAN: Final[Replayed] = [
    (name, 7) for name in ("a", "Memcpy DtoD (Device -> Device)", "b", "a", "plain")
]
STEP: Final = "step[DECODE bs=30]"
CAPTURE: Final = "bs_30_rank0.json.gz"


def test_kernels_of_a_graph_get_the_operators_of_the_smallest_capture_with_room(
    tmp_path: Path,
) -> None:
    for name, size in (("bs_16_rank0", 16), ("bs_64_rank0", 64), ("bs_32_rank1", 99)):
        put(tmp_path, f"{name}.json.gz", captured([("a", size)]))
    put(tmp_path, "bs_32_rank0.json.gz", captured(ONE))
    trace = replayed(tmp_path, (STEP, [RAN]), (STEP, [RAN]), distributedInfo={"rank": 0})
    of_step = [(110, 32), (116, 33), (119, 34)]
    assert sizes(trace) == [
        *((1, at, size) for at, size in of_step),
        *((2, 10_000 + at, size) for at, size in of_step),
    ]
    assert told(trace) == [
        "6 kernels of CUDA graphs have their operators from capture_traces/bs_32_rank0.json.gz"
    ]
    operators = nsysflow.analyze(trace).operators
    assert operators.select("shapes", "calls", "kernels").sort("shapes").rows() == [
        (f"{size}x4, 4x8", 2, 2) for size in (32, 33, 34)
    ]


def test_graphs_of_a_step_are_those_of_its_capture_in_order(tmp_path: Path) -> None:
    put(tmp_path, "graph_capture_rank_0.1.pt.trace.json.gz", captured([("a", 1)], [("a", 2)]))
    details = [
        {"file": "graph_capture_rank_0.1.pt.trace.json.gz", "batch_size": 9, "mode": "PIECEWISE"}
    ]
    (tmp_path / CAPTURES / "execution_details.json").write_text(json.dumps(details))
    trace = replayed(tmp_path, ("execute_context_1(5)_generation_2(2)", [[("a", 7)], [("a", 7)]]))
    assert [size for _, _, size in sizes(trace)] == [1, 2]


def test_on_several_streams_only_what_is_sure_has_an_operator(tmp_path: Path) -> None:
    """`a` runs on two streams, with one shape; `b` with two, so that it may be either."""
    graph: Kernels = [("a", 1), ("a", 1), ("b", 2), ("b", 3), ("c", 4)]
    put(tmp_path, CAPTURE, captured(graph))
    trace = replayed(tmp_path, (STEP, [[("c", 7), ("b", 8), ("a", 8), ("b", 7), ("a", 7)]]))
    assert [size for _, _, size in sizes(trace)] == [4, 1, 1]


MISFITS: Final[dict[str, tuple[list[dict[str, Any]], str]]] = {
    "another kernel": (captured([("a", 1), ("x", 2)]), f"{CAPTURE} captured other kernels"),
    "too small": (captured([("a", 1)]), "no capture has room for a batch of 30"),
    "two graphs": (
        captured([("a", 1)], [("b", 2)]),
        f"{CAPTURE} has 2 graphs, and a step launches 1",
    ),
    "no names": (
        captured([("a", 1), ("b", 2)], named=False),
        "does not name the kernels that it captured",
    ),
    "no trace": (
        [{"ph": 3}, {"ph": "X", "cat": "cpu_op", "name": "x"}],
        f"{CAPTURE} cannot be read",
    ),
}


@pytest.mark.parametrize("what", MISFITS)
def test_a_capture_that_does_not_fit_gives_no_operators_and_a_note(
    what: str, tmp_path: Path
) -> None:
    events, why = MISFITS[what]
    put(tmp_path, "bs_8_rank0.json.gz" if what == "too small" else CAPTURE, events)
    trace = replayed(tmp_path, (STEP, [[("a", 7), ("b", 7)]]))
    assert trace.operators.is_empty()
    (note,) = told(trace)
    assert note.endswith(why)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.sampled_from((7, 8))), max_size=9
    ),
    st.randoms(use_true_random=False),
)
def test_no_kernel_gets_the_operator_of_another(
    tmp_path_factory: pytest.TempPathFactory, graph: list[tuple[str, int, int]], random: Random
) -> None:
    """Streams run side by side, each in the order of the capture."""
    folder = tmp_path_factory.mktemp("t")
    put(folder, CAPTURE, captured([(name, size) for name, size, _ in graph]))
    queues = [[row for row in graph if row[2] == stream] for stream in (7, 8)]
    ran = []
    while any(queues):
        ran.append(random.choice([queue for queue in queues if queue]).pop(0))
    trace = replayed(folder, (STEP, [[(name, stream) for name, _, stream in ran]]))
    true = {110 + 3 * order: size for order, (_, size, _) in enumerate(ran)}
    given_ = {at: size for _, at, size in sizes(trace)}
    assert given_.items() <= true.items()
    if len({stream for _, _, stream in graph}) == 1:
        assert given_ == true


def test_a_kernel_that_the_profiler_lost_leaves_the_others_their_operators(tmp_path: Path) -> None:
    put(tmp_path, CAPTURE, captured([("a", 1), ("a", 2), ("b", 3)]))
    trace = replayed(tmp_path, (STEP, [[("a", 7), ("b", 7)]]))
    assert [size for _, _, size in sizes(trace)] == [3]


def test_without_step_names_only_a_single_capture_is_taken(tmp_path: Path) -> None:
    put(tmp_path, "bs_1_rank0.json.gz", captured([("a", 1)]))
    assert [size for _, _, size in sizes(replayed(tmp_path, ("r", [[("a", 7)]])))] == [1]
    put(tmp_path, "bs_2_rank0.json.gz", captured([("a", 2)]))
    trace = replayed(tmp_path, ("r", [[("a", 7)]]))
    assert trace.operators.is_empty()
    assert told(trace)[0].endswith("and no step says which of them runs")


def test_answers_of_a_trace_are_others_once_captures_lie_beside_it(tmp_path: Path) -> None:
    replayed(tmp_path, (STEP, [RAN]))
    before = fingerprint(tmp_path / "t.json")
    put(tmp_path, CAPTURE, captured(ONE))
    assert before != fingerprint(tmp_path / "t.json")
