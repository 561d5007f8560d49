"""Sampled counters of phases and kernel classes."""

from dataclasses import replace
from typing import Any

import nsysflow
from tests.analyses import analysed, oracle_of
from tests.oracle.model import Call, GpuSample, Op, PlainTrace, Range, Shape, to_trace

PROCESS = 1 << 24
MAIN = PROCESS | 1
US = 1_000


def trace(*kernels: tuple[int, int, str], samples: list[GpuSample]) -> PlainTrace:
    """Kernels (start and end in us, short name) launched inside a range `step`."""
    ops, calls = [], []
    for number, (start_us, end_us, name) in enumerate(kernels, 1):
        ops.append(
            Op(
                *("kernel", start_us * US, end_us * US, 0, PROCESS, 7, number, None, name, name),
                Shape(),
            )
        )
        calls.append(Call(number, number + 1, PROCESS, MAIN, number, "cudaLaunchKernel"))
    ranges = (Range(0, 100, "push_pop", PROCESS, MAIN, None, "step", 0),)
    return PlainTrace(ops=tuple(ops), calls=tuple(calls), ranges=ranges, gpu_samples=tuple(samples))


def sample(at_us: int, active_pct: int, **counters: int) -> GpuSample:
    return GpuSample(at_us * US, 0, **{"sm_active_pct": active_pct, **counters})


def rows(of: PlainTrace) -> dict[str, dict[str, Any]]:
    """Rows of gpu_metrics by name."""
    found = nsysflow.analyze(to_trace(of)).gpu_metrics
    return {row["name"]: row for row in found.to_dicts()}


def test_a_half_idle_sample_has_twice_the_rate_in_its_busy_half() -> None:
    half = trace((0, 50, "gemm"), (100, 200, "gemm"), samples=[sample(0, 40), sample(100, 80)])
    assert rows(half)["step"]["sm_active_pct"] == 80.0
    assert rows(half)["step"]["busy_ns"] == 150 * US
    assert rows(half)["step"]["samples"] == 2


def test_no_rate_exceeds_100_pct() -> None:
    rounded_up = trace((0, 1, "gemm"), (100, 101, "gemm"), samples=[sample(0, 2), sample(100, 2)])
    assert rows(rounded_up)["step"]["sm_active_pct"] == 100.0


def test_each_class_has_the_samples_of_its_own_time() -> None:
    apart = trace(
        (0, 100, "gemm"), (100, 200, "add_kernel"), samples=[sample(0, 90), sample(100, 10)]
    )
    found = {row["sm_active_pct"] for name, row in rows(apart).items() if name != "step"}
    assert found == {90.0, 10.0}
    assert rows(apart)["step"]["sm_active_pct"] == 50.0


def test_the_bound_is_the_first_condition_that_holds() -> None:
    def bound(**counters: int) -> str:
        values = {"sm_issue_pct": 10, "dram_read_pct": 10, "dram_write_pct": 10} | counters
        samples = [sample(0, 90, **values), sample(100, 90, **values)]
        return str(
            rows(trace((0, 100, "gemm"), (100, 200, "gemm"), samples=samples))["step"]["bound"]
        )

    assert bound() == "latency"
    assert bound(dram_read_pct=50) == "memory"
    assert bound(tensor_active_pct=60, dram_read_pct=90) == "compute"
    assert bound(sm_issue_pct=60) == "compute"


def test_a_phase_with_pauses_is_bound_by_overhead_and_its_kernels_are_not() -> None:
    counters = {"sm_issue_pct": 10, "dram_read_pct": 10}
    pauses = trace(
        (0, 30, "gemm"),
        (100, 130, "gemm"),
        samples=[sample(0, 25, **counters), sample(100, 25, **counters)],
    )
    assert rows(pauses)["step"]["bound"] == "overhead"
    assert [row["bound"] for name, row in rows(pauses).items() if name != "step"] == ["latency"]


def test_a_phase_without_samples_is_null_and_keeps_its_row() -> None:
    later = trace((0, 10, "gemm"), samples=[sample(5_000, 90), sample(5_100, 90)])
    row = rows(later)["step"]
    assert (row["samples"], row["sm_active_pct"], row["bound"]) == (0, None, None)
    assert row["busy_ns"] == 10 * US


def test_a_counter_that_the_chip_lacks_is_null_and_bounds_nothing() -> None:
    only = trace((0, 100, "gemm"), (100, 200, "gemm"), samples=[sample(0, 90), sample(100, 90)])
    assert rows(only)["step"]["dram_read_pct"] is None
    assert rows(only)["step"]["bound"] is None


def test_without_samples_the_table_is_empty() -> None:
    assert rows(trace((0, 100, "gemm"), samples=[])) == {}
    assert analysed("h200-train").gpu_metrics.is_empty()


def test_idle_samples_around_the_work_change_nothing() -> None:
    whole = oracle_of("h200-gpu-metrics").trace
    idle = [replace(s, time_ns=s.time_ns + 10**9) for s in whole.gpu_samples]
    more = replace(whole, gpu_samples=(*whole.gpu_samples, *idle))
    assert rows(more) == rows(whole)


def test_a_matmul_fills_the_tensor_cores_and_the_optimizer_does_not() -> None:
    found = {row["name"]: row for row in analysed("h200-gpu-metrics").gpu_metrics.to_dicts()}
    assert found["matmul"]["tensor_active_pct"] > 60 > 5 > found["optimizer"]["tensor_active_pct"]
    assert found["matmul"]["bound"] == "compute"
    assert found["step"]["bound"] == "overhead"
