"""The table of memory against the oracle (spec §26)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.tables.index import TableHolder
from nsysflow.analysis.tables.memory import largest_within
from tests.analyses import EXAMPLES, SCHEMAS, rows_of
from tests.analysis.test_oracle_agrees import assert_pictured_alike
from tests.oracle.memory import kept_memory, larger_batch, memory, out_of_memory, peak_memory
from tests.oracle.model import (
    Failure,
    Frame,
    GpuMemory,
    MemoryChange,
    PlainTrace,
    Running,
    to_trace,
)
from tests.oracle.report import Report, Row
from tests.oracle.steps import kinds_of
from tests.oracle.strategies import traces
from tests.tiny import AUTOGRAD, MAIN, PROCESS, kernel, launch, opened, plain_of

USABLE: Final = (GpuMemory(PROCESS, 0, 40), GpuMemory(PROCESS, 1, 9))
ASKED: Final = (Frame(None, None, "aten::relu"), Frame("/home/me/train.py", 7, "step"))


@st.composite
def _with_memory(draw: Callable[..., Any]) -> PlainTrace:
    """A random trace, with memory of some of its processes on GPUs, near its own times."""
    trace = draw(traces(max_items=4))
    rows = [*trace.calls, *trace.ranges]
    instants = sorted({row.start_ns for row in rows} | {row.end_ns or 0 for row in rows})
    threads = sorted({row.thread for row in rows})
    level = st.sampled_from((0, 1, 5, 5, 9, None))
    stacks = st.sampled_from((None, None, ASKED))
    one = st.builds(
        MemoryChange,
        time_ns=st.sampled_from(instants).flatmap(
            lambda at: st.sampled_from((at, at - 1, at + 1, at + 40))
        ),
        row=st.just(0),
        device=st.sampled_from((0, 0, 1, 7)),
        process=st.sampled_from((PROCESS, PROCESS, 2 * PROCESS)),
        source=st.sampled_from(("allocator", "cuda") if draw(st.booleans()) else ("cuda",)),
        bytes=st.sampled_from((1, 3, -2)),
        allocated_bytes=level if draw(st.booleans()) else st.none(),
        reserved_bytes=level,
        thread=st.sampled_from((None, *threads)),
        correlation=st.sampled_from((None, 1, 2)),
        address=st.sampled_from((None, 1, 2)),
        frames=stacks,
    )
    changes = draw(st.lists(one, max_size=12))
    numbered = (replace(change, row=row) for row, change in enumerate(changes))
    failures = st.builds(
        Failure,
        time_ns=st.sampled_from(instants),
        device=st.sampled_from((0, 7)),
        process=st.sampled_from((PROCESS, None)),
        thread=st.sampled_from((None, *threads)),
        bytes=st.just(64),
        free_bytes=st.sampled_from((None, 8)),
        frames=stacks,
    )
    with_memory: PlainTrace = replace(
        trace,
        ops=trace.ops if draw(st.booleans()) else (),
        memory=tuple(numbered),
        out_of_memory=tuple(draw(st.lists(failures, max_size=2))),
        gpu_memory=USABLE,
    )
    return with_memory


STEPS: Final = plain_of(
    *(
        row
        for number, at in enumerate(range(0, 600, 100), start=1)
        for row in (
            opened(at, at + 100, "step"),
            opened(at + 10, at + 40, "forward"),
            opened(at + 50, at + 90, "backward"),
            launch(at + 20, at + 30, number),
            kernel(at + 30, at + 60, number),
        )
    )
)
"""Six steps of 100 ns, each with a forward and a backward."""


_ON_STEPS: Final = st.lists(
    st.builds(
        MemoryChange,
        time_ns=st.integers(0, 62).map(lambda ten: 10 * ten),
        row=st.just(0),
        device=st.just(0),
        process=st.just(PROCESS),
        source=st.just("allocator"),
        bytes=st.sampled_from((8, 3, 5, -8)),
        allocated_bytes=st.sampled_from((0, 5, 9)),
        thread=st.sampled_from((MAIN, AUTOGRAD, None)),
        address=st.sampled_from((None, 1, 2, 3)),
    ),
    max_size=20,
).map(
    lambda changes: replace(
        STEPS,
        gpu_memory=USABLE,
        memory=tuple(replace(change, row=row) for row, change in enumerate(changes)),
    )
)
"""These steps, with memory that changes anywhere in them."""


def mixed(trace: nsysflow.Trace) -> nsysflow.Trace:
    """The same with its changes of memory in another order, which means nothing."""
    return replace(trace, memory=trace.memory.sample(fraction=1.0, shuffle=True, seed=1))


def _agree(name: str, found: TableHolder, expected: list[Row]) -> None:
    columns = [*SCHEMAS[name]]
    assert rows_of(found.table(name).to_dicts(), columns) == rows_of(expected, columns)


@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.one_of(_with_memory(), _ON_STEPS))
def test_the_table_and_that_of_judged_steps_are_the_oracles(model: PlainTrace) -> None:
    trace, report = to_trace(model), Report(model)
    analysis = nsysflow.analyze(mixed(trace))
    steady = [step for step, kind in kinds_of(report).items() if kind.name == "steady"]
    for expected in (memory, kept_memory, peak_memory, larger_batch):
        _agree(expected.__name__, analysis, expected(report))
        _agree(expected.__name__, analysis.judged, expected(report, steady or None))
    _agree("out_of_memory", analysis, out_of_memory(report))
    assert_pictured_alike(analysis, report)


@pytest.mark.parametrize("none", [(), (MemoryChange(5, 0, 3, PROCESS, "cuda", 1, None, 1),)])
def test_without_memory_on_a_gpu_that_ran_something_there_are_no_rows(
    none: tuple[MemoryChange, ...],
) -> None:
    assert nsysflow.analyze(to_trace(replace(STEPS, memory=none))).memory.is_empty()


@given(
    st.lists(st.sampled_from((None, 0, 1, 2, 3)), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=20),
)
def test_the_first_largest_row_is_found_in_spans_of_any_length(
    levels: list[int | None], ends: list[tuple[int, int]]
) -> None:
    spans = [sorted(each % len(levels) for each in pair) for pair in ends]
    first, last = (pl.Series([span[at] for span in spans], dtype=pl.Int64) for at in (0, 1))
    found = largest_within(pl.Series(levels, dtype=pl.Int64), first, last).to_list()
    for (start, end), row in zip(spans, found, strict=True):
        inside = levels[start : end + 1]
        known = [level for level in inside if level is not None]
        assert levels[row] == (max(known) if known else None)
        if known:
            assert row == start + inside.index(max(known))


def _at(at: int, bytes_: int, address: int, thread: int = MAIN) -> MemoryChange:
    """A change that PyTorch's allocator made."""
    levels = (bytes_, 100, 100)
    return MemoryChange(*(at, at, 0, PROCESS, "allocator", *levels), thread=thread, address=address)


