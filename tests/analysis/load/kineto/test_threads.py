"""Threads of a torch.profiler trace have keys as in an nsys report."""

from pathlib import Path

import polars as pl

from nsysflow.analysis.load import load
from tests.analysis.load.kineto.traces import PID, REAL, event, write


def test_autograd_threads_are_known_by_name_and_the_main_thread_by_its_id() -> None:
    threads = load(REAL).threads
    tids = threads.select(pid=pl.col("process") // 2**24, tid=pl.col("thread") & 0xFFFFFF)
    assert tids.rows() == [(813, 813), (813, 834)]
    assert threads["name"].to_list() == ["python3", "pt_autograd_0"]


def test_ids_too_large_for_an_os_thread_become_small_distinct_ones(tmp_path: Path) -> None:
    large = [140_737_000_000_001, 140_737_000_000_002, -5]
    events = [event("cuda_runtime", "cudaLaunchKernel", tid=tid) for tid in [PID, *large]]
    calls = load(write(tmp_path, *events)).calls
    assert calls["process"].unique().to_list() == [PID << 24]
    tids = [thread & 0xFFFFFF for thread in calls["thread"].to_list()]
    assert tids[0] == PID
    assert len(set(tids)) == 4
    assert [thread & ~0xFFFFFF for thread in calls["thread"].to_list()] == [PID << 24] * 4
