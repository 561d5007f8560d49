"""What the link to the host leaves of copies, and copies of what could stay on the GPU."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.copies import KEEP_ON_GPU, blocking_copies
from tests import tiny
from tests.analysis.findings.subjects import US, Row, found
from tests.oracle.model import Device, to_trace

GRID_BYTES = 157_500_000
"""10 ms at 15.75 GB/s."""


def copied(at_us: int, us: int, number: int, way: str, moved: int) -> Iterator[Row]:
    """A blocking copy from or to pageable memory."""
    sides = ("device", "pageable") if way == "DtoH" else ("pageable", "device")
    start, end = at_us * US, (at_us + us) * US
    op = tiny.copy(start + 5 * US, end - 5 * US, number, way, *sides)
    assert op.copy
    yield replace(tiny.call(start, end, "cudaMemcpy"), correlation=number)
    yield replace(op, copy=replace(op.copy, bytes=moved))


def solver(down: int, steps: int = 8) -> Iterator[Row]:
    """Steps of 100 ms: a grid goes up in 40 ms, a kernel takes 2 ms, and `down` bytes come back."""
    for i in range(steps):
        at, number = 100_000 * i, 10 * i
        yield tiny.opened(at * US, (at + 100_000) * US - 1, "step")
        yield from copied(at + 10, 40_000, number + 1, "HtoD", GRID_BYTES)
        yield tiny.launch((at + 40_020) * US, (at + 40_025) * US, number + 2)
        yield tiny.kernel((at + 40_030) * US, (at + 42_030) * US, number + 2)
        yield from copied(at + 40_040, 42_000, number + 3, "DtoH", down)


def findings(gpu: str, down: int) -> list[Finding]:
    device = Device(device=0, name=gpu, uuid=None, sm_count=40, memory_bytes_per_s=None)
    trace = to_trace(replace(tiny.plain_of(*solver(down)), devices=(device,)))
    subject = JudgedReport(nsysflow.analyze(trace, replace(tiny.AS_RECORDED, skip=0)))
    return [*found(blocking_copies, subject)]


@pytest.mark.parametrize(
    ("gpu", "link_us"),
    [
        ("Tesla T4", 10_000),
        ("NVIDIA A100-SXM4-80GB", 5_000),
        ("NVIDIA H200", 2_500),
        ("NVIDIA GH200 480GB", 6_300),  # not known
    ],
)
def test_of_copies_is_left_what_the_link_takes_and_kernels_cannot_hide(
    gpu: str, link_us: int
) -> None:
    (up,) = (one for one in findings(gpu, GRID_BYTES // 2) if one.culprit == "memcpy HtoD")
    assert up.title.startswith("HtoD copy of pageable memory")
    left_us = link_us - 2_000
    assert up.size_ns - up.at_most_ns == left_us * US
    assert up.changes
    ((_, left),) = up.changes.scaled
    assert left == pytest.approx(left_us / 39_990)


def test_what_comes_back_in_each_step_can_stay_on_the_gpu() -> None:
    both = findings("Tesla T4", GRID_BYTES)
    assert [one.change for one in both] == [KEEP_ON_GPU] * 2
    assert all(one.title.startswith("the same sizes go to the GPU and back") for one in both)
    assert all(one.fits and one.changes and one.changes.scaled[0][1] == 0.0 for one in both)
    assert any("from pinned memory they take 10.0 ms" in text for text in both[0].evidence)
