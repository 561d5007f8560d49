"""The oracle against figures on which two other programs agree, for every report in the tree."""

import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.analyses import EXAMPLES, oracle_of
from tests.oracle.accounting import covered, length, parts, window
from tests.oracle.gaps import CAUSES, Gaps
from tests.oracle.model import Op, PlainTrace, from_trace, to_trace
from tests.oracle.phases import NOWHERE, Place
from tests.oracle.strategies import traces
from tests.reports import DATA

EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())
every_report = pytest.mark.parametrize("report", sorted(EXPECTED))


def gaps_of(report: str) -> Gaps:
    return oracle_of(report).gaps


def attributed(gaps: Gaps) -> list[tuple[Op, Place]]:
    """Every operation and its phase."""
    calls = gaps.calls
    found = []
    for op, launch in zip(calls.ops, calls.launch, strict=True):
        place = NOWHERE
        if launch is not None:
            call = calls.calls[launch]
            place = gaps.phases.at(call.process, call.thread, call.start_ns)
        found.append((op, place))
    return found


@every_report
def test_window_is_split_as_two_other_programs_split_it(report: str) -> None:
    ops = gaps_of(report).calls.ops
    found = {}
    for device in sorted({op.device for op in ops}):
        here = [op for op in ops if op.device == device]
        found[str(device)] = parts(here, window(here)) | {"ops": len(here)}
    assert found == EXPECTED[report]["devices"]


@every_report
def test_every_cause_has_the_expected_idle(report: str) -> None:
    gaps = gaps_of(report).gaps
    assert len(gaps) == EXPECTED[report]["gaps"]
    causes = {cause: sum(gap.causes[cause] for gap in gaps) for cause in CAUSES}
    assert causes == EXPECTED[report]["causes_ns"]
    dominant = Counter(gap.cause for gap in gaps)
    assert dominant == EXPECTED[report]["dominant_cause_counts"]


@every_report
def test_causes_sum_to_the_gap_and_none_is_negative(report: str) -> None:
    for gap in gaps_of(report).gaps:
        assert sum(gap.causes.values()) == gap.duration_ns
        assert min(gap.causes.values()) >= 0


@every_report
def test_stalls_induce_the_expected_idle(report: str) -> None:
    gaps = gaps_of(report)
    by_api: Counter[str] = Counter()
    for call, ns in gaps.induced().items():
        by_api[gaps.calls.calls[call].name] += ns
    assert {api: ns for api, ns in by_api.items() if ns} == EXPECTED[report][
        "induced_idle_ns_by_api"
    ]


@every_report
def test_operations_belong_to_the_expected_phases(report: str) -> None:
    places = attributed(gaps_of(report))
    unattributed = sum(place.how is None for _, place in places)
    assert unattributed == EXPECTED[report]["unattributed_ops"]
    by_path: dict[str, list[Op]] = defaultdict(list)
    for op, place in places:
        for depth in range(1, len(place.path) + 1):
            by_path["/".join(place.path[:depth])].append(op)
    found = {}
    for path, ops in by_path.items():
        kernels = [op for op in ops if op.kind == "kernel"]
        devices = {op.device for op in ops}
        found[path] = {
            "ops": len(ops),
            "kernels": len(kernels),
            "kernel_ns": sum(op.end_ns - op.start_ns for op in kernels),
            "busy_ns": sum(length(covered(o for o in ops if o.device == d)) for d in devices),
        }
    assert found == EXPECTED[report]["phases_with_gpu_work"]


@every_report
def test_a_report_converted_to_a_trace_and_back_is_the_same(report: str) -> None:
    trace = oracle_of(report).trace
    assert from_trace(to_trace(trace)) == trace


@pytest.mark.slow
@settings(max_examples=4 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(traces())
def test_any_trace_converted_to_a_trace_and_back_is_the_same(trace: PlainTrace) -> None:
    assert from_trace(to_trace(trace)) == trace


@pytest.mark.slow
@settings(max_examples=4 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(traces())
def test_the_window_and_every_gap_add_up_on_any_trace(trace: PlainTrace) -> None:
    gaps = Gaps(trace)
    for device in {op.device for op in gaps.calls.ops}:
        here = [op for op in gaps.calls.ops if op.device == device]
        split = parts(here, window(here))
        total = split.pop("window_ns")
        assert sum(split.values()) == total
        of_device = [gap for gap in gaps.gaps if gap.device == device]
        assert sum(gap.duration_ns for gap in of_device) == split["idle_ns"]
        for gap in of_device:
            assert sum(gap.causes.values()) == gap.duration_ns
            assert min(gap.causes.values()) >= 0
            for cause, charged in gap.by_call.items():
                if cause not in ("api", "launch"):  # step 3 takes from these
                    assert sum(charged.values()) == gap.causes[cause]
