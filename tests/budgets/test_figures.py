"""Figures of hand-made captures, and of real reports beside the slow ones of the oracle."""

import json

import pytest

from nsysflow.analysis.options import Options
from nsysflow.base.errors import CheckError
from nsysflow.budgets.figures import figures_of, ranks_of
from nsysflow.compare.captures import Capture
from nsysflow.compare.document import capture_of
from nsysflow.report.document import compared_json
from nsysflow.runs.analyze import analyze_reports
from tests.compare.handmade import capture, ranks, row, track
from tests.oracle.budgets import figures_of_document
from tests.reports import PACKED

STEP = capture(
    row(60, 40, name="gemm", phase="step/forward", duration_ns=[80, 40], count=[2, 1]),
    row(10, 10, name="softmax", kind="softmax", phase="step/forward/attention"),
    row(20, 20, part="communication", kind="nccl", name="reduce", phase="step/backward"),
    row(10, 30, part="idle", kind="sync", phase="step/forward"),
    row(0, 100, part="idle", kind="host", phase=""),
)


def values(name: str, found: Capture = STEP) -> list[float]:
    return figures_of([found])[name].values(found)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("step_ms", [100, 200]),
        ("compute_ms", [70, 50]),
        ("compute_pct", [70, 25]),
        ("communication_ms", [20, 20]),
        ("copies_ms", [0, 0]),
        ("idle_ms", [10, 130]),
        ("idle_pct", [10, 65]),
        ("sync.idle_behind_ms", [10, 30]),
        ("sync.idle_behind_pct", [10, 15]),
        ("alloc.idle_behind_ms", [0, 0]),
        ("phase:step/forward.step_ms", [80, 80]),
        ("phase:step/forward.busy_ms", [70, 50]),
        ("phase:step/forward.idle_ms", [10, 30]),
        ("phase:step/forward.kernel_ms", [90, 50]),
        ("phase:step/forward/attention.kernel_ms", [10, 10]),
        ("phase:step.idle_ms", [10, 30]),
        ("class:matmul.ms", [80, 40]),
        ("kernel:gemm.ms", [80, 40]),
        ("kernel:gemm.count", [2, 1]),
        ("kernel:reduce.ms", [20, 20]),
    ],
)
def test_a_figure_is_a_sum_over_each_step(name: str, wanted: list[float]) -> None:
    assert values(name) == wanted


def test_the_parts_of_a_phase_sum_to_it() -> None:
    parts = zip(values("phase:step.busy_ms"), values("phase:step.idle_ms"), strict=True)
    assert [sum(each) for each in parts] == values("phase:step.step_ms")


def test_a_step_is_that_of_the_slowest_rank() -> None:
    found = ranks(track(row(10), row(90, part="idle", kind="sync")), track(row(150)))
    assert values("step_ms", found) == [150]
    assert values("sync.idle_behind_ms", found) == [0]


def test_a_kernel_that_the_slowest_rank_lacks_is_that_of_another() -> None:
    found = ranks(track(row(10, name="embed")), track(row(150)))
    assert values("kernel:embed.ms", found) == [10]


def test_a_gpu_without_steps_is_no_rank() -> None:
    window = track(row(10_000), step_name=None, steps=[None], kinds=[None], process=None)
    found = ranks(window, track(row(150)))
    assert values("step_ms", found) == [150]


def test_a_step_that_takes_no_time_has_no_shares() -> None:
    assert values("idle_pct", capture(row(0, 4), row(0, 4, part="idle"))) == [0, 50]


def test_a_capture_without_steps_is_refused_with_what_to_type() -> None:
    window = capture(row(10_000), step_name=None, steps=[None], kinds=[None])
    with pytest.raises(CheckError, match="--step NAME"):
        ranks_of(window)


@pytest.mark.parametrize(
    "names",
    [
        ["nan_check-sync"],
        ["dataload-async"],
        ["trainstep-torch"],
        ["ddp-bucketed-rank0", "ddp-bucketed-rank1"],
    ],
)
def test_the_oracle_has_the_same_figures(names: list[str]) -> None:
    tables = ("steps", "step_parts")
    text = compared_json(
        analyze_reports([PACKED[each] for each in names], Options(), tables=tables)
    )
    found = capture_of(text.encode(), names[0], names[0])
    figures = figures_of([found])
    assert {each: figure.values(found) for each, figure in figures.items()} == figures_of_document(
        json.loads(text)
    )
