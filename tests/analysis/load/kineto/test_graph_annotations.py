"""What torch writes of CUDA graphs: names of what they captured; and counters beside them."""

from pathlib import Path
from typing import Any, Final

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind
from tests.agreement import assert_agrees
from tests.analysis.load.kineto.traces import event, write
from tests.oracle.model import from_trace
from tests.oracle.report import Report

LAUNCH: Final = {"correlation": 1}
SHAPE: Final = {
    "grid": [1, 1, 1],
    "block": [32, 1, 1],
    "registers per thread": 16,
    "shared memory": 0,
}


def replayed(*kernels: dict[str, Any]) -> list[dict[str, Any]]:
    """A graph in a step, with these arguments of its kernels."""
    return [
        event("user_annotation", "step", 10, 90),
        event("cuda_runtime", "cudaGraphLaunch", 20, 10, args=LAUNCH),
        *(
            event(
                "kernel",
                "k",
                50 + 10 * place,
                9,
                pid=0,
                tid=7,
                args={"device": 0, "stream": 7, "graph id": 5, **SHAPE, **LAUNCH, **args},
            )
            for place, args in enumerate(kernels)
        ),
    ]


def test_kernels_of_a_graph_are_in_the_phases_that_the_program_named_in_its_capture(
    tmp_path: Path,
) -> None:
    events = replayed(
        {"graph node id": 1, "name": "attention"},
        {"graph node id": 2, "str": "mlp"},
        {"graph node id": 3, "annotated_stream": 9},
        {"graph node id": 4, "name": "attention"},
        {"name": "outside of a graph"},
    )
    again = [
        one | {"ts": one["ts"] + 1_000}
        for one in replayed({"graph node id": 1, "name": "attention"})
    ]
    for one in again:
        one["args"] = one.get("args", {}) | {"correlation": 2}
    analysis = nsysflow.analyze(load(write(tmp_path, *events, *again)))
    rows = analysis.phases.select("path", "kernels").rows()
    assert dict(rows) == {"step": 6, "step/attention": 3, "step/mlp": 1}
    assert not any(note.kind is NoteKind.CAPTURES_NOT_RECORDED for note in analysis.notes)
    assert_agrees(analysis, Report(from_trace(load(write(tmp_path, *events, *again)))))


def test_names_of_no_use_leave_the_trace_readable(tmp_path: Path) -> None:
    odd: tuple[Any, ...] = (3, "", None, [], {"a": 1})
    events = replayed(*({"graph node id": at, "name": name} for at, name in enumerate(odd, 1)))
    trace = load(write(tmp_path, *events))
    assert trace.graph_nodes.is_empty()
    assert trace.graph_ranges.is_empty()


def test_a_note_says_which_counters_are_not_read(tmp_path: Path) -> None:
    counters = [
        {"ph": "C", "name": name, "pid": 0, "ts": at, "args": {"W": at}}
        for at, name in enumerate(("power", "power", "temperature", "sm clock", "a", "b\n"))
    ]
    trace = load(write(tmp_path, *replayed({}), *counters))
    (note,) = (note.text for note in trace.notes if note.kind is NoteKind.OTHER_COUNTERS)
    assert note == "counters in this trace are not read: a, b·, power, sm clock and 1 more"
