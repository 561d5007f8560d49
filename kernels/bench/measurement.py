"""How long a call takes, measured in several ways.

The speed of a kernel depends on the addresses of its tensors, by a few per cent if they fill much
of L2. So a call is timed on many placements: the same call on different memory. Half of them are
the first run of the measurement and half the second, which shows how far two runs differ.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Final

import torch

from nsysflow.kernels.bench.rows import (
    PASSES,
    PLACEMENTS,
    REPLAYS,
    Measured,
    calls_a_sample,
    repetitions,
    stats_of,
    warm_ups,
)
from nsysflow.kernels.bench.stopwatch import (
    Call,
    Stopwatch,
    device_ns,
    host_ns,
    peak_memory_bytes,
    span_ns,
)

RUNS: Final = 2
PLACED_BYTES_MAX: Final = 16 * 2**30
"""Memory limit for all placements. Larger tensors do not stay in L2 anyway."""
PLACING_S_MAX: Final = 3.0
"""Time limit for making placements; one with thousands of tensors takes 0.1 s."""

Placements = Sequence[Call]


def measured(watch: Stopwatch, call: Call, another: Callable[[], Call]) -> Measured:
    """The times of a call on the stopwatch's stream, which must be the current one.

    Args:
        watch: the stopwatch.
        call: the call.
        another: makes the same call on new memory.

    Raises:
        LostActivity: the profiler did not record everything that ran.
    """
    guess_ns = _guess_ns(call)
    for _ in range(warm_ups(guess_ns)):
        call()
    times = repetitions(guess_ns)
    placed = _placements(call, another, RUNS * min(times, PLACEMENTS))
    runs = [placed[number::RUNS] for number in range(RUNS)]
    for run in runs:  # kernels are up to 6 % slower on new memory for a quarter of a second
        device_ns(watch, run, times)
    device = stats_of([device_ns(watch, run, times) for run in runs])
    calls = calls_a_sample(device.median_ns)
    issue_ns = host_ns(call)
    span_cold = stats_of([_span_cold_ns(watch, run, issue_ns) for run in runs])
    span_warm = stats_of([_span_warm_ns(run, calls, issue_ns) for run in runs])
    why_no_graph = None
    try:
        graph_cold, graph_warm = (
            stats_of([_graph_cold_ns(watch, run) for run in runs]),
            stats_of([_graph_warm_ns(watch, run, calls) for run in runs]),
        )
    except RuntimeError as error:  # the call waits or reads from the GPU: no capture possible
        graph_cold, graph_warm = None, None
        why_no_graph = str(error).splitlines()[0]
    return Measured(
        device=device,
        span_cold=span_cold,
        span_warm=span_warm,
        graph_cold=graph_cold,
        graph_warm=graph_warm,
        why_no_graph=why_no_graph,
        host_min_ns=issue_ns,
        peak_memory_bytes=peak_memory_bytes(call),
    )


def _guess_ns(call: Call) -> float:
    """Roughly how long a call takes, without the first one, which compiles."""
    for _ in range(2):
        call()
    return min(span_ns(call) for _ in range(3))


def _placements(call: Call, another: Callable[[], Call], wanted: int) -> list[Call]:
    """Up to `wanted` placements, within the limits above and half of the free memory.

    Each has been called once. All are kept: the next one would get memory that was freed.
    """
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    spared = max(free / 2, free - PLACED_BYTES_MAX)
    until = time.monotonic() + PLACING_S_MAX
    placed = [call]
    while len(placed) < wanted:
        if len(placed) >= RUNS and (
            torch.cuda.mem_get_info()[0] <= spared or time.monotonic() > until
        ):
            break
        placed.append(another())
        placed[-1]()
    return placed


def _span_cold_ns(watch: Stopwatch, placed: Placements, issue_ns: int) -> list[float]:
    """Means of passes over all placements, with L2 flushed before each pass."""
    once_each = partial(_once_each, placed)
    pass_ns = partial(span_ns, once_each, before=watch.flush, host_ns=len(placed) * issue_ns)
    return [pass_ns() / len(placed) for _ in range(PASSES)]


def _span_warm_ns(placed: Placements, calls: int, issue_ns: int) -> list[float]:
    """Means of many consecutive calls on the same placement."""
    samples = []
    for call in islice(cycle(placed), PASSES):
        again = partial(_again, call, calls)
        samples.append(span_ns(again, before=call, host_ns=calls * issue_ns) / calls)
    return samples


def _graph_cold_ns(watch: Stopwatch, placed: Placements) -> list[float]:
    """Like `_span_cold_ns`, with replays of one graph."""
    graph = watch.captured(partial(_once_each, placed))
    graph.replay()  # the first replay uploads the graph
    return [span_ns(graph.replay, before=watch.flush) / len(placed) for _ in range(PASSES)]


def _graph_warm_ns(watch: Stopwatch, placed: Placements, calls: int) -> list[float]:
    """Like `_span_warm_ns`, with replays of one graph per placement."""
    samples = []
    for call in placed:
        graph = watch.captured(partial(_again, call, calls))
        replay_ns = partial(span_ns, graph.replay, before=graph.replay)
        samples += [replay_ns() / calls for _ in range(REPLAYS)]
    return samples


def _once_each(placed: Placements) -> list[object]:
    """Call every placement and keep all outputs, so that no call reuses memory that is in L2."""
    return [call() for call in placed]


def _again(call: Call, calls: int) -> None:
    for _ in range(calls):
        call()
