"""A GPU that idles is never left without an answer (spec §16.12)."""

from collections import Counter
from dataclasses import replace
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.idle_gpu import IDLE_PCT
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.options import Options
from tests import tiny
from tests.analyses import analysed, loaded, reports_of_rules


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


def is_explained(analysis: nsysflow.Analysis, idle_ns: int) -> bool:
    """Whether findings explain the recorded idle time: they would save half of it, or half of each
    cause, of causes that have half of it."""
    found, left = analysis.found, Replays(JudgedReport(analysis)).idle_left
    saved: Counter[tuple[str, ...]] = Counter()
    for one in found.valued:
        causes = tuple(explanations()[one.finding.rule].causes)
        saved[causes] += round(found.steps * one.alone_ns / left) if left else idle_ns
    del saved[()]
    of_causes = analysis.judged.gap_summary.group_by(pl.col("cause").cast(pl.String)).agg(
        pl.col("total_ns").sum()
    )
    known = (ns for cause, ns in of_causes.rows() if 2 * saved[(cause,)] >= ns)
    return 2 * sum(saved.values()) >= idle_ns or 2 * sum(known) >= idle_ns


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
    assert resort or is_explained(analysis, idle)
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