def test_what_outlives_the_next_step_is_kept_and_has_a_place() -> None:
    ran = (Frame(None, None, "aten::empty"), Frame("/home/me/model.py", 88, "forward"))
    running = tuple(Running(at + 15, at + 35, MAIN, ran) for at in range(0, 600, 100))
    changes = [
        one
        for step, at in enumerate(range(0, 600, 100))
        for one in (
            _at(at + 20, 4, 100 + step),  # never freed
            _at(at + 25, 10, 1),
            _at(at + 60, 30, 2, AUTOGRAD),
            _at(at + 70, 5, 50 + step, AUTOGRAD),
            _at(at + 80, -10, 1),
            _at(at + 100, -30, 2),  # in the next step
            _at(at + 200, -5, 50 + step),  # in the one after that
        )
    ]
    analysis = nsysflow.analyze(to_trace(replace(STEPS, memory=tuple(changes), running=running)))
    place = ("phase", "source", "operator", "steps", "of_steps", "allocations", "bytes")
    assert analysis.kept_memory.select(place).rows() == [
        ("step/backward", None, None, 5, 5, 5, 25),
        ("step/forward", "model.py:88 in forward", "aten::empty", 5, 5, 5, 20),
    ]


def test_steps_behind_the_end_of_a_history_keep_nothing_that_counts() -> None:
    """`nsysflow profile --memory` ends the history before nsys ends the recording."""
    changes = tuple(_at(at + 20, 4, 100 + at) for at in range(0, 400, 100))
    analysis = nsysflow.analyze(to_trace(replace(STEPS, memory=changes)))
    assert analysis.kept_memory.select("steps", "of_steps").rows() == [(3, 3)]
