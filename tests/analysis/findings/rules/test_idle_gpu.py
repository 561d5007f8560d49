"""A GPU that idles is never left without an answer (spec §16.12)."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

import nsysflow
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.rules.idle_gpu import EXPLAINED_PCT, IDLE_PCT, RECORD
from nsysflow.analysis.options import Options
from tests import tiny
from tests.analyses import NAMES, analysed, loaded


def as_recorded_by_others(name: str) -> Iterator[nsysflow.Analysis]:
    """A report without ranges and without stacks: with the steps that are inferred then, and as one
    window."""
    trace = loaded(name)
    bare = replace(
        trace,
        ranges=trace.ranges.clear(),
        captures=trace.captures.clear(),
        backtraces=trace.backtraces.clear(),
        samples=trace.samples.clear(),
    )
    yield nsysflow.analyze(bare)
    yield nsysflow.analyze(bare, Options(whole=True))


def idle_ns(analysis: nsysflow.Analysis) -> tuple[int, int]:
    """The idle time of the GPU that idles most, and its window."""
    most = analysis.judged.accounting.sort("idle_ns", "device").tail(1)
    return most.select("idle_ns", "window_ns").row(0) if len(most) else (0, 1)


def explained_ns(found: Findings) -> int:
    """The idle time that findings would save, of all judged steps."""
    causes = explanations()
    idle = [one for one in found.valued if causes[one.finding.rule].causes]
    return found.steps * sum(one.alone_ns for one in idle)


@pytest.mark.parametrize("name", NAMES)
def test_much_idle_time_has_findings_that_explain_it_or_say_what_to_record(name: str) -> None:
    for analysis in (analysed(name), *as_recorded_by_others(name)):
        idle, window = idle_ns(analysis)
        if analysis.failed_checks or 100 * idle < IDLE_PCT * window:
            continue
        found = analysis.found
        resort = [one.finding for one in found.valued if one.finding.rule == "idle-gpu"]
        assert resort or 100 * explained_ns(found) >= EXPLAINED_PCT * idle
        assert all(one.source or one.phase or one.culprit or RECORD in one.change for one in resort)


def test_operations_name_the_place_where_no_line_does_unless_all_are_alike() -> None:
    bare, _ = as_recorded_by_others("rolloutcopy-fused")
    (one,) = (v.finding for v in bare.found.valued if v.finding.rule == "idle-gpu")
    place = "mostly host code, the largest part between _draw and _select_copy"
    assert one.title == f"the GPU idles 98 % of the time, {place}"
    assert one.change.index(RECORD) == len(one.change) - 1
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
    assert [each.change[0] for each in found] == [RECORD]
    assert "between" not in found[0].title
