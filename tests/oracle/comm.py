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
    without,
)
from tests.oracle.model import Message, Range
from tests.oracle.phase_table import begins
from tests.oracle.phases import end_of_trace
from tests.oracle.range_names import range_name
from tests.oracle.report import Report, Row, joined, os_pid
from tests.oracle.stats import percentile, whole


def ran_first(report: Report) -> dict[int, list[Interval]]:
    """§9.2: the instants that belong to each communication kernel."""
    found: dict[int, list[Interval]] = {}
    for device in report.devices:
        taken: list[Interval] = []
        comm = [index for index in report.on(device) if is_comm(report.ops[index])]
        for index in sorted(comm, key=lambda i: started_order(report, i)):
            op = report.ops[index]
            own = union([(op.start_ns, op.end_ns)])
            found[index] = without(own, taken)
            taken = union([*taken, *own])
    return found


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


def exchanged(report: Report) -> list[Row]:
    """§9.4, §9.12: what ranks exchange, by device and start."""
    rows: list[Row] = []
    for device in report.devices:
        ops = [report.ops[index] for index in report.on(device)]
        compute = covered(op for op in ops if is_compute(op))
        comm = covered(op for op in ops if is_comm(op))
        copies = without(without(covered(ops), comm), compute)
        sorts = {"compute": compute, "comm": without(comm, compute), "copy": copies}
        first = min((op.start_ns for op in report.ops), default=0)
        for index in report.on(device):
            op = report.ops[index]
            if not is_comm(op):
                continue
            others = covered(
                report.ops[other]
                for other in report.on(device)
                if other != index and is_comm(report.ops[other])
            )
            row: Row = {"process": os_pid(op.process), "device": device, "stream": op.stream}
            row |= {"start_ns": op.start_ns, "end_ns": op.end_ns, "name": op.short_name}
            for when, until_ns in (("before", op.start_ns), ("until", op.end_ns)):
                for sort, instants in sorts.items():
                    row[f"{sort}_{when}_ns"] = inside(instants, (first, until_ns))
            row["overlapped_ns"] = inside(others, (op.start_ns, op.end_ns))
            rows.append(row)
    return rows


def inside(instants: list[Interval], window: Interval) -> int:
    """How much of them lies in a window."""
    return length(common(instants, union([window])))
