"""Blocking copies, exposed copies and communication, allocations."""

import pytest

from nsysflow.analysis.findings.rules.allocator_churn import allocator_churn
from nsysflow.analysis.findings.rules.blocking_copies import blocking_copies
from nsysflow.analysis.findings.rules.exposed_communication import exposed_communication
from nsysflow.analysis.findings.rules.exposed_copy import exposed_copy
from tests.analysis.findings.subjects import found, of_report, of_sample, valued


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("h2d-pageable", "pageable-copy"),
        ("h2d-pageable_non_blocking", "pageable-copy"),
        ("h2d-pinned_blocking", "blocking-pinned-copy"),
    ],
)
def test_copies_that_the_host_waits_for_are_the_first_finding(name: str, rule: str) -> None:
    first = valued(name)[0].finding
    assert (first.rule, first.phase, first.method) == (rule, "step/h2d", "replay")


@pytest.mark.parametrize("name", ["h2d-pinned", "overlap-side_stream", "metrics-each_step"])
def test_asynchronous_copies_and_values_read_back_are_none(name: str) -> None:
    assert not found(blocking_copies, of_sample(name))


def test_pinned_memory_is_only_told_to_be_copied_without_a_wait() -> None:
    (one,) = found(blocking_copies, of_sample("h2d-pinned_blocking"))
    assert "non_blocking=True" in one.change[0]
    assert "pin_memory" not in " ".join(one.change)


def test_a_value_of_a_few_bytes_is_no_slow_copy() -> None:
    rules = {one.finding.rule for one in valued("metrics-each_step")}
    assert "scalar-readback" in rules
    assert "pageable-copy" not in rules


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


def test_freeing_the_cache_in_each_step_is_the_first_finding_with_its_line() -> None:
    first = valued("alloc_churn-empty_cache")[0].finding
    assert (first.rule, first.culprit) == ("allocator-churn", "cudaFree")
    assert first.source == "alloc_churn.py:41 in step"
    assert "cudaMalloc" in first.evidence[0]


def test_a_cache_that_is_kept_is_none() -> None:
    assert not found(allocator_churn, of_sample("alloc_churn-cached"))
