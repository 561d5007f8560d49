"""What `data-loading` says where workers were recorded (spec §27.4)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.host_code import data_loading
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, found, launched
from tests.oracle.model import LoaderTime, to_trace

STEP_NS = 24 * MS
STEPS = 12


def rows(wait_ns: int, kernel_ns: int) -> Iterator[Row]:
    """Steps that wait for a batch and then launch a kernel, behind which the host sleeps."""
    for i in range(STEPS):
        start = i * STEP_NS
        yield tiny.opened(start, start + STEP_NS - 1, "step")
        yield tiny.opened(start + 10, start + wait_ns, "data")
        at_us = (wait_ns + 10 * US) // US
        yield from launched(start, 100 * i + 1, at=at_us, took=5, kernel_ns=kernel_ns)


def finding(
    *,
    wait_ms: int,
    batch_ms: float,
    workers: int,
    kernel_ms: int = 2,
    slow_ms: float = 0,
    **more: Any,
) -> tuple[Finding, ...]:
    """What is found where each worker takes so long for a batch, and each 12th one longer."""
    settings = {"workers": workers, "prefetch_factor": 2, "pin_memory": True, "cores": 32, **more}
    times = [
        LoaderTime(
            tiny.PROCESS, 0, None, i * STEP_NS + 10, None, i * STEP_NS + wait_ms * MS, **settings
        )
        for i in range(STEPS)
    ]
    for worker in range(workers):
        at = 0
        while at < STEPS * STEP_NS:
            slow = slow_ms and at // STEP_NS % 4 == worker
            took = round((slow_ms if slow else batch_ms) * MS)
            made = LoaderTime(tiny.PROCESS, 0, worker, at, at + took - 9, at + took, **settings)
            times.append(made)
            at += max(took, workers * STEP_NS)
    plain = tiny.plain_of(*rows(wait_ms * MS, kernel_ms * MS))
    trace = to_trace(replace(plain, loader_times=tuple(times)))
    return tuple(found(data_loading, JudgedReport(nsysflow.analyze(trace))))


@pytest.mark.parametrize(
    ("given", "change", "evidence"),
    [
        (  # 72 ms a batch, 3 workers; the rest of a step takes 9 ms
            {"wait_ms": 15, "batch_ms": 72, "workers": 3},
            "DataLoader(…, num_workers=8, persistent_workers=True, pin_memory=True)",
            "3 workers give 42 batches/s, the loop takes 111: 8 workers needed",
        ),
        (
            {"wait_ms": 15, "batch_ms": 72, "workers": 3, "kernel_ms": 12, "prefetch_factor": 4},
            "DataLoader(…, num_workers=6, persistent_workers=True, pin_memory=True,"
            " prefetch_factor=4)",
            "3 workers give 42 batches/s, the loop takes 83: 6 workers needed",
        ),
        (
            {"wait_ms": 15, "batch_ms": 72, "workers": 3, "cores": 4},
            "DataLoader(…, num_workers=4, persistent_workers=True, pin_memory=True)",
            "this process may use 4 cores, so more workers than that are no help",
        ),
        (
            {"wait_ms": 15, "batch_ms": 72, "workers": 3, "cores": 3},
            "make a batch cheaper",
            "this process may use 3 cores, so more workers than that are no help",
        ),
        (
            {"wait_ms": 18, "batch_ms": 0, "workers": 0},
            "DataLoader(…, num_workers=3, persistent_workers=True, pin_memory=True)",
            "a batch takes 18.0 ms in this process, the rest of a step 6.00 ms: 3 workers needed",
        ),
        (
            {"wait_ms": 15, "batch_ms": 5, "workers": 2},
            "send fewer, larger tensors",
            "its workers are busy 12 % of the time: more are no help",
        ),
        (
            {"wait_ms": 15, "batch_ms": 5, "workers": 2, "pin_memory": False},
            "DataLoader(…, pin_memory=True)",
            "its workers are busy 12 % of the time: more are no help",
        ),
        (
            {"wait_ms": 15, "batch_ms": 2, "workers": 2, "slow_ms": 40},
            "DataLoader(…, prefetch_factor=4): more batches ahead bridge a slow one",
            "5 % of the batches take 40.0 ms or longer, the median 2.00 ms",
        ),
    ],
)
def test_the_workers_that_a_loop_needs(given: dict[str, Any], change: str, evidence: str) -> None:
    (one,) = finding(**given)
    assert one.change[0].startswith(change)
    assert evidence in one.evidence
    assert one.table == "loader_workers"


def test_a_loop_that_never_waits_needs_no_workers() -> None:
    assert not finding(wait_ms=1, batch_ms=40, workers=2, kernel_ms=24)


def test_nothing_recorded_names_no_number() -> None:
    subject = JudgedReport(nsysflow.analyze(to_trace(tiny.plain_of(*rows(15 * MS, 2 * MS)))))
    (one,) = found(data_loading, subject)
    assert "4 or more" in one.change[0]
    assert one.table == "gap_summary"
