"""Phases as a table (spec §7, §5)."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

from tests.twin.accounting import covered, length
from tests.twin.gaps import Gap
from tests.twin.phases import Open
from tests.twin.report import Path, Report, Row, causes_of, joined, os_pid, prefixes
from tests.twin.stats import spread

GRAPH_NS_PER_OP = 1_000
"""§5: what a CUDA graph of it would take: 1 000 ns per operation on top of its duration."""


@dataclass
class Phase:
    """What is known of one path of one process."""

    instances: set[Open] = field(default_factory=set)
    host_ns: int = 0
    ops: list[int] = field(default_factory=list)
    spans: list[int] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def span_ns(self) -> int:
        return sum(self.spans)


def phases_of(report: Report) -> dict[tuple[int, Path], Phase]:
    """Every path of every process, inclusive of what is nested in it."""
    found: dict[tuple[int, Path], Phase] = defaultdict(Phase)
    _add_host(report, found)
    for process, by_instance in report.ops_by_instance.items():
        for (path, range_), ops in by_instance.items():
            phase = found[process, path]
            phase.instances.add(range_)
            phase.ops += ops
            # span: first to last operation, summed over instances
            first = min(report.ops[index].start_ns for index in ops)
            last = max(report.ops[index].end_ns for index in ops)
            phase.spans.append(last - first)
    for gap in report.gaps.gaps:
        process_of_launch = report.launch_process(gap)
        if process_of_launch is not None:
            for path, _ in prefixes(gap.place):
                found[process_of_launch, path].gaps.append(gap)
    return found


def _add_host(report: Report, found: dict[tuple[int, Path], Phase]) -> None:
    """Host time: the stretches between the boundaries of a thread's own ranges, under the path that
    the thread has at their start; a start/end range for itself. Ranges without GPU work count."""
    for thread, ranges in report.phases.push_pop.items():
        process = ranges[0].process
        times = report.phases.boundaries(thread)
        for begin, end in pairwise(times):
            if own := report.phases.stack(thread, begin):
                for path, range_ in prefixes(report.phases.at(process, thread, begin)):
                    found[process, path].instances.add(range_)
                    if range_ in own:  # a lender's range is its own thread's time
                        found[process, path].host_ns += end - begin
    for process, ranges in report.phases.start_end.items():
        for range_ in ranges:
            if range_.end_ns > range_.start_ns:  # "one of zero length is never open"
                phase = found[process, (range_.name,)]
                phase.instances.add(range_)
                phase.host_ns += range_.end_ns - range_.start_ns


def phases(report: Report) -> list[Row]:
    """§7: one row per process and path, inclusive; a range without GPU work keeps its row.

    The command line's spec has two columns `host_ns` here: wall time of the ranges, and the idle
    whose cause is `host`. The first is `host_wall_ns`.
    """
    rows = []
    for (process, path), phase in sorted(phases_of(report).items()):
        ops = [report.ops[index] for index in phase.ops]
        kernels = [op for op in ops if op.kind == "kernel"]
        devices = {op.device for op in ops}
        how = Counter(report.op_place(index).how for index in phase.ops)
        causes = causes_of(phase.gaps)
        exclusive = [i for i in phase.ops if report.op_place(i).path == path]
        rows.append(
            {
                "report": report.trace.report,
                "process": os_pid(process),
                "path": joined(path),
                "depth": len(path),
                "instances": len(phase.instances),
                "ops": len(ops),
                "kernels": len(kernels),
                "kernel_ns": sum(op.end_ns - op.start_ns for op in kernels),
                "busy_ns": sum(
                    length(covered(op for op in ops if op.device == device)) for device in devices
                ),
                "span_ns": phase.span_ns,
                "launches": len({report.calls.launch[index] for index in phase.ops}),
                "idle_ns": sum(gap.duration_ns for gap in phase.gaps),
                **causes,
                "host_wall_ns": phase.host_ns,
                **spread(phase.spans),
                "exclusive_kernel_ns": sum(
                    report.ops[i].end_ns - report.ops[i].start_ns
                    for i in exclusive
                    if report.ops[i].kind == "kernel"
                ),
                "graph_estimate_ns": graph_estimate_ns(report, phase.ops),
                "own_ops": how["own"],
                "borrowed_ops": how["borrowed"],
                "process_range_ops": how["process_range"],
            }
        )
    return rows


def graph_estimate_ns(report: Report, ops: list[int]) -> int:
    """§5: Σ operation durations + 1 000 ns per operation."""
    durations = sum(report.ops[index].end_ns - report.ops[index].start_ns for index in ops)
    return durations + GRAPH_NS_PER_OP * len(ops)
