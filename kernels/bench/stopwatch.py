"""Times on a GPU: from event to event, and the durations of single kernels by CUPTI's records."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import torch
from torch import Tensor
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from nsysflow.kernels.bench.copy import copy

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
    calls = [event for event in recorded if not event.on_device]
    ranges = _ranges(calls)
    if len(ranges) != expected:
        raise LostActivity(f"{expected} repetitions ran, but the record has {len(ranges)}")
    launched = {call.correlation: call.start_ns for call in calls}
    begins = [begin for begin, _ in ranges]
    work: list[list[int]] = [[] for _ in ranges]
    for event in recorded:
        if not event.on_device:
            continue
        # if the launch is not in the record, use the kernel's own start
        at = launched.get(event.correlation, event.start_ns)
        place = bisect_right(begins, at) - 1
        if place >= 0 and at < ranges[place][1]:
            work[place].append(event.end_ns - event.start_ns)
    counts = {len(durations) for durations in work}
    if len(counts) > 1 or 0 in counts:
        shown = ", ".join(map(str, sorted(counts)))
        raise LostActivity(f"repetitions of the same call have {shown} device operations")
    return [
        Repetition(operations=len(durations_ns), device_ns=sum(durations_ns))
        for durations_ns in work
    ]


def _ranges(calls: Sequence[Activity]) -> list[tuple[int, int]]:
    """The range of each repetition: from the end of an event wait to that of a device wait."""
    ranges = []
    begin = None
    for call in sorted(calls, key=lambda event: event.start_ns):
        if call.name.startswith(OPENS):
            begin = call.end_ns
        elif call.name.startswith(CLOSES) and begin is not None:
            ranges.append((begin, call.end_ns))
            begin = None
    return ranges


Call = Callable[[], object]

FLUSH_L2S: Final = 4
"""240 MB on an H200, written in 60 us. It leaves as many dirty lines as a large kernel would, so no
kernel gains from them."""
LARGE_BYTES: Final = 2**30
"""Size of the copies that measure the bandwidth: 17 times the L2 of an H200."""
HOST_CALLS: Final = 10
HELD_AT_LEAST_NS: Final = 50_000
HELD: Final = 2
"""The GPU is held for this multiple of the shortest time in which the host issues the calls. At 1.5
the GPU waited in one of 187 cases, through autograd, and its span was 65 % longer."""
CYCLES_PER_NS: Final = 2
"""No GPU has a faster clock, so it is held at least as long as requested."""


@dataclass(frozen=True, kw_only=True)
class Stopwatch:
    """A GPU, the stream of all measurements, and the buffer that flushes its L2."""

    device: torch.device
    stream: torch.cuda.Stream
    flush_buffer: Tensor

    def using(self) -> AbstractContextManager[object]:
        """Make its stream the current one, to make, check and time problems.

        Backward runs on the stream of its forward, and both can only be captured on one stream.
        """
        return torch.cuda.stream(self.stream)

    def flush(self) -> None:
        """Evict everything else from L2."""
        self.flush_buffer.zero_()

    def captured(self, calls: Call) -> torch.cuda.CUDAGraph:
        """The launches of `calls` as a graph.

        Raises:
            RuntimeError: they cannot be captured.
        """
        try:
            return self._captured(calls)
        except RuntimeError:
            # until a capture succeeds, torch's random generator believes it is still being
            # captured and raises at the next draw
            torch.cuda.synchronize()
            self._captured(self.flush)
            raise

    def _captured(self, calls: Call) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            calls()
        return graph


def stopwatch(device: torch.device) -> Stopwatch:
    """A stopwatch for a GPU."""
    stream = torch.cuda.Stream(device)
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    with torch.cuda.stream(stream):
        flush_buffer = torch.empty(FLUSH_L2S * l2_bytes, dtype=torch.uint8, device=device)
    return Stopwatch(device=device, stream=stream, flush_buffer=flush_buffer)


def span_ns(timed: Call, *, before: Call = lambda: None, host_ns: int = 0) -> float:
    """The time in ns from an event before `timed` to one after it.

    The GPU is held before the first event until the host has issued everything, up to the 1000
    launches that fit into the GPU's queue. So this is the GPU's time, with pauses between kernels.

    Args:
        timed: the call to time.
        before: called first, not timed.
        host_ns: the shortest time in which the host issues `timed`.
    """
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    before()
    held_ns = HELD_AT_LEAST_NS + HELD * host_ns
    torch.cuda._sleep(held_ns * CYCLES_PER_NS)  # does not change L2
    start.record()
    timed()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e6


def device_ns(watch: Stopwatch, calls: Sequence[Call], times: int) -> list[float]:
    """The device time of each call with L2 flushed, from one profiler session; see `activity`.

    Args:
        watch: the stopwatch.
        calls: called in turn.
        times: how many calls in total.

    Raises:
        LostActivity: the profiler did not record everything that ran.
    """
    in_turn = cycle(calls)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as session:
        calls[0]()  # a session may lose its first kernels; these are outside any range
        for _ in range(times):
            watch.flush()
            flushed = torch.cuda.Event()
            flushed.record()
            flushed.synchronize()
            next(in_turn)()
            torch.cuda.synchronize()
    record = session.profiler.kineto_results.events()
    activities = [
        Activity(
            name=item.name(),
            on_device=item.device_type() == DeviceType.CUDA,
            start_ns=item.start_ns(),
            end_ns=item.start_ns() + item.duration_ns(),
            correlation=item.correlation_id(),
        )
        for item in record
        if not item.is_user_annotation()
    ]
    return [float(repetition.device_ns) for repetition in repetitions_of(activities, times)]


def host_ns(call: Call) -> int:
    """The shortest time in ns in which the host issues the call to an idle GPU."""
    torch.cuda.synchronize()
    taken = []
    for _ in range(HOST_CALLS):
        begin_ns = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - begin_ns)
        torch.cuda.synchronize()
    return min(taken)


def peak_memory_bytes(call: Call) -> int:
    """The most memory that the call allocates in addition."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def copy_bytes_per_s(watch: Stopwatch) -> float:
    """The memory bandwidth: the fastest of several large copies, by the driver and by a kernel."""
    with watch.using():
        x = torch.zeros(LARGE_BYTES // 4, device=watch.device)
        y = torch.empty_like(x)
        best_ns = min(
            min(
                [span_ns(call) for _ in range(20)][2:]
            )  # the first ones load code and raise the clocks
            for call in (lambda: y.copy_(x), lambda: copy(x, out=y))
        )
    return 2 * LARGE_BYTES / best_ns * 1e9
