"""Counters in a torch.profiler trace, and what `nsysflow profile` wrote of GPUs, CPUs and loaders
beside its events.

Kineto samples hardware counters with CUPTI (`CUPTI_PM_SAMPLING_METRICS`, 2026): each value is an
event of phase `C`, named as CUPTI names the metric, in a process `GPU 0 Counters`. Of these the
clocks are read. It writes neither power nor temperature.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto.document import (
    Document,
    Event,
    frame_of,
    time_ns,
    unquoted,
)
from nsysflow.analysis.load.marks import (
    decoded_or_none,
    timed_loaders,
)
from nsysflow.analysis.load.readings import (
    timed_gpu_states,
    timed_gpu_traffic,
    timed_process_cpu,
    timed_thread_cpu,
)

_CLOCKS: Final = {
    "sm_clock_mhz": re.compile(r"(?:gpc|sm)__cycles_elapsed\.(?:avg|max)\.per_second"),
    "memory_clock_mhz": re.compile(r"dram__cycles_elapsed\.(?:avg|max)\.per_second"),
}
"""CUPTI's names of clocks, in Hz."""

_PROCESS: Final = re.compile(r"GPU (\d{1,5}) Counters")

_VALUES: Final = msgspec.json.Decoder(dict[str, float])
_BASE: Final = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)])


def gpu_states(document: Document, values: Iterable[Event]) -> pl.DataFrame:
    """`schema.GPU_STATES`: what we sampled, and the clocks among the values of counters.

    Raises:
        OddEvent: a counter has no usable time.
    """
    ours = timed_gpu_states(document.ours, _base_ns(document))
    rows = [
        _row(event, column, device, hz)
        for event in values
        if (column := _clock(event)) is not None
        and (device := _device(event)) is not None
        and (hz := _value(event)) is not None
    ]
    return pl.concat([ours, frame_of(rows, schema.GPU_STATES)])


def gpu_traffic(document: Document) -> pl.DataFrame:
    """`schema.GPU_TRAFFIC`: what we sampled."""
    return timed_gpu_traffic(document.ours, _base_ns(document))


def thread_cpu(document: Document, process: int | None) -> pl.DataFrame:
    """`schema.THREAD_CPU` of the trace's process."""
    return timed_thread_cpu(document.ours, _base_ns(document), process)


def process_cpu(document: Document, process: int | None) -> pl.DataFrame:
    """`schema.PROCESS_CPU` of the trace's process."""
    return timed_process_cpu(document.ours, _base_ns(document), process)


def loader_times(document: Document, process: int | None) -> pl.DataFrame:
    """`schema.LOADER_TIMES` of the trace's process."""
    return timed_loaders(document.ours, _base_ns(document), process)


def _base_ns(document: Document) -> int:
    """The system's time at which the times of the trace begin; 0 where it does not say."""
    return decoded_or_none(_BASE, document.base_ns) or 0


def unread_counters(values: Iterable[Event]) -> Sequence[str]:
    """The names of the counters that are not read."""
    return sorted({str(event.name) for event in values if _clock(event) is None})


def _clock(event: Event) -> str | None:
    """The column of a clock; None for other counters."""
    name = str(event.name)
    return next((column for column, known in _CLOCKS.items() if known.fullmatch(name)), None)


def _device(event: Event) -> int | None:
    match = _PROCESS.fullmatch(str(event.pid))
    number = int(match[1]) if match else unquoted(event.pid)
    return number if type(number) is int and 0 <= number < 1 << 16 else None


def _value(event: Event) -> float | None:
    """The value in Hz; None if it has none, or several."""
    values = [*(decoded_or_none(_VALUES, event.args) or {}).values()]
    return values[0] if len(values) == 1 and 0 <= values[0] < schema.POSSIBLE_HZ.stop else None


def _row(event: Event, column: str, device: int, hz: float) -> tuple[int | None, ...]:
    mhz = int(hz / 1e6 + 0.5)
    values = (mhz if name == column else None for name in schema.GPU_STATES.names()[2:])
    return time_ns(event.ts), device, *values
