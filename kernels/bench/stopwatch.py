"""A GPU, and what takes its time: from event to event, and kernel by kernel."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle
from typing import Final

import torch
from torch import Tensor
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from nsysflow.kernels.bench.activity import Activity, repetitions_of
from nsysflow.kernels.bench.copying import copy

Call = Callable[[], object]

FLUSH_L2S: Final = 4
"""240 MB on an H200, written in 60 us. It leaves as many lines to be written back as a large kernel
leaves behind, so no one gains by that."""
LARGE_BYTES: Final = 2**30
"""Of the copies that say what memory can do: 17 times an H200's L2."""
HOST_CALLS: Final = 10
HELD_AT_LEAST_NS: Final = 50_000
HELD: Final = 2
"""How often the host could issue a call at its fastest while the GPU is held. At 1.5 the GPU waited
in one case of 187, through autograd, and its span was 65 % longer."""
CYCLES_PER_NS: Final = 2
"""No GPU's clock is faster, so it is held for as long as was asked, or longer."""


@dataclass(frozen=True, kw_only=True)
class Stopwatch:
    """A GPU with a stream on which all is measured, and what flushes its L2."""

    device: torch.device
    stream: torch.cuda.Stream
    flush_buffer: Tensor

    def using(self) -> AbstractContextManager[object]:
        """Make its stream the current one. Problems are made, judged and timed on it: backward runs
        on the stream of its forward, and only on one stream can both be captured."""
        return torch.cuda.stream(self.stream)

    def flush(self) -> None:
        """Push all else out of L2."""
        self.flush_buffer.zero_()

    def captured(self, calls: Call) -> torch.cuda.CUDAGraph:
        """What it launches, as a graph.

        Raises:
            RuntimeError: it cannot be captured.
        """
        try:
            return self._captured(calls)
        except RuntimeError:
            # torch's random numbers take themselves to be captured still, and raise when next
            # drawn, until a capture succeeds
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
    """From an event before `timed` to one after it.

    The GPU is held before the first until the host has issued all, as long as the GPU's queue of
    about 1000 launches takes it: what is seen is the GPU's time, its pauses between kernels too.

    Args:
        before: run first, untimed.
        host_ns: the least that the host takes to issue `timed`.
    """
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    before()
    held_ns = HELD_AT_LEAST_NS + HELD * host_ns
    torch.cuda._sleep(held_ns * CYCLES_PER_NS)  # leaves L2 as it is
    start.record()
    timed()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e6


def device_ns(watch: Stopwatch, calls: Sequence[Call], times: int) -> list[float]:
    """The kernels' own durations, L2 flushed, from one session of the profiler; see `activity`.

    Args:
        calls: run in turn.
        times: how many are run in all.

    Raises:
        LostActivity: the profiler did not record what was run.
    """
    in_turn = cycle(calls)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as session:
        calls[0]()  # a session may lose its first kernels: these are in no range
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
            name=each.name(),
            on_device=each.device_type() == DeviceType.CUDA,
            start_ns=each.start_ns(),
            end_ns=each.start_ns() + each.duration_ns(),
            correlation=each.correlation_id(),
        )
        for each in record
        if not each.is_user_annotation()
    ]
    return [float(each.device_ns) for each in repetitions_of(activities, times)]


def host_ns(call: Call) -> int:
    """The least that the host takes to issue it to an idle GPU."""
    torch.cuda.synchronize()
    taken = []
    for _ in range(HOST_CALLS):
        begin_ns = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - begin_ns)
        torch.cuda.synchronize()
    return min(taken)


def peak_memory_bytes(call: Call) -> int:
    """What it allocates beyond what is there, at its highest."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def copy_bytes_per_s(watch: Stopwatch) -> float:
    """What memory can do: the best of large copies, by the driver and by a kernel."""
    with watch.using():
        x = torch.zeros(LARGE_BYTES // 4, device=watch.device)
        y = torch.empty_like(x)
        best_ns = min(
            min([span_ns(call) for _ in range(20)][2:])  # the first load code and wake the clocks
            for call in (lambda: y.copy_(x), lambda: copy(x, out=y))
        )
    return 2 * LARGE_BYTES / best_ns * 1e9
