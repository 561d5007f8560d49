"""A GPU that idles is never left without an answer (spec §16.12)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.findings import Findings
from nsysflow.analysis.findings.rules.idle_gpu import EXPLAINED_PCT, IDLE_PCT
from nsysflow.analysis.options import Options
from tests import tiny
from tests.analyses import NAMES, analysed, loaded


def bare(name: str) -> nsysflow.Trace:
    """A report without ranges and without stacks, as other tools record it."""
    trace = loaded(name)
    frames = ("ranges", "captures", "backtraces", "samples")
    return replace(trace, **{each: getattr(trace, each).clear() for each in frames})


AS_RECORDED: Final[dict[str, Callable[[str], nsysflow.Analysis]]] = {
    "as it is": analysed,
    "with inferred steps": lambda name: nsysflow.analyze(bare(name)),
    "as one window": lambda name: nsysflow.analyze(bare(name), Options(whole=True)),
}
SMALL: Final = {
    "with inferred steps": ("h200-host-split", "h200-nvtx-domain", "h2d-pageable", "synthetic-2"),
    "as one window": ("metrics-each_step", "nan_check-sync", "synthetic-1", "trainstep-fused"),
}
"""With and without a last resort, which says what to record or names a place."""

SWEPT: Final = [
    pytest.param(name, how, marks=() if name in SMALL.get(how, NAMES) else pytest.mark.long)
    for name in NAMES
    for how in AS_RECORDED
]


def idle_ns(analysis: nsysflow.Analysis) -> tuple[int, int]:
    """The idle time of the GPU that idles most, and its window."""
    most = analysis.judged.accounting.sort("idle_ns", "device").tail(1)
    return most.select("idle_ns", "window_ns").row(0) if len(most) else (0, 1)


def explained_ns(found: Findings) -> int:
    """The idle time that findings would save, of all judged steps."""
    causes = explanations()
    idle = [one for one in found.valued if causes[one.finding.rule].causes]
    return found.steps * sum(one.alone_ns for one in idle)


def says_what_to_record(finding: Finding) -> bool:
    """Whether what to record comes first in its advice."""
    return "--sample-python" in finding.change[0]


@pytest.mark.parametrize(("name", "how"), SWEPT)
def test_much_idle_time_has_findings_that_explain_it_or_a_last_resort(name: str, how: str) -> None:
    analysis = AS_RECORDED[how](name)
    idle, window = idle_ns(analysis)
    if analysis.failed_checks or 100 * idle < IDLE_PCT * window:
        return
    found = analysis.found
    resort = [one.finding for one in found.valued if one.finding.rule == "idle-gpu"]
    assert resort or 100 * explained_ns(found) >= EXPLAINED_PCT * idle
    assert all(
        one.source or one.phase or one.culprit or "--sample-python" in str(one.change)
        for one in resort
    )


def test_operations_name_the_place_where_no_line_does_unless_all_are_alike() -> None:
    inferred = AS_RECORDED["with inferred steps"]("rolloutcopy-fused")
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
