"""The analysis against its slow oracle: every table, on random traces and on real reports."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options
from tests.analyses import (
    EXAMPLES,
    SCHEMAS,
    analysed,
    every_report,
    oracle_of,
    oracle_tables_of,
    rows_of,
)
from tests.oracle.integrity import integrity
from tests.oracle.model import Message, PlainTrace, Range, to_trace
from tests.oracle.report import Report, Row
from tests.oracle.strategies import traces, traces_with_events, traces_with_graphs
from tests.oracle.tables import oracle_tables
from tests.oracle.waited import Waits
from tests.tiny import (
    AUTOGRAD,
    MAIN,
    PROCESS,
    WORKER,
    call,
    copy,
    kernel,
    launch,
    on_stream,
    opened,
    plain_of,
    told,
)
from tests.tiny import Row as Event

INTEGRITY = {
    "kernels before their launch": "before_launch",
    "operations without a launch": "no_launch",
    "negative durations": "negative",
    "launches without an operation": "no_operation",
    "events lost": "events_lost",
    "clock jumps": "clock_jumps",
    "overlapping kernels on one stream": "stream_overlap",
    "graph operations into other launches": "graph_into_others",
    "graph kernels over 100 times their median": "graph_long",
}


def assert_agrees(
    analysis: nsysflow.Analysis, report: Report, tables: Mapping[str, list[Row]]
) -> None:
    for name, rows in tables.items():
        columns = [column for column in SCHEMAS[name] if column != "class"]
        expected = rows_of(rows, columns)
        found = rows_of(getattr(analysis, name).to_dicts(), columns)
        assert list(found - expected) == list(expected - found) == [], f"{name}: {columns}"
    counts = dict(analysis.integrity.select("check", "count").rows())
    expected_counts = integrity(report)
    assert {check: counts.get(check, 0) for check in INTEGRITY} == {
        check: expected_counts[name] for check, name in INTEGRITY.items()
    }


# --- random traces --------------------------------------------------------------------------------

MANY: Final = settings(max_examples=5 * EXAMPLES, suppress_health_check=list(HealthCheck))
OWN: Final = st.sampled_from(
    ((), ("transformers",), ("accelerate/utils.py", "torch"), ("/opt/lib/python3.12/",))
)


@MANY
@given(traces(), OWN)
def test_every_table_of_a_random_trace_agrees_with_the_oracle(
    model: PlainTrace, own: tuple[str, ...]
) -> None:
    report = Report(model, own=own)
    analysis = nsysflow.analyze(to_trace(model), Options(own=own))
    assert_agrees(analysis, report, oracle_tables(report))


@MANY
@given(traces_with_graphs())
def test_every_table_of_a_random_trace_with_graphs_agrees_with_the_oracle(
    model: PlainTrace,
) -> None:
    report = Report(model)
    assert_agrees(nsysflow.analyze(to_trace(model)), report, oracle_tables(report))


@MANY
@given(traces_with_events())
def test_every_table_of_a_trace_with_events_agrees_with_the_oracle(model: PlainTrace) -> None:
    report, analysis = Report(model), nsysflow.analyze(to_trace(model))
    assert_agrees(analysis, report, oracle_tables(report))
    waits = Waits(report)
    by_rank = sorted(waits.rank, key=lambda op: waits.rank[op])
    sources = [waits.by_event(op) for op in by_rank]
    expected = [None if source is None else waits.rank[source] for source in sources]
    assert analysis.timeline.producers.by_event.to_list() == expected


# --- real reports ---------------------------------------------------------------------------------


@every_report
def test_every_table_of_a_real_report_agrees_with_the_oracle(name: str) -> None:
    assert_agrees(analysed(name), oracle_of(name), oracle_tables_of(name))


# --- borders and ties -----------------------------------------------------------------------------

US: Final = 1_000
MS: Final = 1_000 * US
NCCL: Final = "ncclDevKernel_AllReduce"
SYNC: Final = "cudaStreamSynchronize"
COPY: Final = "cudaMemcpyAsync"

Events = list[Event]


def labelled(*more: Event, source: str = "pinned", returned: int = 10) -> Events:
    """A copy to the device from 20 to 100, whose call returns at `returned`."""
    return [launch(0, returned, 1, name=COPY), copy(20, 100, 1, "HtoD", source, "device"), *more]


def paced(count: int, *more: Event) -> Events:
    """Launches of 5 us every 10 us, each directly followed by its kernel of 1 us."""
    starts = [(number, 10 * US * number) for number in range(count)]
    rows: Events = [launch(at, at + 5 * US, number + 1) for number, at in starts]
    return [*rows, *(kernel(at + 5 * US, at + 6 * US, n + 1) for n, at in starts), *more]


def apart(*pauses_ns: int) -> Events:
    """Kernels of 1 us with these pauses between them, launched when the one before has ended."""
    rows: Events = [launch(0, 10, 1), kernel(10, US, 1)]
    end = US
    for number, pause_ns in enumerate(pauses_ns, start=2):
        start = end + pause_ns
        rows += [launch(start - 10, start, number), kernel(start, start + US, number)]
        end = start + US
    return rows


def late(ns: int) -> Events:
    """A kernel that starts so long after its stream was free."""
    return [launch(0, 5, 1), launch(5, 10, 2), kernel(6, 100, 1), kernel(100 + ns, 20_000, 2)]


def first_launch(ns: int, *before: Event) -> Events:
    """A first launch that takes so long."""
    return [*before, launch(100, 100 + ns, 2), kernel(3 * MS, 3 * MS + 9, 2)]


def replays(last_ns: int) -> Events:
    """Three replays of a graph with one kernel of 10 ns; the last one lasts so long."""
    spans = (10, 20), (30, 40), (50, 50 + last_ns)
    launches = [launch(20 * n, 20 * n + 5, n + 1) for n in range(3)]
    return [*launches, *(kernel(*span, n, node=1) for n, span in enumerate(spans, 1))]


def two_waits(first: int, other: int) -> Events:
    """Two phases with a wait of so many us each in one gap."""
    waits = ("z", 110, 110 + first), ("a", 450, 450 + other)
    rows: Events = [call(begin * US, end * US, SYNC) for _, begin, end in waits]
    rows += [opened((begin - 9) * US, (end + 9) * US, name) for name, begin, end in waits]
    return [*rows, *apart(1_000 * US)]


SOUND: Final = [launch(0, 10, 1), kernel(20, 30, 1), launch(80, 90, 2), kernel(95, 99, 2)]

PICTURES: Final[dict[str, Events]] = {
    "found by make hunt on 2026-11-22: a call of no length ends a stretch of launching inside a"
    " call that outlasts it": [
        launch(0, 5, 1),
        call(0, MS, "cudaEventQuery"),
        launch(10, 10, 3, name=COPY),
        launch(MS, MS + 5, 5),
        kernel(6, 11, 1),
        copy(11, 16, 3, "HtoD", "pageable", "device"),
        kernel(MS + 6, MS + 11, 5),
    ],
    "a copy's call returns as it ends": labelled(returned=100),
    "a copy's call returns before": labelled(returned=99, source="pageable"),
    "a sync 50 us after a copy's call": labelled(call(10 + 50 * US, 60 * US, SYNC)),
    "a sync later than that": labelled(call(11 + 50 * US, 60 * US, SYNC)),
    "another launch before the sync": labelled(launch(US, 2 * US, 2), call(9 * US, 20 * US, SYNC)),
    "a copy within the device": labelled(source="device"),
    "a copy without a call": [copy(20, 30, None, "HtoD", "pinned", "device")],
    "too few launches for a starved window": paced(8),
    "just enough of them": paced(9),
    "a pause ends a starved window": paced(
        12, launch(MS, MS + 5 * US, 99), kernel(MS + 5 * US, MS + 6 * US, 99)
    ),
    "so does an operation of over 50 us": paced(
        12, launch(120 * US, 125 * US, 99), kernel(125 * US, 175 * US + 1, 99)
    ),
    "one of 50 us does not": paced(
        12, launch(120 * US, 125 * US, 99), kernel(125 * US, 175 * US, 99)
    ),
    "lengths on the borders of the histogram": apart(1_999, 2_000, 4_999, 5_000, 100 * US, MS),
    "a start of 10 us": late(10_000),
    "a start of over 10 us": late(10_001),
    "a first launch of 1 ms": first_launch(MS),
    "a first launch of over 1 ms": first_launch(MS + 1),
    "a first launch after a graph's": first_launch(
        2 * MS, launch(0, 10, 1, name="cudaGraphLaunch"), kernel(20, 30, 1)
    ),
    "the second launch of a kernel": first_launch(2 * MS, launch(0, 10, 1), kernel(20, 30, 1)),
    "a kernel before its launch": [*SOUND, launch(41, 45, 9), kernel(40, 50, 9)],  # type: ignore[list-item]
    "rows of negative length": [*SOUND, launch(35, 36, 9), kernel(50, 40, 9), opened(9, 8, "odd")],  # type: ignore[list-item]
    "a launch without an operation": [*SOUND, launch(40, 50, 9)],  # type: ignore[list-item]
    "a launch into a graph that is captured": [
        *SOUND,  # type: ignore[list-item]
        call(35, 36, "cudaStreamBeginCapture"),
        launch(40, 50, 9),
        call(60, 61, "cudaStreamEndCapture"),
    ],
    "operations in no phase": [*SOUND, opened(0, 50, "step")],  # type: ignore[list-item]
    "kernels that overlap on one stream": [*SOUND, launch(21, 22, 9), kernel(25, 35, 9)],  # type: ignore[list-item]
    "a graph's kernel up to another launch's": [
        *(launch(0, 5, 1), launch(6, 9, 2), kernel(10, 20, 1, node=1), kernel(20, 30, 2, node=1)),
    ],
    "a graph's kernel into another launch's": [
        *(launch(0, 5, 1), launch(6, 9, 2), kernel(10, 21, 1, node=1), kernel(20, 30, 2, node=1)),
    ],
    "a graph's kernels that overlap": [
        *(launch(0, 5, 1), kernel(10, 21, 1, node=1), kernel(20, 30, 1, node=1)),
    ],
    "a graph's kernel of 100 times its median": replays(1_000),
    "one that lasts longer": replays(1_001),
    "a kernel as long as its call": [*SOUND, launch(100, 110, 3), kernel(120, 130, 3)],  # type: ignore[list-item]
    "a wait before its gap, in another phase": [
        *(opened(9, 95 * US, "log"), opened(95 * US, 2_000 * US, "data")),
        *(call(40 * US, 90 * US, SYNC), launch(0, 10, 1), kernel(20, 100 * US, 1)),
        *(launch(980 * US, 999 * US, 2), kernel(MS, 1_100 * US, 2)),
    ],
    "two phases with waits in one gap": two_waits(300, 110),
    "two phases with equal waits in one gap": two_waits(300, 300),
    "launch calls in two phases": [
        *(opened(100 * US, 178 * US, "build"), opened(178 * US, 300 * US, "send")),
        *(launch(0, 10 * US, 1), kernel(20 * US, 100 * US, 1), launch(180 * US, 199 * US, 2)),
        *(call(100 * US, 140 * US, "cudaLaunchKernel"), kernel(200 * US, 300 * US, 2)),
    ],
    "a phase that inherits, and one that never launches": [
        *(opened(0, 100, "step"), opened(10, 90, "backward"), opened(200, 200, "never")),
        opened(11, 40, "mm", thread=AUTOGRAD),
        *(launch(12, 13, 1, thread=AUTOGRAD), launch(52, 53, 2, thread=AUTOGRAD)),
        *(kernel(20, 30, 1), kernel(60, 80, 2)),
    ],
    "two slow first launches that begin together": [
        *(launch(0, 1, 1), kernel(1, 4, 1, name="other"), launch(5, 10, 2)),
        *(launch(5, MS + 6, 3, thread=WORKER), kernel(11, 16, 2), kernel(MS + 7, MS + 12, 3)),
    ],
    "two calls with equal parts of a gap": [
        *(launch(0, 1, 1), launch(60, 72, 2, name="cudaGraphLaunch"), launch(72, 84, 3)),
        *(kernel(2, 60, 1), kernel(90, 95, 3)),
        replace(kernel(100, 105, 2), kind="graph", shape=None),
    ],
    "kernels that start together": [
        *(launch(5, 6, 2), launch(3, 4, 3), kernel(0, 10, 1)),
        *(kernel(20, 30, 2, name="late"), kernel(20, 30, 3, name="early")),
    ],
    "a kernel across the border of steps, and one within it": [
        *(row for n in (1, 2, 3) for row in (
            opened(100 * n - 3, 100 * n - 1, "step"),
            launch(100 * n - 2, 100 * n - 1, n),
            kernel(100 * n, 100 * n + 1, n),
        )),
        *(kernel(180, 250, None, name="a"), kernel(190, 220, None, name=NCCL)),
        *(kernel(150, 150, None, name="b"), kernel(110, 120, None, device=1)),
    ],
}  # fmt: skip
"""Borders of rules, and ties, that random traces may miss."""


def comm_in(*ranges: tuple[int, int, str]) -> PlainTrace:
    """A collective launched at 6, in NCCL's ranges, each with a message."""
    rows = tuple(
        Range(start, end, "push_pop", PROCESS, MAIN, "NCCL", name, row)
        for row, (start, end, name) in enumerate(ranges)
    )
    messages = tuple(Message(row.start_ns, MAIN, row.row + 1, None) for row in rows)
    plain = plain_of(launch(6, 8, 1), kernel(10, 20, 1, name=NCCL))
    return replace(plain, ranges=rows, messages=messages)


