"""What reports say of memory: torch.profiler's instants, and what CUDA allocates in nsys's."""

from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis import schema
from nsysflow.analysis.load import load
from tests.analysis.load.frames import loaded_and_packed
from tests.analysis.load.kineto.traces import PID, event, write
from tests.exports import process, write_export
from tests.oracle.export import read_export
from tests.oracle.model import from_trace

ON_GPU: Final = {"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": 512}
TOTALS: Final = {"Total Allocated": 1536, "Total Reserved": 2048, "Ev Idx": 7}


def instant(ts: object, **args: object) -> dict[str, Any]:
    """An instant at which memory of the main thread changed."""
    of = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PID}
    return {**of, "tid": PID, "ts": ts, "args": args}


def of_torch(folder: Path, *instants: object) -> pl.DataFrame:
    """The memory of a trace with these instants, and a call."""
    return load(write(folder, event("cuda_runtime", "cudaMalloc"), *instants)).memory


def test_torch_profilers_instants_are_changes_of_its_allocator(tmp_path: Path) -> None:
    memory = of_torch(
        tmp_path,
        instant(5.25, **ON_GPU, **TOTALS),
        instant(4, **ON_GPU | {"Device Type": 0, "Device Id": -1}),
        instant(2, **ON_GPU | {"Device Type": 6, "Device Id": "1", "Bytes": -512}),
        instant(3, **{name: value for name, value in ON_GPU.items() if name != "Bytes"}),
        instant(3),
    )
    key = PID << 24
    assert memory.schema == schema.MEMORY
    assert memory.drop("stack").rows() == [
        (5250, 0, 0, key, key | PID, None, "allocator", 4096, 512, 1536, 2048),
        (2000, 2, 1, key, key | PID, None, "allocator", 4096, -512, None, None),
    ]


def test_what_torch_profiler_could_not_get_is_kept_with_what_was_asked(tmp_path: Path) -> None:
    failed = instant(5.25, **ON_GPU) | {"name": "[OutOfMemory]"}
    trace = load(write(tmp_path, event("cuda_runtime", "cudaMalloc"), failed))
    key = PID << 24
    assert trace.out_of_memory.rows() == [(5250, 0, key, key | PID, 512, None, None)]
    assert trace.memory.is_empty()


def test_an_instant_without_a_time_is_left_out_and_an_address_too_large_is_none(
    tmp_path: Path,
) -> None:
    odd = instant("soon", **ON_GPU), instant(1, **ON_GPU | {"Addr": 1 << 70})
    memory = of_torch(tmp_path, *odd)
    assert memory.select("time_ns", "address").rows() == [(1000, None)]


def _row(start: int, bytes_: int, operation: int, **more: object) -> dict[str, Any]:
    of = {"start": start, "globalPid": process(), "deviceId": 0, "contextId": 1, "address": start}
    kind = {"bytes": bytes_, "memKind": 2, "memoryOperationType": operation, "correlationId": 3}
    pool = ("localMemoryPoolAddress", "localMemoryPoolSize", "localMemoryPoolUtilizedSize")
    return {**of, **kind, **dict.fromkeys(pool), "pc": 0, "name": None, **more}


def _pool(start: int, bytes_: int, operation: int, size: int, used: int) -> dict[str, Any]:
    sizes = {"localMemoryPoolSize": size, "localMemoryPoolUtilizedSize": used}
    return _row(start, bytes_, operation, localMemoryPoolAddress=77, **sizes)


PLAIN: Final = [
    _row(30, 40, 1),  # freed, of what was there before
    _row(10, 25, 0),
    _row(20, 100, 0, memKind=1),  # pinned memory of the host
    _row(40, 7, 0, deviceId=1, memKind=5),
    _row(50, 9, 5),  # nothing that is known
    _row(60, 10, 1, correlationId=0),
]
POOLED: Final = [_row(1, 50, 0), _pool(5, 30, 0, 64, 30), _pool(7, 10, 1, 64, 20)]


LEVELS: Final = ("time_ns", "device", "bytes", "allocated_bytes", "reserved_bytes", "correlation")


@pytest.mark.parametrize(
    ("rows", "levels"),
    [
        # reserved, and never below zero
        (PLAIN, [
            (10, 0, 25, None, 50, 3), (30, 0, -40, None, 10, 3), (40, 1, 7, None, 7, 3),
            (60, 0, -10, None, 0, None),
        ]),
        # a pool is reserved as a whole, and allocated as far as it is used
        (POOLED, [(1, 0, 50, None, 50, 3), (5, 0, 30, 30, 114, 3), (7, 0, -10, 20, 114, 3)]),
        ([_row(5, 3, 1)], [(5, 0, -3, None, 0, 3)]),
    ],
)  # fmt: skip
def test_what_cuda_allocates_is_reserved(
    tmp_path: Path, rows: list[dict[str, Any]], levels: list[tuple[Any, ...]]
) -> None:
    tables = {"CUDA_GPU_MEMORY_USAGE_EVENTS": rows}
    path = write_export(tmp_path / "r.sqlite", kernels=[{}], tables=tables)
    for trace in loaded_and_packed(path):
        assert trace.memory.select(LEVELS).rows() == levels
        assert all("unknown columns" not in str(note) for note in trace.notes)
        assert {*from_trace(trace).memory} == {*read_export(path).memory}
