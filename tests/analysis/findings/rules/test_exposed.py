"""Copies and communication while nothing computes."""

import pytest

from nsysflow.analysis.findings.rules.exposed_communication import exposed_communication
from nsysflow.analysis.findings.rules.exposed_copy import exposed_copy
from tests.analysis.findings.subjects import found, of_report, of_sample, valued


def test_copies_before_their_kernels_are_the_first_finding_by_a_replay_without_them() -> None:
    first = valued("overlap-in_turn")[0]
    assert (first.finding.rule, first.finding.phase) == ("exposed-copy", "step/h2d")
    assert first.finding.changes is not None
    assert list(first.finding.changes.options()) == ["--scale", "memcpy HtoD=0"]
    assert first.low_ns == 0
    assert 20 < first.pct < 25


@pytest.mark.parametrize(
    "name", ["overlap-side_stream", "h2d-pinned", "h2d-pageable", "nan_check-async"]
)
def test_copies_under_kernels_and_small_ones_are_none(name: str) -> None:
    assert not found(exposed_copy, of_sample(name))


def test_communication_after_backward_is_the_first_finding() -> None:
    first = valued("ddp-no_overlap-rank0")[0].finding
    assert (first.rule, first.phase, first.culprit) == (
        "exposed-communication",
        "step/backward",
        "ncclAllReduce",
    )
    assert first.method == "bound"


def test_communication_in_buckets_under_backward_is_none() -> None:
    assert not found(exposed_communication, of_sample("ddp-bucketed-rank0"))
    assert not found(exposed_communication, of_report("h200-ddp-rank1"))
