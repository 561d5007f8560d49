"""The device time of each repetition, computed from CUPTI's records. Pure.

On the host, a session repeats `flush, wait for an event, call, wait for the device`. The waits are
CUDA runtime calls, so CUPTI records them, on the same clock as everything else. A repetition ranges
from the end of an event wait to the end of the next device wait, and everything launched in this
range belongs to it. The flush is launched outside any range and therefore not counted. (Ranges of
record_function are not available: torch only records them together with the CPU's operators.)
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

OPENS: Final = "cudaEventSynchronize"
CLOSES: Final = "cudaDeviceSynchronize"
"""How the names of these calls begin; CUPTI may append a version, as in `_v3020`."""


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A CUDA call on the host, or a kernel, copy or memset on the device, in ns on one clock.

    Attributes:
        correlation: an id shared by a call and the device operation that it launched.
    """

    name: str
    on_device: bool
    start_ns: int
    end_ns: int
    correlation: int


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """The device's work for one call.

    Attributes:
        operations: how many kernels, copies and memsets.
        device_ns: the sum of their durations, without the pauses between them.
    """

    operations: int
    device_ns: int


class LostActivity(Exception):
    """The record does not contain everything that ran."""


def repetitions_of(activities: Iterable[Activity], expected: int) -> list[Repetition]:
    """The repetitions of a session, in order.

    Args:
        activities: the record, in any order.
        expected: how many repetitions ran.

    Raises:
        LostActivity: there are more or fewer, one has no device operations, or their numbers of
            operations differ.
    """
    recorded = list(activities)
    calls = [each for each in recorded if not each.on_device]
    ranges = _ranges(calls)
    if len(ranges) != expected:
        raise LostActivity(f"{expected} repetitions ran, but the record has {len(ranges)}")
    launched = {call.correlation: call.start_ns for call in calls}
    begins = [begin for begin, _ in ranges]
    work: list[list[int]] = [[] for _ in ranges]
    for each in recorded:
        if not each.on_device:
            continue
        # if the launch is not in the record, use the kernel's own start
        at = launched.get(each.correlation, each.start_ns)
        place = bisect_right(begins, at) - 1
        if place >= 0 and at < ranges[place][1]:
            work[place].append(each.end_ns - each.start_ns)
    counts = {len(durations) for durations in work}
    if len(counts) > 1 or 0 in counts:
        shown = ", ".join(map(str, sorted(counts)))
        raise LostActivity(f"repetitions of the same call have {shown} device operations")
    return [Repetition(operations=len(each), device_ns=sum(each)) for each in work]


def _ranges(calls: Sequence[Activity]) -> list[tuple[int, int]]:
    """The range of each repetition: from the end of an event wait to that of a device wait."""
    ranges = []
    begin = None
    for call in sorted(calls, key=lambda each: each.start_ns):
        if call.name.startswith(OPENS):
            begin = call.end_ns
        elif call.name.startswith(CLOSES) and begin is not None:
            ranges.append((begin, call.end_ns))
            begin = None
    return ranges
