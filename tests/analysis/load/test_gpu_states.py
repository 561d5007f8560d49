"""Clocks, power and temperature, from marks of ours, counters of nsys and of torch.profiler."""

import json
from pathlib import Path
from typing import Any

import pytest

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.trace import NoteKind
from tests.analysis.load.frames import loaded_and_packed
from tests.analysis.load.kineto.traces import event, kernel, write
from tests.exports import process, thread, write_export
from tests.oracle.export import read_export
from tests.oracle.model import from_trace

FULL = [1, 1980, 2619, 351_200, 52, 4]
BITS = {
    0x44: "thermal",
    0x20: "thermal",
    0x8C: "power_brake",
    0xC: "hardware",
    0x15: "power_cap",
    0x10: "sync_boost",
    0x100: "setting",
    0x3: "setting",
    0x1: "idle",
    0x200: "none",
    0: "none",
    None: None,
}


def mark(at: int, text: str, tid: int | None = None) -> dict[str, Any]:
    """A mark as an NVTX event."""
    of = thread() if tid is None else tid
    return {"eventType": 34, "text": text, "globalTid": of, "start": at, "end": None}


def states(*rows: Any) -> str:
    return json.dumps({"nsysflow": {"gpu_states": rows}})


def test_marks_hold_the_states_of_the_gpus_of_their_process(tmp_path: Path) -> None:
    devices = [{"pid": 1000, "cudaId": 1, "gpuId": 5}, {"pid": 2000, "cudaId": 1, "gpuId": 6}]
    path = write_export(
        tmp_path / "r.sqlite",
        kernels=[{}],
        calls=[{}],
        nvtx=[
            mark(5, states(FULL, [0, None, None, 350_499, None, None])),
            mark(7, states(FULL), thread(2000, 2000)),
        ],
        tables={"TARGET_INFO_CUDA_DEVICE": devices},
    )
    assert process() >> 24 == 1000
    for trace in loaded_and_packed(path):
        assert trace.gpu_states.sort("time_ns", "device").rows() == [
            (5, 0, None, None, 350, None, None),
            (5, 5, 1980, 2619, 351, 52, "power_cap"),
            (7, 6, 1980, 2619, 351, 52, "power_cap"),
        ]
    found = from_trace(load(path)).gpu_states
    assert sorted(found, key=repr) == sorted(read_export(path).gpu_states, key=repr)


def test_the_limit_is_the_first_whose_bit_is_set(tmp_path: Path) -> None:
    rows = [mark(at, states([0, 1, 1, 1, 1, bits])) for at, bits in enumerate(BITS)]
    path = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=rows)
    assert load(path).gpu_states["limit"].to_list() == [*BITS.values()]
    assert [state.limit for state in read_export(path).gpu_states] == [*BITS.values()]


ODD: list[Any] = [
    *([-1, 1, 1, 1, 1, 1], [0, 1 << 16, 1, 1, 1, 1], [0, 1, 1, 1 << 40, 1, 1], [0, 1]),
    *([0, "1980", 1, 1, 1, 1], [0, 1.5, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1 << 70], {"a": 1}, None),
]


def test_marks_with_impossible_states_are_left_out(tmp_path: Path) -> None:
    rows = [mark(at, states(FULL, odd)) for at, odd in enumerate(ODD)] + [mark(99, states(FULL))]
    path = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], nvtx=rows)
    for trace in loaded_and_packed(path):
        assert trace.gpu_states["time_ns"].to_list() == [99]


NAMES: dict[str, list[float | None]] = {
    "GPC Clock Frequency [MHz]": [1980.4, 1_980_608_795, 1_979_499_999.0, 1 << 36, (1 << 63) - 1],
    "gpc clock frequency": [1980.4, 1_980_608_795, 1_979_499_999.0, float("inf"), -5],
    "GPC Clock Frequency [Hz]": [1_980_400_000, 1981e6, 1979.4, None, -1e9],
}


@pytest.mark.parametrize("name", NAMES)
def test_clocks_among_counters_of_nsys_are_in_mhz(name: str, tmp_path: Path) -> None:
    kinds = {3: name, 4: "SYS Clock Frequency [MHz]", 5: "SMs Active"}
    values = [(at, 3, value) for at, value in enumerate(NAMES[name])] + [(9, 4, 1.6e9), (9, 5, 80)]
    path = write_export(
        tmp_path / "r.sqlite",
        kernels=[{}],
        calls=[{}],
        tables={
            "TARGET_INFO_GPU_METRICS": [
                {"typeId": 257, "metricId": metric, "metricName": kind}
                for metric, kind in kinds.items()
            ],
            "GPU_METRICS": [
                {"typeId": 257, "timestamp": at, "metricId": metric, "value": value}
                for at, metric, value in values
            ],
        },
    )
    for trace in loaded_and_packed(path):
        assert trace.gpu_states.select("time_ns", "device", "sm_clock_mhz").rows() == [
            (0, 1, 1980),
            (1, 1, 1981),
            (2, 1, 1979),
        ]
        assert trace.gpu_samples["time_ns"].to_list() == [9]


BASE_NS = 1_790_857_026_000_000_000


def counter(name: str, value: Any, pid: Any = "GPU 0 Counters", at: int = 3) -> dict[str, Any]:
    """A value of a hardware counter as Kineto writes it."""
    of = {"ph": "C", "cat": "hardware_counters", "name": name, "pid": pid, "tid": 0}
    return {**of, "ts": at, "args": value if isinstance(value, dict) else {"": value}}


def test_torch_profiler_has_our_states_beside_its_events_and_clocks_among_them(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path,
        event("user_annotation", "step"),
        kernel(correlation=1),
        counter("gpc__cycles_elapsed.avg.per_second", 1.53e9),
        counter("sm__cycles_elapsed.max.per_second", 1.98e9, pid=1, at=4),
        counter("dram__cycles_elapsed.avg.per_second", 2.619e9, at=5),
        nsysflow={"gpu_states": [[BASE_NS + 2_000, [0, *FULL[1:]]]]},
        baseTimeNanoseconds=BASE_NS,
    )
    trace = load(path)
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
        counter("gpc__cycles_elapsed.avg.per_second", {"a": 1e9, "b": 1e9}),
        counter("gpc__cycles_elapsed.avg.per_second", {}),
        counter("gpc__cycles_elapsed.avg.per_second", "fast"),
        counter("gpc__cycles_elapsed.avg.per_second", -1),
        counter("gpc__cycles_elapsed.avg.per_second", 1e30),
        counter("gpc__cycles_elapsed.avg.per_second", 1e9, pid="GPU x Counters"),
        counter("gpc__cycles_elapsed.sum", 1e9),
        counter("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", 80),
    ],
)
def test_other_counters_of_torch_profiler_are_no_clocks(
    odd: dict[str, Any], tmp_path: Path
) -> None:
    trace = load(write(tmp_path, event("user_annotation", "step"), kernel(), odd))
    assert trace.gpu_states.is_empty()
    noted = [note.text for note in trace.notes if note.kind is NoteKind.OTHER_COUNTERS]
    assert bool(noted) == ("per_second" not in odd["name"])
