"""Readings of GPUs, CPUs and loaders: from marks of ours, beside a Kineto trace, and clocks among
the counters of nsys and of torch.profiler."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind, Trace
from nsysflow.runtime.loaders import mark_of, marks_of
from tests.analysis.load.frames import assert_read, counters, event, loaded_and_packed, mark
from tests.analysis.load.kineto import traces
from tests.exports import Row, process, thread, write_export

FULL: Final = [1, 1980, 2619, 351_200, 52, 4]
LIMITS: Final = {
    "thermal": (0x44, 0x20),
    "power_brake": (0x8C,),
    "hardware": (0xC,),
    "power_cap": (0x15,),
    "sync_boost": (0x10,),
    "setting": (0x100, 0x3),
    "idle": (0x1,),
    "none": (0x200, 0),
    None: (None,),
}
BITS: Final = {bits: limit for limit, each in LIMITS.items() for bits in each}
MOVED: Final = [1, 100_003_412, 1_203_400, 11_203_400_000, None, 450_000_000_000]
OF_THREAD: Final = [1000, 5_000, 700]
OF_PROCESS: Final = [4, 900, 20, 3_600, 2_500, 10]
SETTINGS: Final = (3, 2, 8, 4, True, False, "spawn", 16)
ABOUT: Final = (2, 8, 4, True, False, "spawn", 16)
OTHER: Final = thread(2000, 2000)
DEVICES: Final[list[Row]] = [
    {"pid": pid, "cudaId": 1, "gpuId": gpu} for pid, gpu in ((1000, 5), (2000, 6))
]


def told(clock_ns: int, **more: Any) -> str:
    """A mark about a loader, as the runtime writes it."""
    settings = more.get("loader", SETTINGS)
    (about,) = marks_of(settings, more.get("batches", []), more.get("waits", []))
    return mark_of(clock_ns, about)


MARKED: Final[dict[str, tuple[list[Row], dict[str, list[tuple[Any, ...]]]]]] = {
    "states of the GPUs of each process": (
        [
            event(mark(gpu_states=[FULL, [0, None, None, 350_499, None, None]]), start=5),
            event(mark(gpu_states=[FULL]), OTHER, start=7),
        ],
        {
            "gpu_states": [
                (5, 0, None, None, 350, None, None),
                (5, 5, 1980, 2619, 351, 52, "power_cap"),
                (7, 6, 1980, 2619, 351, 52, "power_cap"),
            ]
        },
    ),
    "traffic of the GPUs of each process": (
        [
            event(mark(gpu_traffic=[MOVED, [0, 1, None, None, 0, None]]), start=5),
            event(mark(gpu_traffic=[MOVED]), OTHER, start=7),
        ],
        {"gpu_traffic": [(5, 0, 1, None, None, 0, None), (5, 5, *MOVED[1:]), (7, 6, *MOVED[1:])]},
    ),
    "the limit is the first whose bit is set": (
        [event(mark(gpu_states=[[0, 1, 1, 1, 1, bits]]), start=at) for at, bits in enumerate(BITS)],
        {"gpu_states": [(at, 0, 1, 1, 0, 1, limit) for at, limit in enumerate(BITS.values())]},
    ),
    "readings of threads and processes": (
        [
            event(mark(thread_cpu=[OF_THREAD]), start=5),
            event(mark(process_cpu=[OF_PROCESS]), start=6),
            event(mark(thread_cpu=[[2001, 0, 1]]), OTHER, start=7),
            event(mark(process_cpu=[[1, 0, 0, None, None, None]]), OTHER, start=8),
        ],
        {
            "thread_cpu": [(5, thread(), 5_000, 700), (7, thread(2001, 2000), 0, 1)],
            "process_cpu": [
                (6, process(), *OF_PROCESS),
                (8, process(2000), 1, 0, 0, None, None, None),
            ],
        },
    ),
    # on the report's clock, by the mark that was recorded soonest after its clock was read
    "times of loaders": (
        [
            event(told(100, batches=[(1, 10, 20, 30)]), start=1_005),
            event(told(200, waits=[(40, 50)]), start=1_102),
            event(told(3, loader=(0, 0, None, None, False, False, "", 1), waits=[(1, 2)]), start=7),
            event(told(5, waits=[(1, 2)]), OTHER, start=9),
        ],
        {
            "loader_times": [
                (process(), 3, 1, 14, 24, 34, *ABOUT),
                (process(), 3, None, 44, None, 54, *ABOUT),
                (process(), 0, None, 5, None, 6, 0, None, None, False, False, None, 1),
                (process(2000), 3, None, 5, None, 6, *ABOUT),
            ]
        },
    ),
}


def export(folder: Path, *marks: Row, **tables: list[Row]) -> Path:
    path, one = folder / "r.sqlite", [dict[str, Any]()]
    return write_export(
        path, kernels=one, calls=one, nvtx=marks, cuda_devices=DEVICES, tables=tables
    )


@pytest.mark.parametrize("what", MARKED)
def test_marks_hold_what_was_read(what: str, tmp_path: Path) -> None:
    marks, expected = MARKED[what]
    path = export(tmp_path, *marks)
    assert_read(path, **expected)
    assert load(path).ranges.is_empty()


LOADER: Final = {"clock_ns": 95, "loader": SETTINGS, "batches": [], "waits": [[95, 96]]}
USABLE: Final = {
    "gpu_states": FULL,
    "gpu_traffic": MOVED,
    "thread_cpu": OF_THREAD,
    "process_cpu": OF_PROCESS,
}
ODD: Final[dict[str, list[Any]]] = {
    "gpu_states": [
        *([-1, 1, 1, 1, 1, 1], [0, 1 << 16, 1, 1, 1, 1], [0, 1, 1, 1 << 40, 1, 1], [0, 1]),
        *([0, "1980", 1, 1, 1, 1], [0, 1.5, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1 << 70], {"a": 1}, None),
    ],
    "gpu_traffic": [
        *([-1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, -1, 1, 1, 1, 1], [0, 1, -1, 1, 1, 1]),
        *([0, 1, 1, 1 << 50, 1, 1], [0, 1, 1, 1.5, 1, 1], [0, 1], [0, None, 1, 1, 1, 1], None),
    ],
    "thread_cpu": [
        *([-1, 1, 1], [1 << 24, 1, 1], [1, -1, 1], [1, 1, 1 << 62], [1, 1], [1, 1, 1, 1]),
        *([1, 1.5, 1], [1, "1", 1], [1, None, 1], {"a": 1}, None),
    ],
    "process_cpu": [
        *([-1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, None, 1, 1, 1, 1], [1, 1, 1, 1, 1 << 31, 1]),
        *([1, 1, 1 << 70, 1, 1, 1], [1, 1, 1, 1, 1, 0.5], "busy", None),
    ],
    "loader_times": [
        *({"batches": [[0, 1, 2]]}, {"waits": [[-1, 2]]}, {"waits": [[1, 1 << 62]]}),
        *({"loader": [0, 1]}, {"loader": [-1, *SETTINGS[1:]]}, {"batches": None}),
    ],
}


def with_odd(frame: str, *odd: Any) -> dict[str, Any]:
    """What a mark holds: something usable, and these."""
    if frame == "loader_times":
        return {**LOADER, **dict(*odd)}
    return {frame: [USABLE[frame], *odd]}


@pytest.mark.parametrize("frame", ODD)
def test_marks_with_impossible_readings_are_left_out(frame: str, tmp_path: Path) -> None:
    marks = [event(mark(**with_odd(frame, odd)), start=at) for at, odd in enumerate(ODD[frame])]
    usable = event(mark(**with_odd(frame)), start=99)
    for trace in loaded_and_packed(export(tmp_path, *marks, usable)):
        begin = "start_ns" if frame == "loader_times" else "time_ns"
        assert getattr(trace, frame)[begin].to_list() == [99]


BASE_NS: Final = 1_790_857_026_000_000_000


def beside(folder: Path, *events: Any, base_ns: Any = BASE_NS, **told: Any) -> Trace:
    """A trace of torch.profiler of a step, with these events and this of ours beside them."""
    step = traces.event("user_annotation", "step"), traces.kernel(correlation=1)
    path = traces.write(folder, *step, *events, nsysflow=told, baseTimeNanoseconds=base_ns)
    return load(path)


@pytest.mark.parametrize("base_ns", [BASE_NS, 1 << 80, -1, "x", None])
def test_torch_profiler_has_them_beside_its_events(base_ns: Any, tmp_path: Path) -> None:
    about = {"clock_ns": 500, "loader": SETTINGS, "batches": [[1, 10, 20, 30]], "waits": [[7, 8]]}
    trace = beside(
        tmp_path,
        base_ns=base_ns,
        thread_cpu=[[BASE_NS + 2_000, OF_THREAD]],
        process_cpu=[[BASE_NS + 3_000, OF_PROCESS]],
        gpu_traffic=[[BASE_NS + 4_000, [0, *MOVED[1:]]], [BASE_NS + 5_000, MOVED]],
        loaders=[[BASE_NS + 2_000, about]],
    )
    at = 0 if base_ns == BASE_NS else BASE_NS
    pid = trace.ranges["process"][0]
    assert trace.thread_cpu.rows() == [(at + 2_000, pid | 1000, 5_000, 700)]
    assert trace.process_cpu.rows() == [(at + 3_000, pid, *OF_PROCESS)]
    assert trace.gpu_traffic.rows() == [(at + 4_000, 0, *MOVED[1:]), (at + 5_000, 1, *MOVED[1:])]
    assert trace.loader_times.drop("process").rows() == [
        (3, 1, at + 1_510, at + 1_520, at + 1_530, *ABOUT),
        (3, None, at + 1_507, None, at + 1_508, *ABOUT),
    ]


@pytest.mark.parametrize("frame", USABLE)
def test_impossible_readings_beside_its_events_leave_those_of_other_kinds(
    frame: str, tmp_path: Path
) -> None:
    other = "thread_cpu" if frame == "gpu_states" else "gpu_states"
    rows = {frame: ODD[frame], other: [USABLE[other]]}
    trace = beside(tmp_path, **{key: [[BASE_NS, row] for row in of] for key, of in rows.items()})
    assert getattr(trace, frame).is_empty()
    assert len(getattr(trace, other)) == 1


def test_what_is_long_is_told_in_pieces() -> None:
    batches, waits = [(0, at, at, at) for at in range(250)], [(at, at) for at in range(120)]
    pieces = [json.loads(text) for text in marks_of(SETTINGS, batches, waits)]
    assert [len(piece["batches"]) for piece in pieces] == [100, 100, 50]
    assert [len(piece["waits"]) for piece in pieces] == [100, 20, 0]
    assert not [*marks_of(SETTINGS, [], [])]


NAMES: Final[dict[str, list[float | None]]] = {
    "GPC Clock Frequency [MHz]": [1980.4, 1_980_608_795, 1_979_499_999.0, 1 << 36, (1 << 63) - 1],
    "gpc clock frequency": [1980.4, 1_980_608_795, 1_979_499_999.0, float("inf"), -5],
    "GPC Clock Frequency [Hz]": [1_980_400_000, 1981e6, 1979.4, None, -1e9],
}


@pytest.mark.parametrize("name", NAMES)
def test_clocks_among_counters_of_nsys_are_in_mhz(name: str, tmp_path: Path) -> None:
    kinds = {3: name, 4: "SYS Clock Frequency [MHz]", 5: "SMs Active"}
    values = [*((at, 3, value) for at, value in enumerate(NAMES[name])), (9, 4, 1.6e9), (9, 5, 80)]
    for trace in loaded_and_packed(export(tmp_path, **counters(kinds, *values))):
        assert trace.gpu_states.select("time_ns", "device", "sm_clock_mhz").rows() == [
            *((0, 1, 1980), (1, 1, 1981), (2, 1, 1979))
        ]
        assert trace.gpu_samples["time_ns"].to_list() == [9]


CYCLES: Final = "gpc__cycles_elapsed.avg.per_second"


def counter(name: str, value: Any, pid: Any = "GPU 0 Counters", at: int = 3) -> dict[str, Any]:
    """A value of a hardware counter as Kineto writes it."""
    of = {"ph": "C", "cat": "hardware_counters", "name": name, "pid": pid, "tid": 0}
    return {**of, "ts": at, "args": value if isinstance(value, dict) else {"": value}}


def test_torch_profiler_has_our_states_beside_its_events_and_clocks_among_them(
    tmp_path: Path,
) -> None:
    trace = beside(
        tmp_path,
        counter(CYCLES, 1.53e9),
        counter("sm__cycles_elapsed.max.per_second", 1.98e9, pid=1, at=4),
        counter("dram__cycles_elapsed.avg.per_second", 2.619e9, at=5),
        gpu_states=[[BASE_NS + 2_000, [0, *FULL[1:]]]],
    )
    assert trace.gpu_states.sort("time_ns").rows() == [
        (2_000, 0, 1980, 2619, 351, 52, "power_cap"),
        (3_000, 0, 1530, None, None, None, None),
        (4_000, 1, 1980, None, None, None, None),
        (5_000, 0, None, 2619, None, None, None),
    ]
    assert not any(note.kind is NoteKind.OTHER_COUNTERS for note in trace.notes)
    assert nsysflow.analyze(trace).clocks["sm_clock_mhz"].to_list() == [1980]


@pytest.mark.parametrize(
    "odd",
    [
        *(counter(CYCLES, value) for value in ({"a": 1e9, "b": 1e9}, {}, "fast", -1, 1e30)),
        counter(CYCLES, 1e9, pid="GPU x Counters"),
        counter("gpc__cycles_elapsed.sum", 1e9),
        counter("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 80),
    ],
)
def test_other_counters_of_torch_profiler_are_no_clocks(
    odd: dict[str, Any], tmp_path: Path
) -> None:
    trace = beside(tmp_path, odd)
    assert trace.gpu_states.is_empty()
    noted = [note.text for note in trace.notes if note.kind is NoteKind.OTHER_COUNTERS]
    assert bool(noted) == ("per_second" not in odd["name"])
