"""Where the GPU's time goes (spec §2)."""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.oracle.model import Op

RULES = tomllib.loads(
    (Path(__file__).parents[2] / "analysis/events/communication.toml").read_text()
)["kernel"]
"""§2.4: the rules are data."""

Interval = tuple[int, int]

FOREVER = (-(1 << 62), 1 << 62)

Keep = dict[int, list[Interval]]
"""Per device, the intervals of a narrowed window."""


def is_comm(op: Op) -> bool:
    """§2.4: a communication kernel."""
    return op.kind == "kernel" and communication(op) == "comm"


def communication(op: Op) -> str | None:
    """§2.4: `comm`, `gemm+comm`, or None, by the first rule that matches the qualified name."""
    found = _communication(op.name, op.short_name)
    return None if found == "none" else found


@cache
def _communication(name: str, short_name: str) -> str | None:
    head = re.split(r"[<(\[]", re.sub(r"\(anonymous namespace\)|<unnamed>", "_", name))[0]
    last = head.strip().split()[-1] if head.strip() else ""
    qualified = last if last.endswith(short_name) else short_name
    for rule in RULES:
        if re.search(rule["pattern"], qualified, re.IGNORECASE):
            return str(rule["class"])
    return None


def is_copy(op: Op) -> bool:
    """§2: memcpy and memset."""
    return op.kind in ("memcpy", "memset")


def is_compute(op: Op) -> bool:
    """§2: kernels that are not communication, and graph traces."""
    return not is_comm(op) and not is_copy(op)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same instants as disjoint intervals, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def common(some: list[Interval], others: list[Interval]) -> list[Interval]:
    """The instants in both of two results of `union`."""
    both: list[Interval] = []
    if not some or not others:
        return both
    # those that end before the first of the others begins have nothing in common with them
    i = bisect_right(some, others[0][0], key=lambda one: one[1])
    j = bisect_right(others, some[0][0], key=lambda one: one[1])
    while i < len(some) and j < len(others):
        start, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if start < end:
            both.append((start, end))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return both


def without(some: list[Interval], others: list[Interval]) -> list[Interval]:
    """The instants in the first of two results of `union` that are not in the other."""
    edges = [FOREVER[0], *(edge for span in others for edge in span), FOREVER[1]]
    return common(some, list(zip(edges[::2], edges[1::2], strict=True)))


def length(intervals: Iterable[Interval]) -> int:
    """The total length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def covered(ops: Iterable[Op]) -> list[Interval]:
    """The instants at which at least one of the operations runs."""
    return union((op.start_ns, op.end_ns) for op in ops)


def window(ops: Iterable[Op]) -> list[Interval]:
    """§2.1: `[first operation's start, last operation's end)`; §1.6: without zero lengths."""
    bounding = [op for op in ops if op.end_ns > op.start_ns]
    if not bounding:
        return []
    return [(min(op.start_ns for op in bounding), max(op.end_ns for op in bounding))]


def parts(ops: list[Op], window: list[Interval]) -> dict[str, int]:
    """§2: window = compute + comm_exposed + copy_exposed + idle, exactly, in ns."""
    inside = [op for op in ops if op.end_ns > op.start_ns]
    compute = common(covered(op for op in inside if is_compute(op)), window)
    kernels = common(covered(op for op in inside if not is_copy(op)), window)
    busy = common(covered(inside), window)
    return {
        "window_ns": length(window),
        "compute_ns": length(compute),
        "comm_exposed_ns": length(kernels) - length(compute),
        "copy_exposed_ns": length(busy) - length(kernels),
        "idle_ns": length(window) - length(busy),
    }
