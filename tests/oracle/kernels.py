"""Kernels (spec §6). Their classes are data of the analysis; the spec defines only comm."""

import re
from collections import Counter
from dataclasses import astuple
from typing import Final

from tests.oracle.accounting import is_comm
from tests.oracle.model import Shape
from tests.oracle.once import grouped_by
from tests.oracle.report import Report, Row
from tests.oracle.stats import spread


def commonest_shape(shapes: list[Shape]) -> Shape | None:
    """§6.1: the most common grid and block, and of those registers and memory."""
    if not shapes:
        return None

    columns = [astuple(shape) for shape in shapes]  # the first six are of grid and block
    launches = Counter(each[:6] for each in columns)
    launch = min(launches, key=lambda key: (-launches[key], key))
    full = Counter(each for each in columns if each[:6] == launch)
    return Shape(*min(full, key=lambda key: (-full[key], key)))


def kernels(report: Report) -> list[Row]:
    """§6.1: one row per device and kernel, by full name."""
    rows: list[Row] = []
    for device in report.devices:
        of_device = [i for i in report.on(device) if report.ops[i].kind == "kernel"]
        by_name = grouped_by(lambda index: report.ops[index].name, of_device)
        all_ns = sum(report.ops[i].end_ns - report.ops[i].start_ns for i in of_device)
        for name, found in by_name.items():
            ops = [report.ops[index] for index in found]
            ns = [op.end_ns - op.start_ns for op in ops]
            shape = commonest_shape([op.shape for op in ops if op.shape is not None])
            row: Row = {
                "report": report.trace.report,
                "device": device,
                "name": name,
                "short_name": min(op.short_name for op in ops),
                "functor": functor(name),
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
                gpu = report.gpu(device)
                sm_count = None if gpu is None else gpu.sm_count
                row |= {
                    "grid": f"{shape.grid_x}x{shape.grid_y}x{shape.grid_z}",
                    "block": f"{shape.block_x}x{shape.block_y}x{shape.block_z}",
                    "registers": shape.registers,
                    "shared_bytes": shape.shared_bytes,
                    "waves": blocks / sm_count if sm_count else None,
                }
            rows.append(row)
    return rows


ANY: Final = {"BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor", "UnaryFunctor"}
LAUNCHERS: Final = {"gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "operator"}


def functor(name: str) -> str:
    """§6.5: the last functor, else the function with the first lambda."""
    words = [word for word in re.findall(r"\w+", name) if word not in ANY]
    functors = [
        word
        for word in words
        if "functor" in word or "Functor" in word or (word.endswith("Ops") and word != "Ops")
    ]
    if functors:
        return str(functors[-1])
    functions = map(function_before, re.split(r"::[\[{]lambda", name)[:-1])
    return next(filter(None, functions), "")


def function_before(text: str) -> str:
    """The function whose parameters end the text; empty for one that launches any other."""
    text = text.removesuffix(" const")
    if not text.endswith(")") or "(" in (inside := text[:-1].rpartition("(")[2]) or ")" in inside:
        return ""
    text = text[: -len(inside) - 2]
    for operator in ("::operator ()", "::operator()"):
        text = text.removesuffix(operator)
    if text.endswith(">"):
        depth, at = 0, len(text)
        while at and (at == len(text) or depth):
            at -= 1
            depth += {">": 1, "<": -1}.get(text[at], 0)
            if text[at] in "()" or depth > 2:
                return ""
        text = text[:at]
    ends = re.search(r"\w+$", text)
    word = "" if ends is None else str(ends[0])
    return "" if word in LAUNCHERS else word


def tiny_pct(report: Report, found: list[int]) -> float | None:
    """§6.1: the share of launches shorter than their own call, of those that have one."""
    launched = [(report.ops[i], call) for i in found if (call := report.calls.caller(i))]
    tiny = [op for op, call in launched if op.end_ns - op.start_ns < call.end_ns - call.start_ns]
    return 100 * len(tiny) / len(launched) if launched else None
