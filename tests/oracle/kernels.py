"""Kernels (spec §6). Their classes are data of the analysis; the spec defines only comm."""

from collections import Counter, defaultdict
from dataclasses import astuple

from tests.oracle.accounting import is_comm
from tests.oracle.model import Shape
from tests.oracle.report import Report, Row
from tests.oracle.stats import spread


def commonest_shape(shapes: list[Shape]) -> Shape | None:
    """§6.1: the most common grid and block, and among those the most common registers and memory.

    Ties go to the smallest numbers.
    """
    if not shapes:
        return None

    columns = [astuple(shape) for shape in shapes]  # the first six are of grid and block
    launches = Counter(each[:6] for each in columns)
    launch = min(launches, key=lambda key: (-launches[key], key))
    full = Counter(each for each in columns if each[:6] == launch)
    return Shape(*min(full, key=lambda key: (-full[key], key)))


def kernels(report: Report) -> list[Row]:
    """§6.1: one row per device and kernel, by full name."""
    sms = {device.device: device.sm_count for device in report.trace.devices}
    rows: list[Row] = []
    for device in report.devices:
        by_name: dict[str, list[int]] = defaultdict(list)
        for index in report.on(device):
            if report.ops[index].kind == "kernel":
                by_name[report.ops[index].name].append(index)
        of_device = [report.ops[i] for found in by_name.values() for i in found]
        all_ns = sum(op.end_ns - op.start_ns for op in of_device)
        for name, found in by_name.items():
            ops = [report.ops[index] for index in found]
            ns = [op.end_ns - op.start_ns for op in ops]
            shape = commonest_shape([op.shape for op in ops if op.shape is not None])
            row: Row = {
                "report": report.trace.report,
                "device": device,
                "name": name,
                "short_name": min(op.short_name for op in ops),
                "class": "comm" if is_comm(ops[0]) else None,
                "count": len(ops),
                "total_ns": sum(ns),
                **spread(ns),
                "share_pct": 100 * sum(ns) / all_ns if all_ns else None,
                "tiny_pct": tiny_pct(report, found),
                **dict.fromkeys(("grid", "block", "registers", "shared_bytes", "waves")),
            }
            if shape is not None:
                blocks = shape.grid_x * shape.grid_y * shape.grid_z
                sm_count = sms.get(device)
                row |= {
                    "grid": f"{shape.grid_x}x{shape.grid_y}x{shape.grid_z}",
                    "block": f"{shape.block_x}x{shape.block_y}x{shape.block_z}",
                    "registers": shape.registers,
                    "shared_bytes": shape.shared_bytes,
                    "waves": blocks / sm_count if sm_count else None,
                }
            rows.append(row)
    return rows


def tiny_pct(report: Report, found: list[int]) -> float | None:
    """§6.1: the share of launches shorter than their own call, of those that have one."""
    launched = [(report.ops[i], call) for i in found if (call := report.calls.caller(i))]
    tiny = [op for op, call in launched if op.end_ns - op.start_ns < call.end_ns - call.start_ns]
    return 100 * len(tiny) / len(launched) if launched else None
