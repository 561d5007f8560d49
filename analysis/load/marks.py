"""JSON that ranges carry: the marks of captured windows (`nsysflow.steps`), of ranges in graphs, of
readings of GPUs and CPUs, and times of loaders.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.trace import Note, NoteKind
from nsysflow.base.peaks import UNITS
from nsysflow.runtime.protocol import AUTO_DOMAIN, KEY

NCCL: Final = "NCCL"
"""The NVTX domain of its ranges."""

PREFIX: Final = f"{AUTO_DOMAIN}:"


def with_auto_domain(ranges: pl.DataFrame) -> pl.DataFrame:
    """`ranges` (`schema.RANGES`) with `nsysflow.auto:forward` as `forward` in its domain."""
    carries = pl.col("name").str.starts_with(PREFIX)
    return ranges.with_columns(
        pl.when(carries).then(pl.lit(AUTO_DOMAIN)).otherwise("domain").alias("domain"),
        pl.col("name").str.strip_prefix(PREFIX),
    )


def on_known_threads(ranges: pl.DataFrame) -> tuple[pl.DataFrame, list[Note]]:
    """`ranges` without those of an unknown thread, and what to say of these."""
    threadless = ranges["thread"].null_count()
    if not threadless:
        return ranges, []
    text = f"{threadless} ranges were left out: their thread is unknown"
    return ranges.drop_nulls("thread"), [Note(NoteKind.UNUSABLE_ROWS, text)]


T = TypeVar("T")


def decoded_or_none(decoder: msgspec.json.Decoder[T], text: str | bytes | msgspec.Raw) -> T | None:
    """`text`, decoded; None if it is not JSON of that type."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_Window = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}(:[0-9]{1,9}){2}\Z")]
_StepNs = Annotated[int, msgspec.Meta(gt=0, le=(1 << 63) - 1)]
_Count = Annotated[int, msgspec.Meta(gt=0, lt=1 << 56)]
"""FLOPs of a phase: sums of 128 of them fit 64 bits, and an H200 needs 70 s for so many."""


class Flops(msgspec.Struct):
    """The FLOPs of a step by phase, in arithmetic of type `unit`."""

    unit: str
    phases: Annotated[dict[str, _Count], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(self.unit)


class Capture(msgspec.Struct, omit_defaults=True):
    """The captured window of a process.

    Attributes:
        capture: the captured steps, as in `--capture`.
        unprofiled_step_ns: the time of a step before the window.
        flops: the FLOPs of a step.
    """

    capture: str
    unprofiled_step_ns: int | None = None
    flops: Flops | None = None


class _Written(msgspec.Struct):
    """A `Capture` in JSON. Its parts are decoded one by one, so that a bad one affects no other."""

    capture: _Window
    unprofiled_step_ns: msgspec.Raw = msgspec.Raw()
    flops: msgspec.Raw = msgspec.Raw()


_TimeNs = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_ThreadId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 24)]


class GraphRanges(msgspec.Struct):
    """Ranges that were open while CUDA graphs were captured, before the window.

    Attributes:
        clock_ns: the clock of their times when the mark was made.
        graph_ranges: name, domain, start, end and thread id of each.
    """

    clock_ns: _TimeNs
    graph_ranges: list[tuple[str, str | None, _TimeNs, _TimeNs, _ThreadId]]


_Mhz = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
_Milliwatts = Annotated[int, msgspec.Meta(ge=0, lt=1 << 27)]
_Celsius = Annotated[int, msgspec.Meta(ge=0, lt=1 << 10)]
_Reasons = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Device = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]

GpuState = tuple[
    _Device, _Mhz | None, _Mhz | None, _Milliwatts | None, _Celsius | None, _Reasons | None
]
"""Of a GPU its number in CUDA, SM clock, memory clock, power, temperature, and NVML's bits of what
limits its clock."""


class GpuStates(msgspec.Struct):
    """The states of a process's GPUs at an instant."""

    gpu_states: list[GpuState]


class TimedGpuStates(msgspec.Struct):
    """The states of a process's GPUs, each with the system's time."""

    gpu_states: list[tuple[_TimeNs, GpuState]]


_Rate = Annotated[int, msgspec.Meta(ge=0, lt=1 << 50)]
_Past = Annotated[int, msgspec.Meta(gt=0, lt=1 << 50)]

GpuTraffic = tuple[_Device, _Past, _Rate | None, _Rate | None, _Rate | None, _Rate | None]
"""Of a GPU its number in CUDA, the ns since the reading before, and what `schema.TRAFFIC` has."""


class GpuTraffics(msgspec.Struct):
    """What a process's GPUs send and receive."""

    gpu_traffic: list[GpuTraffic]


class TimedGpuTraffics(msgspec.Struct):
    """The same, each with the system's time."""

    gpu_traffic: list[tuple[_TimeNs, GpuTraffic]]


_Ns = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]

ThreadReading = tuple[_ThreadId, _Ns, _Ns]
"""Of a thread its id, how long it ran, and how long it waited for a CPU."""

