"""The oracle against figures on which two other programs agree, for every report in the tree."""

import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.analyses import EXAMPLES, NAMES, few_reports, oracle_of
from tests.oracle.accounting import covered, length, parts
from tests.oracle.gaps import CAUSES
from tests.oracle.model import Op, PlainTrace, from_trace, to_trace
from tests.oracle.report import Report
from tests.oracle.strategies import several, traces
from tests.reports import DATA

EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())


def figures(report: Report) -> dict[str, Any]:
    """What expected.json says of a report, as the oracle finds it."""
    gaps = report.gaps.gaps
    here = {device: [report.ops[index] for index in report.on(device)] for device in report.devices}
    induced: Counter[str] = Counter()
    for call, ns in report.induced.items():
        induced[report.calls.calls[call].name] += ns
    by_path: dict[str, list[Op]] = defaultdict(list)
    unattributed = 0
    for index, op in enumerate(report.ops):
        launch = report.calls.launch[index]
        path = () if launch is None else report.place(launch).path
        unattributed += not path
        for depth in range(1, len(path) + 1):
            by_path["/".join(path[:depth])].append(op)
    return {
        "devices": {
            str(device): parts(ops, report.windows[device]) | {"ops": len(ops)}
            for device, ops in here.items()
        },
        "gaps": len(gaps),
        "causes_ns": {cause: sum(gap.causes[cause] for gap in gaps) for cause in CAUSES},
        "dominant_cause_counts": Counter(gap.cause for gap in gaps),
        "induced_idle_ns_by_api": {api: ns for api, ns in induced.items() if ns},
        "unattributed_ops": unattributed,
        "phases_with_gpu_work": {path: of_phase(ops) for path, ops in by_path.items()},
    }


def of_phase(ops: list[Op]) -> dict[str, int]:
    """The figures of a phase with these operations, on all GPUs."""
    kernels = [op for op in ops if op.kind == "kernel"]
    devices = {op.device for op in ops}
    return {
        "ops": len(ops),
        "kernels": len(kernels),
        "kernel_ns": sum(op.end_ns - op.start_ns for op in kernels),
        "busy_ns": sum(length(covered(o for o in ops if o.device == d)) for d in devices),
    }


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_the_figures_of_a_report_are_those_of_two_other_programs(name: str) -> None:
    """But for causes that §3.10 changed: see tests/data/README.md."""
    assert name in NAMES
    assert figures(oracle_of(name)) == EXPECTED[name]


@few_reports
def test_a_report_converted_to_a_trace_and_back_is_the_same(name: str) -> None:
    trace = oracle_of(name).trace
    assert from_trace(to_trace(trace)) == trace


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(several(traces()))
def test_any_trace_converted_to_a_trace_and_back_is_the_same(trace: PlainTrace) -> None:
    assert from_trace(to_trace(trace)) == trace
