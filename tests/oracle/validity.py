"""Whether a recording is fit to be judged (spec §12.2)."""

from tests.oracle.lost import KERNEL_LAUNCH, in_stretches, kernel_launches
from tests.oracle.model import Call
from tests.oracle.phase_table import phases_of
from tests.oracle.report import Report
from tests.oracle.step_paths import automatic_steps, step_paths

Failures = dict[str, tuple[int, int, int | None, int | None]]
"""By check: how many are wrong, of how many, from when, until when."""


def failures(report: Report) -> Failures:
    """§12.2: the checks that fail, except those that read messages."""
    trace = report.trace
    if not any(op.kind in ("kernel", "graph") for op in report.ops):
        ranges = [row for row in trace.ranges if row.end_ns is None or row.end_ns >= row.start_ns]
        if not (report.ops or report.calls.calls or ranges):
            return {}
        launches = sum(
            KERNEL_LAUNCH.fullmatch(call.name) is not None for call in report.calls.calls
        )
        return {"no-kernels": (launches, len(report.ops), None, None)}
    found: Failures = {}
    unstamped = sum(0 in (op.start_ns, op.end_ns) for op in trace.ops)
    if unstamped and 100 * unstamped >= len(trace.ops):
        found["unstamped-operations"] = (unstamped, len(trace.ops), None, None)
    launches_of = kernel_launches(report)
    lost_of = {
        process: without_queued(rows, in_stretches(report, rows))
        for process, rows in launches_of.items()
    }
    lost = [call for rows in lost_of.values() for call in rows]
    if any(
        matters(piece, lost_of[process])
        for process, rows in launches_of.items()
        for piece in [rows, *in_steps(report, process, rows)]
    ):
        found["incomplete-capture"] = (
            len(lost),
            sum(len(rows) for rows in launches_of.values()),
            min(call.start_ns for call in lost),
            max(call.end_ns for call in lost),
        )
    return found


def without_queued(launches: list[Call], lost: list[Call]) -> list[Call]:
    """§12.4: the lost launches but for those that may still have been queued at the end."""
    missing, queued = {*lost}, set[Call]()
    for call in reversed(launches):
        if call not in missing:
            return lost if len(queued) > 1024 else [one for one in lost if one not in queued]
        queued.add(call)
    return lost


def in_steps(report: Report, process: int, launches: list[Call]) -> list[list[Call]]:
    """The launches in each step: between the start and the end of its range on the host."""
    wanted = step_paths(report, process, None)
    ranges = {
        range_
        for (owner, path), phase in phases_of(report).items()
        if owner == process and path in wanted
        for range_ in phase.instances
    } | {*automatic_steps(report, process, None)}
    return [
        [call for call in launches if range_.start_ns <= call.start_ns < range_.end_ns]
        for range_ in ranges
    ]


def matters(piece: list[Call], lost: list[Call]) -> bool:
    """Whether at least 1 % of these launches lack their operation."""
    missing = len({*piece} & {*lost})
    return missing > 0 and 100 * missing >= len(piece)