ProcessReading = tuple[_Number, _Ns, _Ns, _Ns | None, _Number | None, _Ns | None]
"""Of a process what `schema.PROCESS_CPU` has after its id."""


class ThreadCpu(msgspec.Struct):
    """Readings of threads at an instant."""

    thread_cpu: list[ThreadReading]


class ProcessCpu(msgspec.Struct):
    """Readings of a process at an instant."""

    process_cpu: list[ProcessReading]


class TimedThreadCpu(msgspec.Struct):
    """Readings of threads, each with the system's time."""

    thread_cpu: list[tuple[_TimeNs, ThreadReading]]


class TimedProcessCpu(msgspec.Struct):
    """Readings of a process, each with the system's time."""

    process_cpu: list[tuple[_TimeNs, ProcessReading]]


_Worker = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]

LoaderSettings = tuple[_Number, _Number, _Number | None, _Number | None, bool, bool, str, _Number]
"""Of a loader its number, workers, batch size, prefetch factor, whether it pins memory, whether its
workers persist, how they start, and the cores that its process may use."""


class LoaderTimes(msgspec.Struct):
    """What a loader did.

    Attributes:
        clock_ns: the clock of its times when the mark was made.
        loader: its settings.
        batches: of each the worker, and when it was asked for, fetched and sent.
        waits: when the loop asked for each batch, and when it had it.
    """

    clock_ns: _TimeNs
    loader: LoaderSettings
    batches: list[tuple[_Worker, _TimeNs, _TimeNs, _TimeNs]]
    waits: list[tuple[_TimeNs, _TimeNs]]


class TimedLoaders(msgspec.Struct):
    """What loaders did, each with the system's time at `clock_ns`."""

    loaders: list[tuple[_TimeNs, LoaderTimes]]


class UnixTime(msgspec.Struct):
    """The time of the system when the mark was made."""

    unix_ns: _TimeNs


class _Mark(msgspec.Struct):
    ours: msgspec.Raw = msgspec.field(name=KEY)


_MARK: Final = msgspec.json.Decoder(_Mark)
_GRAPH_RANGES: Final = msgspec.json.Decoder(GraphRanges)
_GPU_STATES: Final = msgspec.json.Decoder(GpuStates)
_GPU_TRAFFIC: Final = msgspec.json.Decoder(GpuTraffics)
_THREAD_CPU: Final = msgspec.json.Decoder(ThreadCpu)
_PROCESS_CPU: Final = msgspec.json.Decoder(ProcessCpu)
_UNIX_TIME: Final = msgspec.json.Decoder(UnixTime)
_LOADER_TIMES: Final = msgspec.json.Decoder(LoaderTimes)
_TIMED_LOADERS: Final = msgspec.json.Decoder(TimedLoaders)
_WRITTEN: Final = msgspec.json.Decoder(_Written)
_STEP_NS: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(_StepNs)
_FLOPS: Final = msgspec.json.Decoder(Flops)


def capture_in(json: bytes | msgspec.Raw) -> Capture | None:
    """A `Capture` from the JSON under our key; None if it is not one."""
    written = decoded_or_none(_WRITTEN, json)
    if written is None:
        return None
    return Capture(
        capture=written.capture,
        unprofiled_step_ns=decoded_or_none(_STEP_NS, written.unprofiled_step_ns),
        flops=decoded_or_none(_FLOPS, written.flops),
    )


def capture_of_mark(text: str) -> Capture | None:
    """The `Capture` in the text of a mark; None if the mark is not ours."""
    mark = decoded_or_none(_MARK, text)
    return None if mark is None else capture_in(mark.ours)


def graph_ranges_of_mark(text: str) -> GraphRanges | None:
    """The `GraphRanges` in the text of a mark; None if it has none."""
    return of_mark(_GRAPH_RANGES, text)


def gpu_states_of_mark(text: str) -> GpuStates | None:
    """The `GpuStates` in the text of a mark; None if it has none."""
    return of_mark(_GPU_STATES, text)


def gpu_traffic_of_mark(text: str) -> GpuTraffics | None:
    """The `GpuTraffics` in the text of a mark; None if it has none."""
    return of_mark(_GPU_TRAFFIC, text)


def thread_cpu_of_mark(text: str) -> ThreadCpu | None:
    """The `ThreadCpu` in the text of a mark; None if it has none."""
    return of_mark(_THREAD_CPU, text)


def process_cpu_of_mark(text: str) -> ProcessCpu | None:
    """The `ProcessCpu` in the text of a mark; None if it has none."""
    return of_mark(_PROCESS_CPU, text)


def unix_time_of_mark(text: str) -> UnixTime | None:
    """The `UnixTime` in the text of a mark; None if it has none."""
    return of_mark(_UNIX_TIME, text)


def of_mark(decoder: msgspec.json.Decoder[T], text: str) -> T | None:
    """What the text of a mark has under our key, decoded; None if it is not that."""
    mark = decoded_or_none(_MARK, text)
    return None if mark is None else decoded_or_none(decoder, mark.ours)


def loader_times_of_mark(text: str) -> LoaderTimes | None:
    """The `LoaderTimes` in the text of a mark; None if it has none."""
    return of_mark(_LOADER_TIMES, text)


