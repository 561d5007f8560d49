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
