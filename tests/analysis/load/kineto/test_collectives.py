"""Collectives that torch.profiler records: operation, size and group."""

from pathlib import Path
from typing import Any, Final

import pytest

import nsysflow
from nsysflow.analysis.load import load
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from tests.agreement import assert_agrees
from tests.analysis.load.kineto.traces import event, kernel, write
from tests.oracle.model import from_trace
from tests.oracle.report import Report

GROUP: Final = {"Group size": 4, "Process Group Name": "3", "Process Group Ranks": "[0, 1, 2, 3]"}


def collective(name: str, *, ts: Any = 0, **args: Any) -> dict[str, Any]:
    moved = {"In msg nelems": 8, "Out msg nelems": 32, "dtype": "BFloat16", **GROUP}
    given = {"Collective name": name, **moved, **args}
    return event("cpu_op", "record_param_comms", ts, 9, args=given)


@pytest.mark.parametrize(
    ("name", "operation", "size"),
    [
        ("allreduce", "ncclAllReduce", 16),
        ("_allgather_base", "ncclAllGather", 16),
        ("allgather_into_tensor_coalesced", "ncclAllGather", 16),
        ("_reduce_scatter_base", "ncclReduceScatter", 64),
        ("all_to_allv", "ncclAlltoAll", 4),
        ("_broadcast_oop", "ncclBroadcast", 16),
        ("_reduce_oop", "ncclReduce", 16),
        ("recv 0<-1", "ncclRecv", 64),
    ],
)
def test_an_operation_has_nccls_name_and_size(
    tmp_path: Path, name: str, operation: str, size: int
) -> None:
    trace = load(write(tmp_path, collective(name)))
    assert trace.ranges.select("domain", "name", "end_ns").rows() == [("NCCL", operation, 9_000)]
    assert trace.messages["bytes"].to_list() == [size]
    assert trace.messages["communicator"].is_null().item() == (operation == "ncclRecv")


def test_what_a_trace_does_not_say_is_null(tmp_path: Path) -> None:
    odd = (
        collective("allreduce", dtype="Odd"),
        collective("allreduce", **{"In msg nelems": "many"}),
        collective("all_to_all", **{"Group size": 0}),
        collective("wait"),
        event("cpu_op", "record_param_comms", args=[]),
    )
    trace = load(write(tmp_path, *odd))
    assert trace.messages.is_empty()
    assert len(trace.ranges) == 3
    alone = load(write(tmp_path, collective("allreduce", **{"Process Group Ranks": "[]"})))
    assert alone.messages["communicator"].to_list() == [None]


def test_ranks_of_a_group_state_the_same_communicator(tmp_path: Path) -> None:
    other = {"Process Group Ranks": "[4, 5, 6, 7]"}
    rows = (collective("allreduce"), collective("barrier", ts=20), collective("reduce", **other))
    first, second, third = load(write(tmp_path, *rows)).messages["communicator"]
    assert first == second != third


def test_a_kernel_has_the_collective_of_its_launch(tmp_path: Path) -> None:
    launched = {"grid": [1, 1, 1], "block": [32, 1, 1], "registers per thread": 8}
    trace = load(
        write(
            tmp_path,
            collective("allreduce"),
            event("cuda_runtime", "cudaLaunchKernel", 2, 1, args={"correlation": 1}),
            kernel(correlation=1, **{"shared memory": 0}, **launched)
            | {"name": "ncclDevKernel_Generic(int)", "ts": 5, "dur": 4},
        )
    )
    analysis = nsysflow.analyze(trace)
    (row,) = analysis.comm.to_dicts()
    assert (row["operation"], row["bytes"]) == ("ncclAllReduce", 16)
    assert_agrees(analysis, Report(from_trace(trace)))


def test_ranks_have_the_bandwidth_of_their_group(tmp_path: Path) -> None:
    """100 all-reduces of 1 MB by four ranks: 10 us from the last one's arrival."""
    digests = []
    for rank in range(4):
        rows: list[dict[str, Any]] = []
        for turn in range(100):
            at = 1_000 * turn
            launched = {"correlation": turn + 1, "device": rank}
            rows += [
                collective("allreduce", ts=at, **{"In msg nelems": 500_000}),
                event("cuda_runtime", "cudaLaunchKernel", at + 2, 1, args=launched),
                kernel(**launched)
                | {"name": "ncclDevKernel_Generic(int)", "ts": at + 5 + rank, "dur": 13 - rank},
            ]
        (folder := tmp_path / str(rank)).mkdir()
        digests.append(digest(nsysflow.analyze(load(write(folder, *rows)))))
    (row,) = Ranks.of(digests).bandwidth.to_dicts()
    assert (row["operation"], row["ranks"], row["bytes"]) == ("ncclAllReduce", 4, 1_000_000)
    assert row["algorithm_bytes_per_s"] == pytest.approx(1e11)
    assert row["bus_bytes_per_s"] == pytest.approx(1.5e11)
