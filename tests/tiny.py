"""Tiny traces written down by hand: one process, a main thread, others as needed."""

from dataclasses import replace
from typing import Final

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.timeline import Timeline
from tests.oracle import model
from tests.oracle.model import (
    Call,
    Gil,
    GraphNode,
    Op,
    Overhead,
    PlainTrace,
    Range,
    Sample,
    to_trace,
)

PROCESS: Final = 1 << 24
MAIN: Final = PROCESS | 1
AUTOGRAD: Final = PROCESS | 2
WORKER: Final = PROCESS | 3
OTHER: Final = PROCESS | 4

Row = Call | Gil | GraphNode | Op | Overhead | Range | Sample


def launch(
    start: int, end: int, number: int, *, name: str = "cudaLaunchKernel", thread: int = MAIN
) -> Call:
    """A call; `number` is its correlation id."""
    return Call(start, end, PROCESS, thread, number, name)


def call(start: int, end: int, name: str, *, thread: int = MAIN) -> Call:
    """A call that launches nothing."""
    return Call(start, end, PROCESS, thread, None, name)


def kernel(
    start: int,
    end: int,
    number: int | None,
    *,
    device: int = 0,
    name: str = "k",
    node: int | None = None,
) -> Op:
    """The kernel that the launch of that number started; `node` is its node in a CUDA graph."""
    return Op("kernel", start, end, device, PROCESS, 7, number, node, name, name, model.Shape())


def made(start: int, node: int, original: int | None = None, *, thread: int = MAIN) -> GraphNode:
    """The creation of a node of a CUDA graph."""
    return GraphNode(start, PROCESS, thread, node, original)


def copy(
    start: int,
    end: int,
    number: int | None,
    direction: str,
    source: str,
    target: str,
    *,
    moved: int = 1_000,
) -> Op:
    """A memcpy of so many bytes."""
    name, about = f"memcpy {direction}", model.Copy(moved, direction, source, target)
    return Op("memcpy", start, end, 0, PROCESS, 7, number, None, name, name, copy=about)


def opened(
    start: int, end: int | None, name: str, *, thread: int = MAIN, kind: str = "push_pop"
) -> Range:
    """An NVTX range."""
    return Range(start, end, kind, PROCESS, thread, None, name, start)


def sample(at: int, *functions: str, thread: int = MAIN) -> Sample:
    """What the program's `train.py` ran at an instant, the innermost function first; each is at the
    line that its place in the stack has."""
    frames = (
        model.Frame("/home/me/train.py", line, name) for line, name in enumerate(functions, 1)
    )
    return Sample(at, thread, tuple(frames))


def plain_of(*rows: Row) -> PlainTrace:
    """These rows as the oracle takes them; `AUTOGRAD` is one of PyTorch's backward threads."""
    return PlainTrace(
        ops=tuple(row for row in rows if isinstance(row, Op)),
        calls=tuple(row for row in rows if isinstance(row, Call)),
        ranges=tuple(row for row in rows if isinstance(row, Range)),
        gil=tuple(row for row in rows if isinstance(row, Gil)),
        overhead=tuple(row for row in rows if isinstance(row, Overhead)),
        graph_nodes=tuple(row for row in rows if isinstance(row, GraphNode)),
        samples=tuple(row for row in rows if isinstance(row, Sample)),
        threads=(model.Thread(PROCESS, AUTOGRAD, "pt_autograd_0"),),
    )


def on_stream(op: Op, stream: int) -> Op:
    """The same operation on another stream."""
    return replace(op, stream=stream)


def told(*rows: Row, record: tuple[int, int], wait: tuple[int, int], device: int = 0) -> PlainTrace:
    """A trace in which an event is recorded, and a stream told to wait for it: when and where."""
    calls = (
        launch(record[0], record[0] + 1, 91, name="cudaEventRecord"),
        launch(wait[0], wait[0] + 1, 92, name="cudaStreamWaitEvent"),
    )
    return replace(
        plain_of(*rows, *calls),
        event_records=(model.EventRecord(PROCESS, device, 91, record[1], 1),),
        waits=(model.EventWait(PROCESS, 0, 92, wait[1], 1),),
    )


AS_RECORDED: Final = Options(unrecorded_step_ns=1 << 60)
"""For what is to be judged as recorded: plain steps that are no shorter, so that recording is known
to cost nothing."""


def trace_of(*rows: Row) -> nsysflow.Trace:
    """These rows as a trace."""
    return to_trace(plain_of(*rows))


def timeline_of(*rows: Row, options: Options | None = None) -> Timeline:
    """The timeline of these rows."""
    return Timeline(trace_of(*rows), options or Options())


def analysis_of(*rows: Row, options: Options | None = None) -> nsysflow.Analysis:
    """The analysis of these rows."""
    return nsysflow.analyze(trace_of(*rows), options)
