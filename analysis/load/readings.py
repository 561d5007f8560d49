"""What `nsysflow profile` read of GPUs (their states and traffic) and of CPUs, from marks of ours,
and from what stands beside a Kineto trace."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.marks import (
    TimedGpuStates,
    TimedGpuTraffics,
    TimedProcessCpu,
    TimedThreadCpu,
    decoded_or_none,
    gpu_states_of_mark,
    gpu_traffic_of_mark,
    process_cpu_of_mark,
    thread_cpu_of_mark,
)

_LIMITS: Final = {
    "thermal": 0x20 | 0x40,
    "power_brake": 0x80,
    "hardware": 0x8,
    "power_cap": 0x4,
    "sync_boost": 0x10,
    "setting": 0x2 | 0x100,
    "idle": 0x1,
}
"""NVML's bits of each limit (`nvmlClocksEventReason…`), in the order of `schema.CLOCK_LIMIT`."""

_TIMED_STATES: Final = msgspec.json.Decoder(TimedGpuStates)
_TIMED_TRAFFIC: Final = msgspec.json.Decoder(TimedGpuTraffics)
_TIMED_THREAD_CPU: Final = msgspec.json.Decoder(TimedThreadCpu)
_TIMED_PROCESS_CPU: Final = msgspec.json.Decoder(TimedProcessCpu)

_STATES: Final = pl.Schema({"process": pl.Int64(), **schema.GPU_STATES})


Marks = Iterable[tuple[int | None, int, str]]
"""The process, time and text of each."""

Read = TypeVar("Read")


def _read_of(
    marks: Marks, read: Callable[[str], Read | None]
) -> Iterator[tuple[int | None, int, Read]]:
    """What `read` makes of each mark's text, with its process and time; not of marks of others."""
    for process, at_ns, text in marks:
        if (found := read(text)) is not None:
            yield process, at_ns, found


def gpu_states(marks: Marks) -> pl.DataFrame:
    """`process` and `schema.GPU_STATES` of all marks; `device` is the number in its process."""
    rows = [
        (process, *_state_row(at_ns, state))
        for process, at_ns, read in _read_of(marks, gpu_states_of_mark)
        for state in read.gpu_states
    ]
    return pl.DataFrame(rows, _STATES, orient="row")


def timed_gpu_states(json: bytes | msgspec.Raw, base_ns: int) -> pl.DataFrame:
    """`schema.GPU_STATES` from the JSON under our key, at times since `base_ns` of the system."""
    read = decoded_or_none(_TIMED_STATES, json)
    states = read.gpu_states if read is not None else []
    rows = [_state_row(at_ns - base_ns, state) for at_ns, state in states]
    return pl.DataFrame(rows, schema.GPU_STATES, orient="row")


_TRAFFIC: Final = pl.Schema({"process": pl.Int64(), **schema.GPU_TRAFFIC})


def gpu_traffic(marks: Marks) -> pl.DataFrame:
    """`process` and `schema.GPU_TRAFFIC` of all marks; `device` is the number in its process."""
    rows = [
        (process, at_ns, *traffic)
        for process, at_ns, read in _read_of(marks, gpu_traffic_of_mark)
        for traffic in read.gpu_traffic
    ]
    return pl.DataFrame(rows, _TRAFFIC, orient="row")


def timed_gpu_traffic(json: bytes | msgspec.Raw, base_ns: int) -> pl.DataFrame:
    """`schema.GPU_TRAFFIC` from the JSON under our key, at times since `base_ns` of the system."""
    read = decoded_or_none(_TIMED_TRAFFIC, json)
    rows = [
        (at_ns - base_ns, *traffic)
        for at_ns, traffic in (read.gpu_traffic if read is not None else [])
    ]
    return pl.DataFrame(rows, schema.GPU_TRAFFIC, orient="row")


def _state_row(at_ns: int, state: Sequence[int | None]) -> tuple[int | str | None, ...]:
    device, sm_mhz, memory_mhz, milliwatts, celsius, reasons = state
    watts = None if milliwatts is None else (milliwatts + 500) // 1000
    return at_ns, device, sm_mhz, memory_mhz, watts, celsius, _limit(reasons)


def _limit(reasons: int | None) -> str | None:
    """One of `schema.CLOCK_LIMIT`; None if it is not known."""
    if reasons is None:
        return None
    return next((name for name, bits in _LIMITS.items() if reasons & bits), "none")


def thread_cpu(marks: Marks) -> pl.DataFrame:
    """`schema.THREAD_CPU` of all marks."""
    rows = [
        (at_ns, process | thread, ran_ns, waited_ns)
        for process, at_ns, read in _read_of(marks, thread_cpu_of_mark)
        if process is not None
        for thread, ran_ns, waited_ns in read.thread_cpu
    ]
    return pl.DataFrame(rows, schema.THREAD_CPU, orient="row")


def process_cpu(marks: Marks) -> pl.DataFrame:
    """`schema.PROCESS_CPU` of all marks."""
    rows = [
        (at_ns, process, *reading)
        for process, at_ns, read in _read_of(marks, process_cpu_of_mark)
        if process is not None
        for reading in read.process_cpu
    ]
    return pl.DataFrame(rows, schema.PROCESS_CPU, orient="row")


def timed_thread_cpu(json: bytes | msgspec.Raw, base_ns: int, process: int | None) -> pl.DataFrame:
    """`schema.THREAD_CPU` of a process, from the JSON under our key, at times since `base_ns` of
    the system."""
    read = None if process is None else decoded_or_none(_TIMED_THREAD_CPU, json)
    rows = [
        (at_ns - base_ns, (process or 0) | thread, ran_ns, waited_ns)
        for at_ns, (thread, ran_ns, waited_ns) in ([] if read is None else read.thread_cpu)
    ]
    return pl.DataFrame(rows, schema.THREAD_CPU, orient="row")


def timed_process_cpu(json: bytes | msgspec.Raw, base_ns: int, process: int | None) -> pl.DataFrame:
    """`schema.PROCESS_CPU` of a process, likewise."""
    read = None if process is None else decoded_or_none(_TIMED_PROCESS_CPU, json)
    rows = [
        (at_ns - base_ns, process, *reading)
        for at_ns, reading in ([] if read is None else read.process_cpu)
    ]
    return pl.DataFrame(rows, schema.PROCESS_CPU, orient="row")
