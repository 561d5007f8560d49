"""Steps of engines whose ranges do not name them, by the Python functions in the trace."""

from pathlib import Path
from typing import Any, Final

import pytest

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind, Trace
from tests.analysis.load.kineto.traces import PID, event, kernel, write

RUN: Final = "/opt/sglang/srt/managers/tp_worker.py(445): forward_batch_generation"
RUNNER: Final = "/opt/sglang/srt/model_executor/model_runner.py(9): "
GRAPH: Final = "/opt/sglang/srt/model_executor/cuda_graph_runner.py(9): replay"
VLLM: Final = "vllm/v1/worker/gpu_model_runner.py(3380): execute_model"


def function(name: str, ts: int, dur: int, tid: int = PID) -> dict[str, Any]:
    return event("python_function", name, ts, dur, tid=tid)


def steps_of(trace: Trace) -> list[tuple[int, int, str]]:
    """Start, end and name of the ranges that functions gave."""
    rows = trace.ranges.filter(trace.ranges["name"].str.starts_with("engine step"))
    return [(row["start_ns"], row["end_ns"], row["name"]) for row in rows.to_dicts()]


STEPS: Final = {
    "a prompt": ([function(RUNNER + "forward_extend", 20, 5)], "prefill"),
    "tokens, launched one by one": ([function(RUNNER + "forward_decode", 20, 5)], "decode"),
    "tokens, as a graph": ([function(GRAPH, 20, 5)], "decode"),
    "neither": ([function(RUNNER + "forward_idle", 20, 5)], ""),
    "a step in a step": ([function(RUN, 20, 30), function(GRAPH, 25, 5)], "decode"),
    "on another thread": ([function(GRAPH, 20, 5, PID + 1)], ""),
    "after it": ([function(GRAPH, 120, 5)], ""),
    "an operator": ([event("cpu_op", GRAPH, 20, 5)], ""),
}


@pytest.mark.parametrize("what", STEPS)
def test_a_function_tells_a_step_and_those_in_it_what_it_does(what: str, tmp_path: Path) -> None:
    inside, kind = STEPS[what]
    trace = load(write(tmp_path, function(RUN, 10, 100), *inside))
    assert steps_of(trace) == [(10_000, 110_000, f"engine step by function[{kind}]")]
    (note,) = (note.text for note in trace.notes if note.kind is NoteKind.ENGINE_FRAMES)
    assert note.startswith(
        "steps are the calls of forward_batch_generation (sglang/srt/managers/tp_worker.py)"
    )


def test_steps_that_ranges_name_are_not_looked_for_in_functions(tmp_path: Path) -> None:
    named = event("user_annotation", "step[DECODE bs=4]", 11, 50)
    trace = load(write(tmp_path, named, function(RUN, 10, 100)))
    assert steps_of(trace) == []
    assert load(write(tmp_path, function(RUN + "_embedding", 10, 100))).ranges.is_empty()


def test_these_steps_are_an_engines(tmp_path: Path) -> None:
    events = []
    for number in range(4):
        at, args = 1_000 * number, {"correlation": number + 1}
        events += [
            function(VLLM, at, 100),
            event("cuda_runtime", "cudaLaunchKernel", at + 5, 5, args=args),
            kernel(**args) | {"ts": at + 20, "dur": 500},
        ]
    analysis = nsysflow.analyze(load(write(tmp_path, *events)))
    assert analysis.phases["path"].to_list() == ["engine step"]
    assert len(analysis.serving_steps) == 4
    assert analysis.serving.select("kind", "steps", "requests_per_step").rows() == [
        ("all", 4, None)
    ]
