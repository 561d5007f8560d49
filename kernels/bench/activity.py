"""From what CUPTI recorded to the device time of each repetition: pure.

A session is, on the host, `flush, wait for an event, call, wait for the device` again and again.
The waits are calls of the CUDA runtime and so in the record, on one clock with everything else:
from the end of an event wait to the end of the next device wait is a repetition's range. What was
launched in it belongs to it. The flush was launched outside, and that is how it is told. (Ranges of
record_function are not there: torch takes them only where it records the CPU's operators too.)
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

OPENS: Final = "cudaEventSynchronize"
CLOSES: Final = "cudaDeviceSynchronize"
"""How these calls' names begin: CUPTI may add a version, as in `_v3020`."""


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A CUDA call of the host, or a kernel, copy or memset of the device; ns on one clock.

    Attributes:
        correlation: the same for a call and what it made the device do.
    """

    name: str
    on_device: bool
    start_ns: int
    end_ns: int
    correlation: int


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """What the device did for one call.

    Attributes:
        operations: kernels, copies and memsets.
        device_ns: the sum of their own durations; pauses between them are not in it.
    """

    operations: int
    device_ns: int


class LostActivity(Exception):
    """The record does not hold what was run."""


def repetitions_of(activities: Iterable[Activity], expected: int) -> list[Repetition]:
    """The repetitions of a session, in order.

    Args:
        activities: in any order.
        expected: how many repetitions were run.

    Raises:
        LostActivity: there are more or fewer, one has no work, or they differ in how much.
    """
    recorded = list(activities)
    calls = [each for each in recorded if not each.on_device]
    ranges = _ranges(calls)
    if len(ranges) != expected:
        raise LostActivity(f"{expected} repetitions were run, and {len(ranges)} are in the record")
    launched = {call.correlation: call.start_ns for call in calls}
    begins = [begin for begin, _ in ranges]
    work: list[list[int]] = [[] for _ in ranges]
    for each in recorded:
        if not each.on_device:
            continue
        # a kernel whose launch is not in the record goes by its own start
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
    """From each event wait's end to the end of the device wait after it."""
    ranges = []
    begin = None
    for call in sorted(calls, key=lambda each: each.start_ns):
        if call.name.startswith(OPENS):
            begin = call.end_ns
        elif call.name.startswith(CLOSES) and begin is not None:
            ranges.append((begin, call.end_ns))
            begin = None
    return ranges
