"""What is wrong with a trace (spec §12)."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from tests.oracle.model import Call, Op
from tests.oracle.once import grouped_by, once, unmeasured
from tests.oracle.report import Report
from tests.oracle.stats import percentile

KERNEL_LAUNCH = re.compile(
    r"((cuda|cu)(Launch|GraphLaunch)|hip(|Ext|Module|ExtModule|HccModule|Drv|Graph)Launch).*"
    r"(?<!LaunchHostFunc)"
)
IN_A_ROW = 20
QUEUE = 1024
SEVEN_DAYS_NS = 7 * 24 * 3600 * 10**9
LOST = re.compile(
    r"\b(lost|dropped|discarded)\b.*\bevents?\b|\bevents?\b.*\b(lost|dropped|discarded)\b",
    re.IGNORECASE,
)
AT_THE_END = re.compile(
    r"not all cuda events might have been collected|incomplete cupti events dropped", re.IGNORECASE
)


@unmeasured
def integrity(report: Report) -> dict[str, int]:
    """§12: all counts, including zeros; without the unattributed operations."""
    launches = launches_without_operation(report)
    return {
        "kernels before their launch": kernels_before_their_launch(report),
        "operations without a launch": sum(
            launch is None and not op.name.startswith("memcpy UVM ")
            for op, launch in zip(report.calls.ops, report.calls.launch, strict=True)
        ),
        "negative durations": negative_durations(report),
        "launches without an operation": launches,
        "events lost": sum(
            launches > 0 if AT_THE_END.search(row.text) else LOST.search(row.text) is not None
            for row in report.trace.diagnostics
        ),
        "clock jumps": clock_jumps(report),
        "overlapping kernels on one stream": overlapping_kernels(report),
        "graph operations into other launches": len(graph_operations_into_other_launches(report)),
        "graph kernels over 100 times their median": len(long_graph_kernels(report)),
        "graph operations missing": sum(report.calls.lacking.values()),
    }


def kernels_before_their_launch(report: Report) -> int:
    """§12: kernels that start before their launch call does."""
    launched = ((op, report.calls.caller(index)) for index, op in enumerate(report.ops))
    return sum(
        op.kind == "kernel" and call is not None and op.start_ns < call.start_ns
        for op, call in launched
    )


def negative_durations(report: Report) -> int:
    """§12: operations, calls and ranges that were dropped."""
    rows: list[Op | Call] = [*report.trace.ops, *report.trace.calls]
    dropped = sum(row.end_ns < row.start_ns for row in rows)
    return dropped + sum(not row.lasts for row in report.trace.ranges)


def launches_without_operation(report: Report) -> int:
    """§12: kernel launches between the first and the last operation, but not queued."""
    if not report.ops:
        return 0
    first = min(op.start_ns for op in report.ops)
    last = max(op.end_ns for op in report.ops)
    launched = launches_with_operations(report)
    return sum(
        first <= call.start_ns and call.end_ns <= last and not is_queued(report, call)
        for calls in kernel_launches(report).values()
        for call in calls
        if (call.process, call.correlation) not in launched
    )


def clock_jumps(report: Report) -> int:
    """§12: jumps of over 7 days, between two rows or within one."""
    starts = [op.start_ns for op in report.ops] + [call.start_ns for call in report.calls.calls]
    starts.sort()
    leaps = sum(later - earlier > SEVEN_DAYS_NS for earlier, later in pairwise(starts))
    rows: list[Op | Call] = [*report.ops, *report.calls.calls]
    return leaps + sum(row.end_ns - row.start_ns > SEVEN_DAYS_NS for row in rows)


def overlapping_kernels(report: Report) -> int:
    """§12: kernels that start before an earlier one of their stream has ended, outside graphs."""
    kernels = [op for op in report.ops if op.kind == "kernel" and op.graph_node is None]
    found = 0
    for ops in by_stream(kernels):
        busy_until = ops[0].start_ns
        for op in ops:
            found += op.start_ns < busy_until
            busy_until = max(busy_until, op.end_ns)
    return found


def by_stream(ops: Iterable[Op]) -> Iterable[list[Op]]:
    """Those that last on each stream, in order of their starts."""
    lasting = sorted((op for op in ops if op.end_ns > op.start_ns), key=lambda op: op.start_ns)
    return grouped_by(lambda op: (op.process, op.device, op.stream), lasting).values()


def graph_operations_into_other_launches(report: Report) -> list[Op]:
    """§12: operations of a graph during which one of another launch starts on their stream."""
    return [
        op
        for ops in by_stream(report.ops)
        for op in ops
        if op.graph_node is not None
        and any(other.correlation != op.correlation for other in _started_during(ops, op))
    ]


def _started_during(ops: list[Op], op: Op) -> list[Op]:
    """Those of `ops`, which are in order of their starts, that start while `op` runs."""
    first, last = (bisect_left(ops, t, key=lambda o: o.start_ns) for t in (op.start_ns, op.end_ns))
    return ops[first:last]


def long_graph_kernels(report: Report) -> list[Op]:
    """§12: kernels of a graph that last over 100 times the median of the same node."""
    kernels = [op for op in report.ops if op.kind == "kernel" and op.graph_node is not None]
    nodes = grouped_by(lambda op: (op.process, op.graph_node, op.name), kernels)
    return [
        op
        for ops in nodes.values()
        for op in ops
        if op.end_ns - op.start_ns
        > 100 * (percentile([each.end_ns - each.start_ns for each in ops], 50) or 0)
    ]


@once
def kernel_launches(report: Report) -> dict[int, list[Call]]:
    """Of each process the launches of kernels and graphs, outside stream capture, in order."""
    of_id: dict[tuple[int, int], Call] = {}
    for call in report.calls.calls:  # in order of start, then longer
        if not KERNEL_LAUNCH.fullmatch(call.name) or not call.correlation:
            continue
        if report.calls.capture_began(call.process, call.start_ns) is None:
            of_id.setdefault((call.process, call.correlation), call)
    order = sorted(
        of_id.values(), key=lambda call: (call.start_ns, -call.end_ns, call.correlation or 0)
    )
    return grouped_by(lambda call: call.process, order)


@once
def launches_with_operations(report: Report) -> set[tuple[int | None, int | None]]:
    """Their processes and correlation ids."""
    return {(op.process, op.correlation) for op in report.ops}


def in_stretches(report: Report, launches: list[Call]) -> list[Call]:
    """The launches that are one of so many in a row without an operation."""
    launched = launches_with_operations(report)
    found: list[Call] = []
    row: list[Call] = []
    for call in [*launches, None]:
        if call is not None and (call.process, call.correlation) not in launched:
            row.append(call)
            continue
        if len(row) >= IN_A_ROW:
            found += row
        row = []
    return found


@once
def queued_since(report: Report) -> dict[int, int]:
    """§12.4: of each process that can have launches in its queues, since when they wait."""
    last: dict[int, int] = {}
    streams: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for index, op in enumerate(report.ops):
        call = report.calls.caller(index)
        if op.kind in ("kernel", "graph") and op.process is not None:
            streams[op.process].add((op.device, op.stream))
            if call is not None:
                last[op.process] = max(last.get(op.process, call.start_ns), call.start_ns)
    launched = launches_with_operations(report)
    waiting = {
        process: sum(
            (process, call.correlation) not in launched
            for call in kernel_launches(report).get(process, [])
            if call.start_ns > since
        )
        for process, since in last.items()
    }
    return {
        process: since
        for process, since in last.items()
        if waiting[process] <= QUEUE * len(streams[process])
    }


def is_queued(report: Report, call: Call) -> bool:
    """§12.4: whether the call waited for the GPU when the recording ended."""
    since = queued_since(report).get(call.process)
    return since is not None and call.start_ns > since