def told_pictures() -> Iterator[tuple[str, PlainTrace]]:
    """Streams that wait for each other, and two processes that are alike."""
    began = launch(0, 5, 1), kernel(6, 100, 1), launch(5, 10, 2)
    comm = on_stream(kernel(20, 150, 2, name=NCCL), 20)
    behind = launch(40, 45, 3), kernel(151, 200, 3)
    yield "an awaited collective", told(*began, comm, *behind, record=(12, 20), wait=(14, 7))
    yield "a wait after the launch", told(*began, comm, *behind, record=(12, 20), wait=(50, 7))
    chain = launch(20, 25, 3, name=COPY), copy(151, 160, 3, "DtoD", "device", "device")
    after = launch(25, 30, 4), kernel(161, 200, 4)
    yield "a chain", told(*began, comm, *chain, *after, record=(12, 20), wait=(14, 7))
    far = replace(kernel(20, 150, 2), device=1, stream=30)
    yield "another GPU", told(*began, far, *behind, record=(12, 30), wait=(14, 7), device=1)
    dependency = on_stream(kernel(6, 100, 1, name=NCCL), 20), launch(40, 45, 3)
    rows = launch(0, 5, 1), *dependency, kernel(10_101, 20_000, 3)
    yield "a dependency", told(*rows, record=(12, 20), wait=(14, 7))
    for name, outer, inner in (("end", (2, 9), (4, 9)), ("start", (4, 9), (4, 7))):
        nested = comm_in((*outer, "ncclGroup"), (*inner, "ncclAllReduce"))
        yield f"nested ranges of NCCL with one {name}", nested
    yield "equal ranges of NCCL", comm_in((4, 9, "ncclGroup"), (4, 9, "ncclAllReduce"))
    yield "a range of NCCL that ends as the launch begins", comm_in((2, 6, "ncclBroadcast"))
    mine = plain_of(opened(0, 50, "a"), *(launch(1, 5, 1), launch(22, 25, 2)),
                    *(kernel(10, 20, 1), kernel(30, 40, 2)))  # fmt: skip
    process, thread = 2 * PROCESS, 2 * PROCESS | 1
    others = {
        "ops": (replace(op, process=process) for op in mine.ops),
        "calls": (replace(row, process=process, thread=thread) for row in mine.calls),
        "ranges": (replace(row, process=process, thread=thread, name="b") for row in mine.ranges),
    }
    both = {name: (*getattr(mine, name), *rows) for name, rows in others.items()}
    yield "two processes that do the same on one GPU", replace(mine, **both)  # type: ignore[arg-type]
    turned = {name: rows[::-1] for name, rows in both.items()}
    yield "the same in another order", replace(mine, **turned)  # type: ignore[arg-type]


TOLD: Final = dict(told_pictures())


@pytest.mark.parametrize("name", [*PICTURES, *TOLD])
def test_a_picture_agrees_with_the_oracle(name: str) -> None:
    model = TOLD[name] if name in TOLD else plain_of(*PICTURES[name])
    report = Report(model)
    assert_agrees(nsysflow.analyze(to_trace(model)), report, oracle_tables(report))
