"""The stopwatch: all that needs a GPU, as thin as it can be.

Every measurement runs twice, so that how far two runs differ is known and not hoped.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile

from nsysflow.kernels.bench.activity import Activity, repetitions_of
from nsysflow.kernels.bench.copying import copy
from nsysflow.kernels.bench.rows import Measured
from nsysflow.kernels.bench.samples import Stats, calls_a_graph, repetitions, stats_of, warm_ups

Call = Callable[[], object]

RUNS: Final = 2
FLUSH_L2S: Final = 4
"""240 MB on an H200, written in 60 us: meanwhile the host queues what is to be measured. It leaves
as many lines to be written back as a large kernel leaves behind, so no one gains by that."""
LARGE_BYTES: Final = 2**30
"""Of the copies that say what memory can do: 17 times an H200's L2."""


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


def stopwatch(device: torch.device) -> Stopwatch:
    """A stopwatch for a GPU."""
    stream = torch.cuda.Stream(device)
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    with torch.cuda.stream(stream):
        flush_buffer = torch.empty(FLUSH_L2S * l2_bytes, dtype=torch.uint8, device=device)
    return Stopwatch(device=device, stream=stream, flush_buffer=flush_buffer)


def measured(watch: Stopwatch, call: Call) -> Measured:
    """Time a call in all ways, on the stopwatch's stream, which must be the current one.

    Raises:
        LostActivity: the profiler did not record what was run.
    """
    guess_ns = _guess_ns(call)
    for _ in range(warm_ups(guess_ns)):
        call()
    times = repetitions(guess_ns)
    device = stats_of([_device_ns(watch, call, times) for _ in range(RUNS)])
    span_cold = stats_of([_span_ns(call, times, watch.flush) for _ in range(RUNS)])
    span_warm = stats_of([_span_ns(call, times) for _ in range(RUNS)])
    peak_memory_bytes = _peak_memory_bytes(call)
    graph_cold: Stats | None = None
    graph_warm: Stats | None = None
    why_no_graph = None
    try:
        graph_cold, graph_warm = _graphs(watch, call, times, device.median_ns)
    except RuntimeError as error:  # it waits, or reads something back: a fact about the call
        torch.cuda.synchronize()
        why_no_graph = str(error).splitlines()[0]
    return Measured(
        device=device,
        span_cold=span_cold,
        span_warm=span_warm,
        graph_cold=graph_cold,
        graph_warm=graph_warm,
        why_no_graph=why_no_graph,
        peak_memory_bytes=peak_memory_bytes,
    )


def copy_bytes_per_s(watch: Stopwatch) -> float:
    """What memory can do: the best of large copies, by the driver and by a kernel."""
    with watch.using():
        x = torch.zeros(LARGE_BYTES // 4, device=watch.device)
        y = torch.empty_like(x)
        best_ns = min(
            min(_span_ns(call, times=20)[2:])  # the first load code and wake the clocks
            for call in (lambda: y.copy_(x), lambda: copy(x, out=y))
        )
    return 2 * LARGE_BYTES / best_ns * 1e9


def _guess_ns(call: Call) -> float:
    """About how long it takes, the compiling first call left out."""
    for _ in range(2):
        call()
    return min(_span_ns(call, times=3))


def _span_ns(call: Call, times: int, flush: Call | None = None) -> list[float]:
    """From an event before each call to one after it. Nothing waits until all are queued."""
    pairs = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(times)
    ]
    for start, end in pairs:
        if flush is not None:
            flush()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e6 for start, end in pairs]


def _device_ns(watch: Stopwatch, call: Call, times: int) -> list[float]:
    """The kernels' own durations, from one session of the profiler; see `activity`."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as session:
        call()  # a session may lose its first kernels: these are in no range
        for _ in range(times):
            watch.flush()
            flushed = torch.cuda.Event()
            flushed.record()
            flushed.synchronize()
            call()
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


def _graphs(watch: Stopwatch, call: Call, times: int, call_ns: float) -> tuple[Stats, Stats]:
    """Replays of a graph of one call, L2 flushed, and of a graph of many, not flushed.

    Raises:
        RuntimeError: the call cannot be captured.
    """
    one = _captured(watch, call, 1)
    cold = stats_of([_span_ns(one.replay, times, watch.flush) for _ in range(RUNS)])
    calls = calls_a_graph(call_ns)
    many = _captured(watch, call, calls)
    many.replay()
    runs = [_span_ns(many.replay, times) for _ in range(RUNS)]
    return cold, stats_of([[sample / calls for sample in run] for run in runs])


def _captured(watch: Stopwatch, call: Call, calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=watch.stream):
        for _ in range(calls):
            call()
    return graph


def _peak_memory_bytes(call: Call) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
