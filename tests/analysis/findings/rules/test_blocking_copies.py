"""Copies that the host waits for."""

import pytest

from nsysflow.analysis.findings.rules.blocking_copies import blocking_copies
from tests.analysis.findings.subjects import found, of_sample, valued


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
