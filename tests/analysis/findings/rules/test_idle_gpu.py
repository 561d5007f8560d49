"""A GPU that idles is never left without an answer (spec §16.12)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.last_resort import IDLE_PCT, idle_gpu
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.options import Options
from tests import tiny
from tests.analyses import analysed, loaded, reports_of_rules
from tests.analysis.findings.subjects import US, Row, launched, loop, named
from tests.oracle.model import Op


def bare(name: str) -> nsysflow.Trace:
    """A report without ranges and without stacks, as other tools record it."""
    trace = loaded(name)
    frames = ("ranges", "captures", "backtraces", "samples")
    return replace(trace, **{each: getattr(trace, each).clear() for each in frames})


BARE: Final = {
    "h2d-pageable": Options(),  # with inferred steps
    "h200-host-split": Options(),
    "metrics-each_step": Options(whole=True),
    "synthetic-1": Options(whole=True),
}
"""With and without a last resort, which says what to record or names a place."""


def idle_ns(analysis: nsysflow.Analysis) -> tuple[int, int]:
    """The idle time of the GPU that idles most, and its window."""
    most = analysis.judged.accounting.sort("idle_ns", "device").tail(1)
    return most.select("idle_ns", "window_ns").row(0) if len(most) else (0, 1)


def is_explained(analysis: nsysflow.Analysis, idle_ns: int, window_ns: int) -> bool:
    """Whether findings explain the recorded idle time: they would save half of it (of host code all
    but 20 % of the window), or half of each cause, of causes that have half of it."""
    found, left = analysis.found, Replays(JudgedReport(analysis)).idle_left
    saved: Counter[tuple[str, ...]] = Counter()
    for one in found.valued:
        causes = () if one.finding.beside else tuple(explanations()[one.finding.rule].causes)
        saved[causes] += round(found.steps * one.alone_ns / left) if left else idle_ns
    del saved[()]
    of_causes = analysis.judged.gap_summary.group_by(pl.col("cause").cast(pl.String)).agg(
        pl.col("total_ns").sum()
    )
    known = (cause for cause, ns in of_causes.rows() if 2 * saved[(cause,)] >= ns)
    unknown = of_causes.filter(~pl.col("cause").is_in([*known])).sort("total_ns").rows()
    if not unknown or 2 * sum(ns for _, ns in unknown) < idle_ns:
        return True
    left_ns = idle_ns - sum(saved.values())
    of_host = unknown[-1][0] == "host" and analysis.judged.comm.is_empty()
    return 2 * left_ns <= idle_ns and not (of_host and 100 * left_ns >= IDLE_PCT * window_ns)


def says_what_to_record(finding: Finding) -> bool:
    """Whether what to record comes first in its advice."""
    return "--sample-python" in finding.change[0]


@reports_of_rules
def test_much_idle_time_has_findings_that_explain_it_or_a_last_resort(name: str) -> None:
    assert_explained(analysed(name))


@pytest.mark.parametrize("name", BARE)
def test_so_has_that_of_a_report_without_ranges_and_stacks(name: str) -> None:
    assert_explained(nsysflow.analyze(bare(name), BARE[name]))


def assert_explained(analysis: nsysflow.Analysis) -> None:
    idle, window = idle_ns(analysis)
    if analysis.failed_checks or 100 * idle < IDLE_PCT * window:
        return
    resort = [one.finding for one in analysis.found.valued if one.finding.rule == "idle-gpu"]
    assert resort or is_explained(analysis, idle, window)
    assert all(
        one.source or one.phase or one.culprit or "--sample-python" in str(one.change)
        for one in resort
    )


def test_operations_name_the_place_where_no_line_does_unless_all_are_alike() -> None:
    inferred = nsysflow.analyze(bare("rolloutcopy-fused"))
    (one,) = (v.finding for v in inferred.found.valued if v.finding.rule == "idle-gpu")
    place = "mostly host code, the largest part between _draw and _select_copy"
    assert one.title == f"the GPU idles 98 % of the time, {place}"
    assert "--sample-python" in one.change[-1]
    rows = (
        row
        for number in range(12)
        for row in (
            tiny.launch(10**6 * number, 10**6 * number + 9_000, number + 1),
            tiny.kernel(10**6 * number + 10_000, 10**6 * number + 20_000, number + 1),
        )
    )
    alike = tiny.analysis_of(*rows)
    found = [v.finding for v in alike.found.valued if v.finding.rule == "idle-gpu"]
    assert [says_what_to_record(each) for each in found] == [True]
    assert "between" not in found[0].title


RECORD: Final = "record what the host runs meanwhile"


@pytest.mark.parametrize(
    ("kernel", "every_us", "advice"),
    [
        ("wrapped_add", 200, "one jax.jit around the whole step"),
        ("wrapped_add", 2_000, RECORD),  # ten pauses a step: no dispatch
        ("add", 200, RECORD),
    ],
)
def test_jax_that_launches_operation_by_operation_is_told_to_jit(
    kernel: str, every_us: int, advice: str
) -> None:
    def step(start: int, i: int) -> Iterator[Row]:
        for k, at in enumerate(range(10, 19_000, every_us)):
            for row in launched(start, 100 * i + k, at=at, took=5, kernel_ns=5 * US):
                yield named(row, kernel) if isinstance(row, Op) else row

    (one,) = idle_gpu(loop(step, every=20_000), 0, {})
    assert one.change[0].startswith(advice)
