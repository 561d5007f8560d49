"""Counters, the last resort, and what holds of all rules about kernels."""

from dataclasses import replace
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.analyze import Tables
from nsysflow.analysis.findings.findings import WORTH_PCT, find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import GPU_RULES, LAST_RESORT
from nsysflow.analysis.findings.rules.idle_chip import LOW_PCT, idle_chip
from nsysflow.analysis.findings.rules.largest_kernels import largest_kernels
from nsysflow.analysis.findings.rules.low_mfu import low_mfu
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.selection.view import judged_view
from tests.analyses import any_trace, few_reports
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.programs import asked, left_of, real, short_name, subject_of
from tests.oracle.model import Op, PlainTrace, to_trace


class Sampled(Tables):
    """The tables of the judged part, with counters written by hand."""

    def __init__(self, timeline: Timeline, counters: pl.DataFrame) -> None:
        super().__init__(timeline, judged_view)
        self._counters = counters

    def table(self, name: str) -> pl.DataFrame:
        return self._counters if name == "gpu_metrics" else super().table(name)


def with_counters(subject: JudgedReport, pct: float) -> JudgedReport:
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
    subject.tables = Sampled(subject.timeline, pl.DataFrame([row]))
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


FOUND = find(real("h200-gpt2-eager"))


def test_what_the_host_hides_comes_behind_the_launches_with_what_it_saves_then() -> None:
    rules = [one.finding.rule for one in FOUND.valued]
    hidden = [one for one in FOUND.valued if 100 * one.alone_ns < WORTH_PCT * one.step_ns]
    assert {one.finding.rule for one in hidden} >= {"unaligned-matmul", "unfused-elementwise"}
    assert FOUND.valued[-len(hidden) :] == tuple(hidden)
    assert rules.index("launch-bound") < len(rules) - len(hidden)
    assert all(one.pct >= WORTH_PCT and one.low_ns == 0 for one in hidden)


NAMES: Final = (
    *(names.FP32[0], names.PRODUCT, names.SOFTMAX, names.PRODUCT, names.ADD, names.UP),
    *(names.STRIDED, names.ADDCDIV, names.NORM, *names.ODD),
)


def check(subject: JudgedReport) -> None:
    kernel_ns = int(subject.kernels["ns"].sum())
    for rule in (*GPU_RULES, LAST_RESORT):
        for finding in rule(subject):
            assert finding.title
            assert finding.change
            assert finding.evidence
            assert 1 <= finding.steps <= subject.steps
            for name, factor in finding.changes.scaled if finding.changes else ():
                assert name
                assert 0 <= factor <= 1
            if finding.rule != "optimizer-not-fused":  # which counts idle time too
                assert 0 <= finding.size_ns <= kernel_ns


@few_reports
def test_rules_take_off_no_more_than_there_is(name: str) -> None:
    check(real(name))


@any_trace
def test_rules_take_off_no_more_than_there_is_in_any_trace(model: PlainTrace) -> None:
    named = [_named(op, NAMES[number % len(NAMES)]) for number, op in enumerate(model.ops)]
    check(JudgedReport(nsysflow.analyze(to_trace(replace(model, ops=tuple(named))))))


def _named(op: Op, name: str) -> Op:
    return replace(op, name=name, short_name=short_name(name)) if op.kind == "kernel" else op


@few_reports
def test_lanes_hold_one_kernel_after_the_other(name: str) -> None:
    kernels = real(name).kernels
    for _, lane in kernels.group_by("lane"):
        assert lane["start_ns"].is_sorted()
    assert kernels["lane"].is_sorted()
