"""What bounds phases, steps and views."""

from dataclasses import replace
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.selection.bound import PARTS, bound_of_view, bounds
from tests.agreement import assert_pictures_agree
from tests.analyses import analysed, few_reports, loaded, sums
from tests.analysis.events.test_waits import NCCL, with_long_communication
from tests.oracle.model import Overhead, PlainTrace, side_by_side, to_trace
from tests.tiny import (
    MAIN,
    PROCESS,
    Row,
    analysis_of,
    call,
    copy,
    kernel,
    launch,
    made,
    on_stream,
    opened,
    plain_of,
    told,
)

US = 1_000


def test_a_steady_step_of_gpt2_is_bound_by_compute_and_loses_most_to_the_host() -> None:
    found = nsysflow.analyze(loaded("h200-gpt2-eager"), Options(steps=(StepPart(2, 3),))).bound
    assert (found.names, found.loss) == (("compute",), ("host", "launch"))
    assert (round(found.pct or 0), round(found.loss_pct or 0)) == (72, 22)
    assert found.kernel_class == "elementwise"


def test_communication_that_nobody_waits_for_changes_no_bound() -> None:
    trace = loaded("h200-train")
    before, after = (nsysflow.analyze(t) for t in (trace, with_long_communication(trace)))
    assert after.accounting["idle_ns"].item() < before.accounting["idle_ns"].item() / 100
    for name, time_ns in (("phases", pl.col("busy_ns", "idle_ns")), ("steps", "duration_ns")):
        one, other = getattr(before, name), getattr(after, name)
        assert one["bound"].to_list() == other["bound"].to_list()
        # 2 us of copies in h200-train hide as little as they last, which is left as it is
        whole_ns = one.select(pl.sum_horizontal(time_ns)).to_series()
        changed_ns = (one["bound_pct"] - other["bound_pct"]).abs() / 100 * whole_ns
        assert (changed_ns < 2 * US).drop_nulls().all()
    assert (after.bound.names, after.bound.loss) == (before.bound.names, before.bound.loss)


@few_reports
def test_the_parts_of_a_view_and_what_nobody_waited_for_sum_to_its_windows(name: str) -> None:
    analysis = analysed(name)
    parts = bound_of_view(analysis.view).parts_ns
    whole = sums(analysis.accounting, ["window_ns", "comm_exposed_ns", "copy_exposed_ns"])
    window = whole.pop("window_ns")
    nobodys = sum(whole.values()) - parts["communication"] - parts["copies"]
    if analysis.timeline.without_unwaited is analysis.timeline:
        assert sum(parts.values()) + nobodys == window
    else:  # all but what lies before the first operation that counts, or after the last one
        assert sum(parts.values()) <= window


def two_kernels(*between: Row, launched_ns: int, starts_ns: int) -> PlainTrace:
    """A phase of two short kernels, and what came between them."""
    return plain_of(
        opened(0, 10_000 * US, "phase"),
        launch(0, 5, 1),
        kernel(10, 100, 1),
        *between,
        launch(launched_ns - 5, launched_ns, 2),
        kernel(starts_ns, starts_ns + 10, 2),
    )


def late(*between: Row) -> PlainTrace:
    """The second kernel is launched after 2 ms and starts at once."""
    return two_kernels(*between, launched_ns=2_000 * US, starts_ns=2_000 * US + 1)


COPY = launch(5, 10, 3, name="cudaMemcpyAsync"), copy(101, 900 * US, 3, "HtoD", "pinned", "device")
COMMUNICATED = (
    *(opened(0, 10_000 * US, "phase"), launch(0, 5, 1), kernel(10, 100, 1), launch(5, 10, 3)),
    *(on_stream(kernel(20, 900 * US, 3, name=NCCL), 20), launch(45, 50, 2)),
    kernel(900 * US + 1, 900 * US + 10, 2),
)
PAUSED = (101, 1_999 * US)
CONSTRUCTED = {
    "compute": two_kernels(launched_ns=20, starts_ns=101),
    "communication": told(*COMMUNICATED, record=(12, 20), wait=(14, 7)),
    "copies": two_kernels(*COPY, launched_ns=50, starts_ns=900 * US + 1),
    "host": late(),
    "launch": two_kernels(launched_ns=20 * US, starts_ns=20 * US + 1),
    "sync": late(call(*PAUSED, "cudaStreamSynchronize")),
    "blocking_copy": late(call(*PAUSED, "cudaMemcpy")),
    "alloc": late(call(*PAUSED, "cudaMalloc")),
    "module_load": late(call(*PAUSED, "cuModuleLoadData")),
    "api": late(call(*PAUSED, "cudaEventQuery")),
    "queue_delay": two_kernels(launched_ns=50, starts_ns=9 * US),
    "dependency": two_kernels(launched_ns=50, starts_ns=900 * US),
    "profiler": replace(late(), overhead=(Overhead(*PAUSED, PROCESS, MAIN, "flush"),)),
}
"""`unknown` is missing: work without a launch has no phase."""


