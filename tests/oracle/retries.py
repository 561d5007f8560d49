"""When an allocator found no memory, gave some back and asked again (spec §4.6)."""

import re
from collections import defaultdict
from collections.abc import Iterable

from tests.oracle.model import Call
from tests.oracle.report import Report

TAKES = re.compile(r"cudaMalloc|cudaMallocAsync|cuMemAlloc|cuMemAllocAsync|cuMemCreate")
GIVES = re.compile(r"cudaFree|cudaFreeAsync|cuMemFree|cuMemFreeAsync|cuMemUnmap|cuMemRelease")

Retry = tuple[int, int, int, int, int]
"""Thread, start, end, failed calls, frees."""


def retries(calls: Iterable[Call], failed_calls: Iterable[Call]) -> list[Retry]:
    """All retries, by thread and start; the calls come by start, the longer first."""
    returned = set(failed_calls)
    failed = set()
    by_thread: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        if TAKES.fullmatch(call.name) or GIVES.fullmatch(call.name):
            others = by_thread[call.thread]
            if all(other.end_ns < call.end_ns for other in others):  # lies in none of them
                others.append(call)
            if call in returned and TAKES.fullmatch(others[-1].name):
                failed.add(others[-1])
    found = []
    for thread in sorted(by_thread):
        tried: list[Call] = []
        for call in by_thread[thread]:
            if call in failed or tried:
                tried.append(call)
            if TAKES.fullmatch(call.name) and call not in failed:
                found += _retry(thread, tried, failed)
                tried = []
        found += _retry(thread, tried, failed)
    return found


def _retry(thread: int, tried: list[Call], failed: set[Call]) -> list[Retry]:
    """The retry that begins with the first of these calls; none if no call gives memory back."""
    frees = [call for call in tried if GIVES.fullmatch(call.name)]
    if not frees:
        return []
    last = tried[-1] if TAKES.fullmatch(tried[-1].name) and tried[-1] not in failed else frees[-1]
    count = sum(call in failed for call in tried)
    return [(thread, tried[0].start_ns, last.end_ns, count, len(frees))]


def is_in(call: Call, found: Iterable[Retry]) -> bool:
    """Whether a call begins in one of the retries of its thread."""
    return any(
        thread == call.thread and start_ns <= call.start_ns < end_ns
        for thread, start_ns, end_ns, _, _ in found
    )


def idle_ns(report: Report, retry: Retry) -> dict[int, int]:
    """How long each GPU idles in a retry of a process that uses it."""
    thread, start_ns, end_ns, _, _ = retry
    idle = {op.device: 0 for op in report.ops if op.process == thread & ~0xFFFFFF}
    for gap in report.gaps.gaps:
        if gap.device in idle:
            idle[gap.device] += max(0, min(end_ns, gap.end_ns) - max(start_ns, gap.start_ns))
    return idle
