"""Communication kernels: what each sent, and how much of it was exposed (spec §9)."""

from collections import defaultdict

from tests.oracle.accounting import (
    Interval,
    Keep,
    common,
    covered,
    is_comm,
    is_compute,
    length,
    union,
)
from tests.oracle.model import Message, Range
from tests.oracle.phase_table import begins
from tests.oracle.phases import end_of_trace
from tests.oracle.range_names import range_name
from tests.oracle.report import Report, Row, joined, os_pid
from tests.oracle.stats import percentile, whole


def ran_first(report: Report) -> dict[int, list[Interval]]:
    """§9.2: the instants that belong to each communication kernel.

    An instant belongs to the kernel that started first, of those that run.
    """
    found: dict[int, list[Interval]] = {}
    for device in report.devices:
        taken: list[Interval] = []
        comm = [index for index in report.on(device) if is_comm(report.ops[index])]
        for index in sorted(comm, key=lambda i: started_order(report, i)):
            op = report.ops[index]
            own = union([(op.start_ns, op.end_ns)])
            found[index] = union(without(own, taken))
            taken = union([*taken, *own])
    return found


def without(some: list[Interval], others: list[Interval]) -> list[Interval]:
    """The instants of `some` that are not in `others`."""
    left = some
    for start, end in others:
        left = [
            piece
            for first, last in left
            for piece in ((first, min(last, start)), (max(first, end), last))
            if piece[0] < piece[1]
        ]
    return left


def said_by_nccl(report: Report, index: int) -> tuple[Range, Message | None] | None:
    """§9.1: NCCL's innermost range open on the launching thread at L.start, and its message."""
    call = report.calls.caller(index)
    if call is None:
        return None
    last = end_of_trace(report.trace)
    inside = []
    for range_ in report.trace.ranges:
        ours = range_.kind == "push_pop" and (range_.domain or "").lower() == "nccl"
        end_ns = last if range_.end_ns is None else range_.end_ns
        if ours and range_.thread == call.thread and range_.start_ns <= call.start_ns < end_ns:
            inside.append((range_.start_ns, -end_ns, range_.row, range_))
    if not inside:
        return None
    innermost = max(inside, key=lambda found: found[:3])[3]
    place = (innermost.thread, innermost.start_ns)
    sent = [each for each in report.trace.messages if (each.thread, each.start_ns) == place]
    return innermost, sent[0] if sent else None


def started_order(report: Report, index: int) -> tuple[object, ...]:
    """§9.2: earliest start; ties as for `n` in §3.1, then the end."""
    op = report.ops[index]
    return op.start_ns, *report.calls.order(index), op.end_ns


def comm(report: Report, keep: Keep | None = None) -> list[Row]:
    """§9.3: one row per process, device, phase, short name and NCCL's operation."""
    kept = report.windows if keep is None else keep
    alone = ran_first(report)
    groups: dict[tuple[int | None, int, str, str, str | None], list[int]] = defaultdict(list)
    said = {index: said_by_nccl(report, index) for index in alone}
    for index in alone:
        op, about = report.ops[index], said[index]
        phase = joined(report.op_place(index).path)
        operation = range_name(about[0].name) if about else None
        groups[os_pid(op.process), op.device, phase, op.short_name, operation].append(index)
    rows: list[Row] = []
    for (process, device, phase, name, operation), members in groups.items():
        window = kept.get(device, [])
        compute = covered(op for op in report.ops if op.device == device and is_compute(op))
        ran = [common(alone[index], window) for index in members]
        busy_ns = sum(length(each) for each in ran)
        hidden_ns = sum(length(common(each, compute)) for each in ran)
        begun = [index for index in members if begins(report.ops[index], keep)]
        if not begun and not busy_ns:
            continue
        lengths = [report.ops[i].end_ns - report.ops[i].start_ns for i in begun]
        sizes = [about[1].bytes for i in begun if (about := said[i]) and about[1] is not None]
        rows.append(
            {
                "report": report.trace.report,
                "process": process,
                "device": device,
                "phase": phase,
                "name": name,
                "operation": operation,
                "count": len(begun),
                "bytes": sum(sizes) if sizes else None,
                "total_ns": sum(lengths),
                "median_ns": whole(percentile(lengths, 50)),
                "busy_ns": busy_ns,
                "exposed_ns": busy_ns - hidden_ns,
                "hidden_pct": 100 * hidden_ns / busy_ns if busy_ns else None,
            }
        )
    return rows