def first_of_each(marks: Iterable[tuple[int | None, str]]) -> dict[int | None, Capture]:
    """The `Capture` of each process, from its first mark of ours; rows are (process, text)."""
    captures: dict[int | None, Capture] = {}
    for process, text in marks:
        capture = capture_of_mark(text)
        if capture is not None:
            captures.setdefault(process, capture)
    return captures


def capture_rows(captures: Mapping[int | None, Capture]) -> pl.DataFrame:
    """`schema.CAPTURES` of these windows."""
    rows = [
        (process, capture.capture, capture.unprofiled_step_ns)
        for process, capture in captures.items()
    ]
    return pl.DataFrame(rows, schema=schema.CAPTURES, orient="row")


def flops_rows(captures: Mapping[int | None, Capture]) -> pl.DataFrame:
    """`schema.FLOPS` of these windows."""
    rows = [
        (process, phase, count, capture.flops.unit)
        for process, capture in captures.items()
        if capture.flops is not None
        for phase, count in capture.flops.phases.items()
    ]
    return pl.DataFrame(rows, schema=schema.FLOPS, orient="row")


def graph_range_rows(marks: Iterable[tuple[int | None, int, str]]) -> pl.DataFrame:
    """The `GraphRanges` of all marks as `schema.RANGES`, on the report's clock.

    Args:
        marks: process, time and text of each. A mark is recorded a bit later than its clock was
            read, so the smallest difference in a process tells how far the clocks are apart.
    """
    read = [
        (process, at_ns, mark)
        for process, at_ns, text in marks
        if process is not None and (mark := graph_ranges_of_mark(text)) is not None
    ]
    apart_ns = _apart_ns((process, at_ns - mark.clock_ns) for process, at_ns, mark in read)
    listed = [(process, *one) for process, _, mark in read for one in mark.graph_ranges]
    rows = [
        (begun + apart_ns[process], ended + apart_ns[process], process, process | tid, domain, name)
        for process, name, domain, begun, ended, tid in listed
    ]
    columns = ["start_ns", "end_ns", "process", "thread", "domain", "name"]
    ranges = pl.DataFrame(rows, {name: schema.RANGES[name] for name in columns}, orient="row")
    kind = pl.lit("push_pop", schema.RANGE_KIND).alias("kind")
    return ranges.with_columns(kind).with_row_index("row").select(schema.RANGES.names())


def began_ns(marks: Iterable[tuple[int | None, int, str]]) -> dict[int, int]:
    """By process, when the report's clock was 0 by the time of the system: by all marks (process,
    time and text of each) that tell it."""
    ahead = (
        (process, at_ns - read.unix_ns)
        for process, at_ns, text in marks
        if process is not None and (read := unix_time_of_mark(text)) is not None
    )
    return {process: -apart_ns for process, apart_ns in _apart_ns(ahead).items()}


def _apart_ns(ahead: Iterable[tuple[int, int]]) -> dict[int, int]:
    """By process, how far its clock is behind the report's: the least that a mark says."""
    apart_ns: dict[int, int] = {}
    for process, ahead_ns in ahead:
        apart_ns[process] = min(ahead_ns, apart_ns.get(process, ahead_ns))
    return apart_ns


def loader_times(marks: Iterable[tuple[int | None, int, str]]) -> pl.DataFrame:
    """`schema.LOADER_TIMES` of all marks (process, time, text of each), on the report's clock."""
    return _loader_rows(
        [
            (process, at_ns, read)
            for process, at_ns, text in marks
            if process is not None and (read := loader_times_of_mark(text)) is not None
        ]
    )


def timed_loaders(json: bytes | msgspec.Raw, base_ns: int, process: int | None) -> pl.DataFrame:
    """`schema.LOADER_TIMES` of a process from the JSON under our key, at times since `base_ns` of
    the system."""
    read = decoded_or_none(_TIMED_LOADERS, json)
    if read is None or process is None:
        return schema.LOADER_TIMES.to_frame()
    return _loader_rows([(process, at_ns - base_ns, times) for at_ns, times in read.loaders])


_START_METHODS: Final = frozenset(schema.START_METHOD.categories)


def _loader_rows(read: Sequence[tuple[int, int, LoaderTimes]]) -> pl.DataFrame:
    """`schema.LOADER_TIMES` of what marks say (process, time and content of each)."""
    apart_ns = _apart_ns((process, at_ns - times.clock_ns) for process, at_ns, times in read)
    rows: list[tuple[int | bool | str | None, ...]] = []
    for process, _, times in read:
        ahead_ns = apart_ns[process]
        number, *settings, starts, cores = times.loader
        about = *settings, starts if starts in _START_METHODS else None, cores
        key = process, number
        rows += (
            (*key, worker, got + ahead_ns, fetched + ahead_ns, sent + ahead_ns, *about)
            for worker, got, fetched, sent in times.batches
        )
        rows += (
            (*key, None, asked + ahead_ns, None, had + ahead_ns, *about)
            for asked, had in times.waits
        )
    return pl.DataFrame(rows, schema.LOADER_TIMES, orient="row")