def test_a_constructed_bottleneck_of_each_kind_is_the_bound_of_its_phase() -> None:
    assert {*CONSTRUCTED} == {"compute", "communication", "copies", *CAUSES} - {"unknown"}
    analysis = nsysflow.analyze(to_trace(side_by_side(CONSTRUCTED.values())))
    assert analysis.phases.sort("process")["bound"].to_list() == [*CONSTRUCTED]


def test_work_without_a_launch_bounds_the_whole_view() -> None:
    trace = plain_of(launch(0, 5, 1), kernel(10, 100, 1), kernel(900 * US, 901 * US, None))
    assert nsysflow.analyze(to_trace(trace)).bound.names == ("unknown",)


def with_a_copy_in_a_graph() -> PlainTrace:
    """A copy of a graph, captured in `inside`, that nobody waits for: it hides that the host pauses
    in `later/pause`. Without it there is no `replay/inside`."""
    moved = replace(copy(30 * US, 900 * US, 2, "DtoH", "device", "pinned"), graph_node=10)
    return plain_of(
        *(opened(1 * US, 9 * US, "norm"), call(2 * US, 3 * US, "cudaStreamBeginCapture")),
        *(opened(4 * US, 6 * US, "inside"), made(5 * US, 10)),
        *(call(7 * US, 8 * US, "cudaStreamEndCapture"), opened(10 * US, 40 * US, "replay")),
        *(launch(20 * US, 21 * US, 1), kernel(22 * US, 30 * US, 1)),
        *(launch(25 * US, 26 * US, 2, name="cudaGraphLaunch"), on_stream(moved, 20)),
        *(opened(50 * US, 950 * US, "later"), opened(60 * US, 940 * US, "pause")),
        *(launch(920 * US, 921 * US, 3), kernel(922 * US, 930 * US, 3)),
    )


def test_idle_time_keeps_its_phase_where_a_captured_one_exists_only_with_the_copy() -> None:
    assert_pictures_agree({"a copy in a graph": with_a_copy_in_a_graph()})


REPORT: Final = "h200-bottlenecks"

BOUNDS: Final = {
    "step/compute": "compute",
    "step/launch": "launch",
    "step/python": "host",
    "step/pageable": "copies",
    "step/pinned_blocking": "copies",
    "step/alloc": "alloc",
    "step/two_streams": "copies",
    "step/fp32": "compute",
    "step/unaligned": "compute",
    "step/attention": "compute",
    "step/elementwise": "compute",
}

FOUND: Final = {
    ("pageable-copy", "step/pageable"),
    ("unaligned-matmul", "step/unaligned"),
    ("allocator-churn", "step/alloc"),
    ("host-code", "step/python"),
    ("fp32-matmul", "step/fp32"),
}


def test_each_phase_is_bound_by_what_was_built_into_it_and_has_that_finding() -> None:
    analysis = analysed(REPORT)
    found = dict(analysis.judged.phases.select("path", "bound").rows())
    assert {path: found[path] for path in BOUNDS} == BOUNDS
    assert {*analysis.findings.select("rule", "phase").rows()} >= FOUND
    assert analysis.findings["rule"][0] == "pageable-copy"  # which takes half of the step


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        # within a factor of 1.2 parts join the largest, by size
        ({"host": 50, "compute": 60, "sync": 49}, ("compute+host", 100 * 60 / 159)),
        # no more than three, ties in the order of the parts
        (dict.fromkeys(("launch", "host", "copies", "compute"), 5), ("compute+copies+host", 25)),
        # below a tenth nothing bounds
        (dict.fromkeys(PARTS[:11], 1), ("", None)),
        (dict.fromkeys(PARTS[:10], 1), ("compute+communication+copies", 10)),
        ({}, ("", None)),
    ],
)
def test_parts_bound_by_their_size(parts: dict[str, int], bound: tuple[str, float | None]) -> None:
    times = {f"{name}_ns": parts.get(name, 0) for name in PARTS}
    assert bounds(pl.DataFrame([times])).row(0) == bound
    assert bounds(pl.DataFrame([times]).clear()).is_empty()


BACK_TO_BACK: Final = [*enumerate(range(0, 20_000 * US, 1_000 * US))]
"""Each of these is launched when the one before it is over."""


def test_a_gpu_that_only_communicates_is_bound_by_communication() -> None:
    calls = (launch(at, at + 5, i) for i, at in BACK_TO_BACK)
    ops = (kernel(at + 5, at + 1_000 * US, i, name=NCCL) for i, at in BACK_TO_BACK)
    found = analysis_of(*calls, *(on_stream(op, 20) for op in ops))
    assert found.bound.names == ("communication",)
    assert not [one for one in found.found.valued if one.finding.rule != "exposed-communication"]
    assert found.waited["kind"].unique().to_list() == ["communication", "unresolved"]


def test_a_gpu_that_only_copies_is_bound_by_copies() -> None:
    calls = (launch(at, at + 5, i, name="cudaMemcpyAsync") for i, at in BACK_TO_BACK)
    ops = (copy(at + 5, at + 1_000 * US, i, "HtoD", "pinned", "device") for i, at in BACK_TO_BACK)
    assert analysis_of(*calls, *ops).bound.names == ("copies",)
