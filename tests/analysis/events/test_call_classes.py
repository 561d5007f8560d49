"""The class of a CUDA call."""

import polars as pl
import pytest

from nsysflow.analysis.events.call_classes import class_by_name
from tests.tiny import Row, copy, kernel, launch, timeline_of

MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cudaDeviceSynchronize", "sync"),
        ("cuStreamSynchronize", "sync"),
        ("cudaMemcpy", "blocking_copy"),
        ("cuMemcpyDtoH", "blocking_copy"),
        ("cudaMemcpyAsync", "launch"),
        ("cudaMemsetAsync", "launch"),
        ("cuLaunchKernelEx", "launch"),
        ("cudaGraphLaunch", "launch"),
        ("cudaLaunchHostFunc", "api"),
        ("cudaGraphAddMemcpyNode", "api"),
        ("cudaMallocHost", "alloc"),
        ("cuMemAddressReserve", "alloc"),
        ("cuLibraryLoadData", "module_load"),
        ("cuKernelGetFunction", "api"),
        ("cudaStreamSynchronize2", "api"),
    ],
)
def test_a_name_has_one_class(name: str, expected: str) -> None:
    frame = pl.DataFrame({"name": [name]})
    assert frame.select(class_by_name(pl.col("name"))).item() == expected


def classes(*rows: Row) -> list[str]:
    calls = timeline_of(*rows).events.calls
    return calls["class"].cast(pl.String).to_list()


@pytest.mark.parametrize(
    ("memory", "expected"), [("pageable", "blocking_copy"), ("pinned", "launch")]
)
def test_an_asynchronous_copy_of_pageable_memory_blocks(memory: str, expected: str) -> None:
    call = launch(0, 10, 1, name="cudaMemcpyAsync")
    assert classes(call, copy(20, 30, 1, "HtoD", memory, "device")) == [expected]


def test_the_first_launch_of_a_kernel_loads_its_code_if_it_takes_over_1_ms() -> None:
    rows: list[Row] = [launch(0, MS + 1, 1), kernel(2 * MS, 2 * MS + 9, 1)]
    again: list[Row] = [launch(3 * MS, 5 * MS, 2), kernel(6 * MS, 6 * MS + 9, 2)]
    assert classes(*rows, *again) == ["module_load", "launch"]
    assert classes(launch(0, MS, 1), kernel(2 * MS, 2 * MS + 9, 1)) == ["launch"]


def test_a_graph_launch_is_not_the_first_launch_of_the_kernels_in_it() -> None:
    graph: list[Row] = [launch(0, 10, 1, name="cudaGraphLaunch"), kernel(20, 30, 1)]
    first: list[Row] = [launch(100, MS + 200, 2), kernel(2 * MS, 2 * MS + 9, 2)]
    assert classes(*graph, *first) == ["launch", "module_load"]
