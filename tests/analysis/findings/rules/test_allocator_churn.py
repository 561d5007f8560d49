"""Memory allocated and freed in every step."""

from nsysflow.analysis.findings.rules.allocator_churn import allocator_churn
from tests.analysis.findings.subjects import found, of_sample, valued


def test_freeing_the_cache_in_each_step_is_the_first_finding_with_its_line() -> None:
    first = valued("alloc_churn-empty_cache")[0].finding
    assert (first.rule, first.culprit) == ("allocator-churn", "cudaFree")
    assert first.source == "alloc_churn.py:41 in step"
    assert "cudaMalloc" in first.evidence[0]


def test_a_cache_that_is_kept_is_none() -> None:
    assert not found(allocator_churn, of_sample("alloc_churn-cached"))
