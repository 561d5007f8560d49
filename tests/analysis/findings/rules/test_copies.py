"""What the link to the host leaves of copies, what could stay on the GPU, and many small copies."""

from typing import Any

import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.plan import value
from nsysflow.analysis.findings.rules.copies import (
    COPIES_LEFT,
    KEEP_ON_GPU,
    LARGE_TO_THE_HOST,
    MANY_COPIES,
    SMALL_COPY_BYTES,
    blocking_copies,
    small_copies,
)
from nsysflow.analysis.findings.saving import Replays
from tests.analysis.findings.subjects import (
    US,
    Row,
    asked,
    changes_of,
    found,
    judged,
    launched,
    loop,
    one_gpu,
    repeated,
)
from tests.in_us import call, copy, launch, opened

GRID_BYTES = 157_500_000
"""10 ms at 15.75 GB/s."""

UP, DOWN = ("HtoD", "pageable", "device"), ("DtoH", "device", "pageable")


def copied(at: int, us: int, way: tuple[str, str, str], moved: int) -> list[Row]:
    """A copy that its call waits for."""
    return [
        launch(at, at + us, at, name="cudaMemcpy"),
        copy(at + 5, at + us - 5, at, *way, moved=moved),
    ]


def findings(gpu: str, down: int) -> list[Finding]:
    """Steps of 100 ms: a grid goes up in 40 ms, a kernel takes 2 ms, and `down` bytes come back."""
    step = (
        *(opened(0, 99_999, "step"), *copied(10, 40_000, UP, GRID_BYTES)),
        *(*launched(40_020, 2_000, queued=5), *copied(40_040, 42_000, DOWN, down)),
    )
    return found(blocking_copies, judged(*repeated(step, 100_000), devices=one_gpu(gpu, 40)))


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
    assert up.title.startswith("pageable HtoD copy ")
    left_us = link_us - 2_000
    assert up.size_ns - up.at_most_ns == left_us * US
    ((_, left),) = changes_of(up).scaled
    assert left == pytest.approx(left_us / 39_990)


def test_of_large_copies_to_the_host_fewer_bytes_are_the_first_advice() -> None:
    (down,) = (one for one in findings("H200", GRID_BYTES // 2) if one.culprit == "memcpy DtoH")
    assert down.change == LARGE_TO_THE_HOST


def test_what_comes_back_in_each_step_can_stay_on_the_gpu() -> None:
    both = findings("Tesla T4", GRID_BYTES)
    assert [one.change for one in both] == [KEEP_ON_GPU] * 2
    assert all(one.title.startswith("the same sizes go to the GPU and back") for one in both)
    assert all(one.fits and changes_of(one).scaled[0][1] == 0.0 for one in both)
    assert any("from pinned memory they take 10.0 ms" in text for text in both[0].evidence)


def copying(
    count: int = MANY_COPIES, *, bytes_each: int = 1_000, way: str = "HtoD", memory: str = "pinned"
) -> JudgedReport:
    """Steps of so many copies, each behind 15 us of Python and with a launch of 5 us, and of a
    kernel."""
    ends = (memory, "device") if way == "HtoD" else ("device", memory)
    rows: list[Row] = [*launched(110 + 20 * count, 100)]
    for at in range(100, 100 + 20 * count, 20):
        rows.append(launch(at, at + 5, at, name="cudaMemcpyAsync"))
        rows.append(copy(at + 7, at + 9, at, way, *ends, moved=bytes_each))
    return loop(rows, every=2_000)


def test_many_small_copies_are_named_with_what_one_would_save() -> None:
    subject = copying()
    one = asked(small_copies, subject)
    assert one.title == "32 small copies to the GPU a step in step"
    assert one.evidence[0] == "32.0 kB a step in all, 1.00 kB each"
    assert one.change[0].startswith("stack them on the CPU")
    # the first copy's code may be of the loop, and COPIES_LEFT copies stay
    assert one.size_ns == pytest.approx(
        (MANY_COPIES - 1) * 20 * US * (1 - COPIES_LEFT / MANY_COPIES), rel=0.01
    )
    assert one.method == "bound"
    assert 0.9 * one.size_ns < value(one, Replays(subject)).high_ns <= one.size_ns


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"count": MANY_COPIES - 1}, id="few"),
        pytest.param({"bytes_each": SMALL_COPY_BYTES}, id="large"),
        pytest.param({"way": "DtoH"}, id="to the host"),
        pytest.param({"memory": "pageable"}, id="the host waits for them"),
    ],
)
def test_nothing_is_said_of_other_copies(other: dict[str, Any]) -> None:
    assert not found(small_copies, copying(**other))


@pytest.mark.parametrize(("moved", "small"), [(4, True), (1_152, True), (65_536, False)])
def test_a_few_bytes_from_pageable_memory_can_be_made_on_the_gpu(moved: int, small: bool) -> None:
    """As where each step makes a constant of a list."""
    rows = [
        *launched(10, 200),
        launch(20, 25, 20, name="cudaMemcpyAsync"),
        call(26, 250, "cudaStreamSynchronize"),
    ]
    rows.append(copy(240, 241, 20, "HtoD", "pageable", "device", moved=moved))
    one = asked(blocking_copies, loop([*rows, *launched(290, 20)], every=400))
    assert one.rule == "pageable-copy"
    assert one.change[0].startswith("create the values on the GPU") is small
