"""Indices that the host keeps, and copies that are none."""

from dataclasses import replace
from typing import Any, Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.copies import blocking_copies
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import US, Row, asked, changes_of, launched, loop, valued_of
from tests.in_us import call, copy, launch, sample

INDEX: Final = "void at::native::index_elementwise_kernel<(int)128, (int)4>(T1)"
GATHER: Final = "void at::native::<unnamed>::vectorized_gather_kernel<(int)16, long>(char *, long)"
USES: Final = 6
BETWEEN: Final = 100
"""So many us from one use to the next: 40 of code, 5 of the copy's call, 15 of the wait for it."""


def using(
    *kernels: str, moved: tuple[int, ...] = (98_304,), line: bool = True, uses: int = USES
) -> JudgedReport:
    """Steps that copy so many bytes from pageable memory at one line again and again, each time
    with one of these kernels behind it."""
    rows: list[Row] = []
    for use in range(uses):
        at = 100 + BETWEEN * use
        ran = sample(at + 41, "epoch")
        rows += [
            launch(at + 40, at + 45, at + 40, name="cudaMemcpyAsync"),
            call(at + 46, at + 60, "cudaStreamSynchronize"),
            copy(
                at + 50,
                at + 55,
                at + 40,
                "HtoD",
                "pageable",
                "device",
                moved=moved[use % len(moved)],
            ),
            *launched(at + 70, 5, name=kernels[use % len(kernels)]),
        ]
        rows += [ran, replace(ran, time_ns=ran.time_ns + 6 * US)] if line else []
    end = 100 + BETWEEN * uses
    return loop([*rows, *launched(end, 5, name=names.ADD)], every=end + 100)


def test_an_index_on_the_host_is_sent_once() -> None:
    subject = using(INDEX, GATHER)
    one = asked(blocking_copies, subject)
    assert one.title.startswith("an index is copied from the host at each use")
    assert one.change[0].startswith("send the index once, before it indexes several tensors: ")
    assert one.source == "train.py:1 in epoch"
    assert one.sure is not None
    assert not one.sure.faster_host
    assert [phase for phase, _ in changes_of(one).faster_host] == ["step"]
    both = valued_of("pageable-copy", subject)
    assert both.high_ns > both.low_ns > 0


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"kernels": (names.ADD,)}, id="nothing is indexed"),
        pytest.param({"kernels": (GATHER,)}, id="rows of embeddings"),
        pytest.param({"moved": (98_304, 4_096)}, id="other sizes"),
        pytest.param({"uses": 3}, id="few"),
        pytest.param({"line": False}, id="no line"),
    ],
)
def test_other_copies_are_no_indices(other: dict[str, Any]) -> None:
    kernels = other.pop("kernels", (INDEX,))
    one = asked(blocking_copies, using(*kernels, **other))
    assert one.rule == "pageable-copy"
    assert not one.change[0].startswith("send the index once")
