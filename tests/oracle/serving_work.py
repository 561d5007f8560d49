"""What attention and matrix products take of the steps of an engine (spec §23.9 to §23.12)."""

import json
import re
from collections import defaultdict
from fractions import Fraction
from math import prod
from typing import Any

from nsysflow.base.peaks import MEMORY
from tests.oracle.clocks import peak_of
from tests.oracle.model import Op, Operator, OperatorShape
from tests.oracle.operators import SIZES, link_of, tensors, unit_of, work_of
from tests.oracle.report import Report, Row, os_pid
from tests.oracle.serving import WORK_CLASSES, engine_steps, kernels_in, serving_steps
from tests.oracle.stats import percentile, whole
from tests.oracle.steps import Step

PAGED = {
    "vllm::unified_attention_with_output": 0,
    "sglang_profiler::attention_paged_attention_ragged": 2,
}


def serving_work(report: Report) -> list[Row]:
    """§23.9: a row per kind and class."""
    times = {(row["process"], row["device"], row["step"]): row for row in serving_steps(report)}
    groups: dict[tuple[Any, ...], list[Step]] = defaultdict(list)
    said = engine_steps(report)
    for step in said:
        for name in WORK_CLASSES:
            if said[step]["kind"] is not None:
                groups[step.process, step.device, said[step]["kind"], name].append(step)
    rows = []
    for (process, device, kind, name), of_kind in groups.items():
        about = [times[os_pid(process), device, step.index] for step in of_kind]
        ns = [row[f"{name}_ns"] for row in about]
        total, time_ns = sum(ns), sum(row["time_ns"] for row in about)
        tokens = [
            said[step]["context_tokens" if name == "attention" else "tokens"] for step in of_kind
        ]
        calls = [call for step in of_kind for call in calls_in(report, step, name)]
        rows.append(
            {
                "report": report.trace.report,
                "process": os_pid(process),
                "device": device,
                "kind": kind,
                "class": name,
                "steps": len(of_kind),
                "total_ns": total,
                "share_pct": 100.0 * total / time_ns if time_ns else None,
                "median_ns": whole(percentile(ns, 50)),
                "ns_per_token": growth(tokens, ns),
                **rates(calls, total),
            }
        )
    return rows


def growth(tokens: list[int | None], ns: list[int]) -> float | None:
    """§23.10: the slope, if it explains half of the variance of three steps or more."""
    points = [(x, y) for x, y in zip(tokens, ns, strict=True) if x is not None]
    if len(points) < 3:
        return None
    middle_x = Fraction(sum(x for x, _ in points), len(points))
    middle_y = Fraction(sum(y for _, y in points), len(points))
    xx = sum((x - middle_x) ** 2 for x, _ in points)
    yy = sum((y - middle_y) ** 2 for _, y in points)
    xy = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return float(xy / xx) if xx and 2 * xy * xy >= xx * yy else None


def calls_in(report: Report, step: Step, name: str) -> list[Row]:
    """§23.11: of each call of an operator with kernels of the class in a step what it took, where
    that is known."""
    by_shape: dict[OperatorShape, list[tuple[Op, Operator]]] = defaultdict(list)
    for op in kernels_in(report, step, name):
        link = link_of(report, op)
        if link is not None:
            by_shape[link.shape].append((op, link))
    return [
        row
        for shape, kernels in by_shape.items()
        if (row := call_of(report, step, shape, kernels)) is not None
    ]


def call_of(
    report: Report, step: Step, shape: OperatorShape, kernels: list[tuple[Op, Operator]]
) -> Row | None:
    """The calls with one shape in a step."""
    ns = sum(op.end_ns - op.start_ns for op, _ in kernels)
    tf32_ns = sum(op.end_ns - op.start_ns for op, _ in kernels if "tf32" in op.name)
    count = len({link.operator for _, link in kernels})
    found = paged(shape, engine_steps(report)[step])
    if found is None:
        takes = work_of(shape)
        if takes["least_flops"] is None:
            return None
        unit = unit_of(tensors(shape), tf32_ns, ns)
        found = takes["least_flops"], takes["bytes"], unit
    each, moved, unit = found
    if each is None or moved is None or not ns:
        return None
    gpu = next((each for each in report.trace.devices if each.device == step.device), None)
    named = "" if gpu is None or gpu.name is None else gpu.name
    bandwidth = None if gpu is None else gpu.memory_bytes_per_s or MEMORY.get(named)
    peak = None if unit is None else peak_of(report, step.device, unit)  # type: ignore[arg-type]
    return {
        "ns": ns,
        "flops": count * each,
        "bytes": count * moved,
        "compute_ns": 1e9 * count * each / peak if peak else None,
        "memory_ns": 1e9 * count * moved / bandwidth if bandwidth else None,
    }


def paged(shape: OperatorShape, said: Row) -> tuple[int | None, int | None, Any] | None:
    """§23.11: attention over a cache, by the tokens of its step."""
    first = PAGED.get(re.sub("_[0-9]+$", "", shape.name))
    if first is None:
        return None
    dims, types = (json.loads(text or "[]") for text in (shape.dims, shape.types))
    (q, k, v), kinds = dims[first:][:3], types[first:][:3]
    size, of_keys, of_values = (SIZES[kind][0] for kind in kinds)
    heads, width = q[-2:]
    pairs, context = said["query_key_pairs"], said["context_tokens"]
    each = None if pairs is None else 2 * heads * (width + v[-1]) * pairs
    kept = k[-2] * (width * of_keys + v[-1] * of_values)
    own = prod(q[:-2]) * heads * (width + v[-1]) * size
    moved = None if context is None else kept * context + own
    units = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "float32"}
    return each, moved, units.get(kinds[0])


def rates(calls: list[Row], total_ns: int) -> Row:
    """§23.12: what the kernels with known work reached."""
    known_ns = sum(row["ns"] for row in calls)
    row: Row = dict.fromkeys(("flops_per_s", "bytes_per_s", "limit", "roofline_pct"))
    row["known_pct"] = 100.0 * known_ns / total_ns if total_ns else None
    if known_ns:
        for name in ("flops", "bytes"):
            row[f"{name}_per_s"] = 1e9 * sum(call[name] for call in calls) / known_ns
        pairs = [(call["compute_ns"], call["memory_ns"]) for call in calls]
        if all(None not in pair for pair in pairs):
            compute, memory = (sum(each) for each in zip(*pairs, strict=True))
            row["limit"] = "compute" if compute > memory else "memory"
            row["roofline_pct"] = 100 * sum(map(max, pairs)) / known_ns
    return row
