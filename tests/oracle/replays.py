"""How much of the idle time inside CUDA graphs is the recording's (spec §12.8)."""

from tests.oracle.accounting import Keep, common, length
from tests.oracle.gaps import Gap
from tests.oracle.report import Report
from tests.oracle.run import judged
from tests.oracle.stats import percentile, whole
from tests.oracle.steps import kinds_of


def recorded_idle(report: Report) -> tuple[int, int] | None:
    """§12.8: idle time inside graphs, and how much longer than unprofiled steps are, of a step; of
    the process and device with the largest part of the recording's. None where no line says so."""
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
            step_ns = median
            recording_ns = min(idle_ns, longer_ns)
            if (
                mostly_graphs(report, process, device, keep)
                and recording_ns > 0
                and 100 * recording_ns >= step_ns
            ):
                found.append((recording_ns, longer_ns, idle_ns))
    return max(found)[:0:-1] if found else None


def mostly_graphs(report: Report, process: int, device: int, keep: Keep) -> bool:
    """Whether operations of graphs have 10 % of the length of those that start in the steps."""
    ops = [
        op
        for op in report.ops
        if (op.process, op.device) == (process, device)
        and any(start <= op.start_ns < end for start, end in keep.get(device, []))
    ]
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
