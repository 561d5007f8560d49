"""What is wrong with a trace (spec §12)."""

import re
from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise

from tests.oracle.lost import is_queued, kernel_launches, launches_with_operations
from tests.oracle.model import Call, Op
from tests.oracle.report import Report
from tests.oracle.stats import percentile
from tests.oracle.unmeasured import unmeasured

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
    """§12: kernels that start before an earlier one of their stream has ended.

    Kernels of a CUDA graph may, and do not count.
    """
    streams = defaultdict(list)
    for op in report.ops:
        if op.kind == "kernel" and op.end_ns > op.start_ns and op.graph_node is None:
            streams[op.process, op.device, op.stream].append((op.start_ns, op.end_ns))
    found = 0
    for kernels in streams.values():
        busy_until = None
        for start, end in sorted(kernels):
            found += busy_until is not None and start < busy_until
            busy_until = end if busy_until is None else max(busy_until, end)
    return found


def graph_operations_into_other_launches(report: Report) -> list[Op]:
    """§12: operations of a graph during which an operation of another launch starts on their
    stream."""
    streams = defaultdict(list)
    for op in sorted(report.ops, key=lambda op: op.start_ns):
        if op.end_ns > op.start_ns:
            streams[op.process, op.device, op.stream].append(op)
    return [
        op
        for ops in streams.values()
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
    nodes = defaultdict(list)
    for op in report.ops:
        if op.kind == "kernel" and op.graph_node is not None:
            nodes[op.process, op.graph_node, op.name].append(op)
    return [
        op
        for ops in nodes.values()
        for op in ops
        if op.end_ns - op.start_ns
        > 100 * (percentile([each.end_ns - each.start_ns for each in ops], 50) or 0)
    ]
