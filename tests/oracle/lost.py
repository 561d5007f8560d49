"""Launches that lost their operations in a row (spec §12.3, §12.4)."""

import re
from collections import defaultdict

from tests.oracle.model import Call
from tests.oracle.once import once
from tests.oracle.report import Report

KERNEL_LAUNCH = re.compile(
    r"((cuda|cu)(Launch|GraphLaunch)|hip(|Ext|Module|ExtModule|HccModule|Drv|Graph)Launch).*"
    r"(?<!LaunchHostFunc)"
)
IN_A_ROW = 20
QUEUE = 1024


@once
def kernel_launches(report: Report) -> dict[int, list[Call]]:
    """Of each process the launches of kernels and graphs, outside stream capture, in order."""
    of_id: dict[tuple[int, int], Call] = {}
    for call in report.calls.calls:  # in order of start, then longer
        if not KERNEL_LAUNCH.fullmatch(call.name) or not call.correlation:
            continue
        if report.calls.capture_began(call.process, call.start_ns) is None:
            of_id.setdefault((call.process, call.correlation), call)
    found: dict[int, list[Call]] = defaultdict(list)
    for call in of_id.values():
        found[call.process].append(call)
    order = {
        process: sorted(rows, key=lambda call: (call.start_ns, -call.end_ns, call.correlation or 0))
        for process, rows in found.items()
    }
    return order


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
    """§12.4: the start of the last launch of a kernel that ran, of each process of which no more
    launches follow than the queues of its streams hold."""
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
