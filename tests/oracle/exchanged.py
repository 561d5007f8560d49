"""What a report's ranks exchange (spec §9.4, §9.12): its communication kernels, each with the
exposed time of compute, communication and copies up to its start and end."""

from tests.oracle.accounting import (
    Interval,
    common,
    covered,
    is_comm,
    is_compute,
    length,
    union,
)
from tests.oracle.comm import without
from tests.oracle.report import Report, Row, os_pid


def exchanged(report: Report) -> list[Row]:
    """By device and start."""
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
