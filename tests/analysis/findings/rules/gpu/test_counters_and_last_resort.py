"""`idle-chip`, `low-mfu` and `largest-kernels`: kernels that no name gives away."""

import polars as pl
import pytest

from nsysflow.analysis.findings.find import find
from nsysflow.analysis.findings.rules.gpu.idle_chip import LOW_PCT, idle_chip
from nsysflow.analysis.findings.rules.gpu.largest_kernels import largest_kernels
from nsysflow.analysis.findings.rules.gpu.low_mfu import low_mfu
from nsysflow.analysis.findings.subject import Subject
from tests.analysis.findings.kernels import names
from tests.analysis.findings.rules.gpu.programs import asked, left_of, real, subject_of


def with_counters(subject: Subject, pct: float) -> Subject:
    """The subject, had all counters been at `pct` while its elementwise kernels ran."""
    row = {
        "device": 0,
        "group": "class",
        "name": "elementwise",
        "bound": "latency",
        "sm_issue_pct": pct,
        "tensor_active_pct": 0.0,
        "dram_read_pct": pct / 2,
        "dram_write_pct": pct / 2,
    }
    subject.tables.__dict__["gpu_metrics"] = pl.DataFrame([row])
    return subject


def test_low_counters_while_kernels_run_are_named() -> None:
    finding = asked(idle_chip, with_counters(subject_of([(names.ADD, 100)]), 15.0))
    assert left_of(finding) == {names.ADD: 0.25}


def test_counters_of_30_percent_are_not_low() -> None:
    assert asked(idle_chip, with_counters(subject_of([(names.ADD, 100)]), LOW_PCT)) is None


@pytest.mark.parametrize("name", ["nan_check-sync-metrics", "h200-gpu-metrics", "nan_check-sync"])
def test_the_chip_works_in_real_programs_or_was_not_sampled(name: str) -> None:
    assert asked(idle_chip, real(name)) is None


def test_declared_flops_are_held_against_the_peak_of_what_ran() -> None:
    finding = asked(low_mfu, real("trainforward-graph"))
    assert finding is not None
    assert "of the bf16 peak" in finding.title


@pytest.mark.parametrize("name", ["ddp-bucketed-rank0", "trainstep-torch", "nan_check-sync"])
def test_it_is_quiet_near_the_peak_without_products_and_without_flops(name: str) -> None:
    assert asked(low_mfu, real(name)) is None


def test_a_busy_gpu_never_ends_without_a_word_on_its_kernels() -> None:
    (last,) = find(subject_of([(names.PRODUCT, 900), (names.ADD, 9)])).valued
    assert last.finding.title == "most kernel time is matmul: 99 %"
    assert last.high_ns == 0


def test_tf32_products_are_told_of_bf16() -> None:
    finding = asked(largest_kernels, subject_of([(names.TF32[0], 100)]))
    assert finding is not None
    assert "bfloat16" in finding.change[0]


def test_where_the_gpu_mostly_waits_kernels_are_not_what_to_look_at() -> None:
    assert asked(largest_kernels, subject_of([(names.PRODUCT, 10)] * 9, pause_us=20)) is None


def test_the_last_resort_is_not_asked_where_kernels_can_be_faster() -> None:
    rules = [one.finding.rule for one in find(real("fusion-eager")).valued]
    assert "largest-kernels" not in rules
