"""What holds for each GPU rule on any trace."""

from dataclasses import replace
from typing import Final

import nsysflow
from nsysflow.analysis.findings.rules import GPU_RULES, LAST_RESORT
from nsysflow.analysis.findings.subject import Subject
from tests.analyses import any_trace, few_reports
from tests.analysis.findings.kernels import names
from tests.analysis.findings.rules.gpu.programs import real, short_name
from tests.oracle.model import Op, PlainTrace, to_trace

NAMES: Final = (
    *(names.FP32[0], names.PRODUCT, names.SOFTMAX, names.PRODUCT, names.ADD, names.UP),
    *(names.STRIDED, names.ADDCDIV, names.NORM, *names.ODD),
)


def check(subject: Subject) -> None:
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
    check(Subject(nsysflow.analyze(to_trace(replace(model, ops=tuple(named)))).judged))


def _named(op: Op, name: str) -> Op:
    return replace(op, name=name, short_name=short_name(name)) if op.kind == "kernel" else op


@few_reports
def test_lanes_hold_one_kernel_after_the_other(name: str) -> None:
    kernels = real(name).kernels
    for _, lane in kernels.group_by("lane"):
        assert lane["start_ns"].is_sorted()
    assert kernels["lane"].is_sorted()
