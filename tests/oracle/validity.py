"""Whether a recording is fit to be judged (spec §12.2, §12.8)."""

from tests.oracle.accounting import Keep, common, length
from tests.oracle.gaps import Gap
from tests.oracle.integrity import KERNEL_LAUNCH, in_stretches, is_queued, kernel_launches
from tests.oracle.loops import automatic_steps, step_paths
from tests.oracle.model import Call
from tests.oracle.phase_table import begins, phases_in
from tests.oracle.report import Report
from tests.oracle.run import judged
from tests.oracle.stats import percentile, whole
from tests.oracle.steps import kinds_of

Failures = dict[str, tuple[int, int, int | None, int | None]]
"""By check: how many are wrong, of how many, from when, until when."""


def failures(report: Report) -> Failures:
    """§12.2: the checks that fail, except those that read messages."""
    trace = report.trace
    if not any(op.kind in ("kernel", "graph") for op in report.ops):
        ranges = [row for row in trace.ranges if row.lasts]
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
        process: [one for one in in_stretches(report, rows) if not is_queued(report, one)]
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


def in_steps(report: Report, process: int, launches: list[Call]) -> list[list[Call]]:
    """The launches in each step: between the start and the end of its range on the host."""
    wanted = step_paths(report, process, None)
    ranges = {
        range_
        for path, phase in phases_in(report, process).items()
        if path in wanted
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


def recorded_idle(report: Report) -> tuple[int, int] | None:
    """§12.8: idle time inside graphs, and by how much steps are longer; of the worst track."""
    keep = judged(report, None, None, None)
    steady: dict[tuple[int, int], list[int]] = {}
    for step, kind in kinds_of(report).items():
        if kind.name == "steady":
            lasted = steady.setdefault((step.process, step.device), [])
            lasted.append(step.end_ns - step.start_ns)
    found = []
    for capture in report.trace.captures:
        for (process, device), lasted in steady.items():
            if capture.process != process or capture.unprofiled_step_ns is None:
                continue
            median = whole(percentile(lasted, 50))
            assert median is not None
            longer_ns = median - capture.unprofiled_step_ns
            idle_ns = idle_inside_graphs(report, process, device, keep) // len(lasted)
            recording_ns = min(idle_ns, longer_ns)
            matters_here = recording_ns > 0 and 100 * recording_ns >= median
            if matters_here and mostly_graphs(report, process, device, keep):
                found.append((recording_ns, longer_ns, idle_ns))
    return max(found)[:0:-1] if found else None


def mostly_graphs(report: Report, process: int, device: int, keep: Keep) -> bool:
    """Whether operations of graphs have 10 % of the length of those that start in the steps."""
    mine = [op for op in report.ops if (op.process, op.device) == (process, device)]
    ops = [op for op in mine if begins(op, keep)]
    of_graphs = sum(op.end_ns - op.start_ns for op in ops if op.graph_node is not None)
    return bool(ops) and 10 * of_graphs >= sum(op.end_ns - op.start_ns for op in ops)


def idle_inside_graphs(report: Report, process: int, device: int, keep: Keep) -> int:
    """The gaps in the steps between two operations of one graph launch of this process."""
    return sum(
        length(common([(gap.start_ns, gap.end_ns)], keep.get(device, [])))
        for gap in report.gaps_on(device)
        if report.ops[gap.next_op].process == process and is_inside_a_graph(report, gap)
    )


def is_inside_a_graph(report: Report, gap: Gap) -> bool:
    """Whether the operations before and after are of one graph launch."""
    before, after = report.ops[gap.prev_op], report.ops[gap.next_op]
    nodes = None not in (before.graph_node, after.graph_node)
    return nodes and (before.process, before.correlation) == (after.process, after.correlation)
