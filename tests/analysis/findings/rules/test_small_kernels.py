"""Casts, layouts and tiny kernels."""

import pytest

from nsysflow.analysis.findings.rules.cast_storm import cast_storm
from nsysflow.analysis.findings.rules.layout_transpose import layout_transpose
from nsysflow.analysis.findings.rules.optimizer_not_fused import optimizer_not_fused
from nsysflow.analysis.findings.rules.small_grid import small_grid
from nsysflow.analysis.findings.rules.tiny_kernels import tiny_kernels
from nsysflow.analysis.options import Options
from nsysflow.runs.analyze import PAGE, analyze_reports
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.programs import Kernels, asked, left_of, real, subject_of
from tests.reports import SAMPLES

PRODUCT = (names.PRODUCT, 80)


def test_conversions_for_cudnn_ask_for_channels_last() -> None:
    finding = asked(layout_transpose, subject_of([PRODUCT, (names.TO_NHWC, 20)]))
    assert left_of(finding) == {names.TO_NHWC: 0.0}
    assert finding is not None
    assert "channels_last" in finding.change[0]


def test_copies_of_strided_tensors_ask_for_fewer_of_them() -> None:
    finding = asked(layout_transpose, subject_of([PRODUCT, (names.STRIDED, 20)]))
    assert finding is not None
    assert ".contiguous()" in finding.change[0]


@pytest.mark.parametrize("name", [names.ADD, names.UP, names.PRODUCT])
def test_other_kernels_are_no_copies_into_another_order(name: str) -> None:
    assert asked(layout_transpose, subject_of([PRODUCT, (name, 20)])) is None


def test_few_copies_are_usual() -> None:
    assert asked(layout_transpose, subject_of([PRODUCT, (names.STRIDED, 4)])) is None
    assert asked(cast_storm, subject_of([PRODUCT, (names.DOWN, 8)])) is None


def test_many_casts_are_a_storm() -> None:
    finding = asked(cast_storm, subject_of([PRODUCT, (names.DOWN, 10), (names.UP, 10)]))
    assert left_of(finding) == {names.DOWN: 0.0, names.UP: 0.0}


def test_gpt2_casts_under_autocast_and_a_program_in_bf16_does_not() -> None:
    assert asked(cast_storm, real("h200-gpt2-eager")) is not None
    assert asked(cast_storm, real("nan_check-sync")) is None


def test_convolutions_in_nchw_convert_and_products_in_bf16_do_not() -> None:
    finding = asked(layout_transpose, real("h200-nchw"))
    assert finding is not None
    assert "18 % of kernel time" in finding.title
    assert "channels_last" in finding.change[0]
    assert asked(layout_transpose, real("nan_check-sync")) is None


UPDATES: Kernels = [(names.MUL, 2), (names.ADD, 2), (names.ADDCDIV, 2)] * 20


def test_twice_the_blocks_take_half_the_time() -> None:
    finding = asked(small_grid, subject_of([(names.PRODUCT, 20)], blocks=(49,)))
    assert left_of(finding) == {names.PRODUCT: 0.5}


def test_half_a_wave_is_enough() -> None:
    assert asked(small_grid, subject_of([(names.PRODUCT, 20)], blocks=(50,))) is None


def test_each_launch_counts_by_its_own_grid() -> None:
    kernels: Kernels = [(names.ADD, 90), (names.ADD, 10)] * 2
    finding = asked(small_grid, subject_of(kernels, blocks=(1, 1_000)))
    assert left_of(finding) == {names.ADD: 0.95}


def test_kernels_below_5_us_are_left_to_tiny_kernels() -> None:
    assert asked(small_grid, subject_of([(names.PRODUCT, 4)], blocks=(1,))) is None


def test_a_run_of_tiny_kernels_is_named_though_the_gpu_never_idles() -> None:
    finding = asked(tiny_kernels, subject_of([(names.ADD, 2)] * 20))
    assert left_of(finding) == {names.ADD: 0.2}


@pytest.mark.parametrize(
    ("count", "us", "pause_us"), [(19, 2, 1), (20, 5, 1), (20, 2, 6)], ids=["few", "long", "apart"]
)
def test_it_is_quiet_for(count: int, us: int, pause_us: int) -> None:
    assert asked(tiny_kernels, subject_of([(names.ADD, us)] * count, pause_us=pause_us)) is None


def test_tiny_kernels_of_little_time_are_not_worth_it() -> None:
    assert asked(tiny_kernels, subject_of([(names.PRODUCT, 1_000), *[(names.ADD, 2)] * 20])) is None


def test_adamw_tensor_by_tensor_is_known_by_its_arithmetic() -> None:
    finding = asked(optimizer_not_fused, subject_of(UPDATES))
    assert finding is not None
    assert "60 kernels" in finding.title
    assert finding.changes is not None
    assert finding.changes.graphs == ()


def test_any_optimizer_is_known_by_its_range_and_launches_at_once_then() -> None:
    ranges = (tiny.opened(0, 500_000, "optimizer"),)
    finding = asked(optimizer_not_fused, subject_of([(names.MUL, 2)] * 60, ranges=ranges))
    assert finding is not None
    assert finding.changes is not None
    assert finding.changes.graphs == ("optimizer",)


def test_foreach_is_one_kernel_for_many_tensors_already() -> None:
    ranges = (tiny.opened(0, 500_000, "optimizer"),)
    finding = asked(optimizer_not_fused, subject_of([(names.FOREACH, 2)] * 60, ranges=ranges))
    assert finding is None


def test_few_updates_are_not_worth_it() -> None:
    assert asked(optimizer_not_fused, subject_of(UPDATES[:45])) is None


def test_the_optimizers_of_real_programs() -> None:
    single = asked(optimizer_not_fused, real("h200-train"))
    assert single is not None
    assert single.phase.endswith("optimizer")
    assert asked(optimizer_not_fused, real("nan_check-sync")) is None


@pytest.mark.parametrize("tables", [PAGE, ("findings",), ("kernels",)])
def test_the_page_and_the_table_of_findings_name_small_grids_alike(tables: tuple[str, ...]) -> None:
    results = analyze_reports([SAMPLES / "trainstep-graph.sqlite.xz"], Options(), tables=tables)
    assert "small-grid" in [one.finding.rule for one in results.found.valued]
