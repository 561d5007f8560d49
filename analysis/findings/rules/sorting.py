"""`full-sort`: kernels that sort, where a few of the largest may be all that is needed."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import (
    JudgedReport,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.rules.extra_kernels import is_backward
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import percent

SORTS: Final = r"(?i)(?:radix|merge|bitonic)_?sort"
"""Kernels of CUB and of PyTorch's own sorts, which JAX and CuPy use likewise."""

SORT_PCT: Final = 10.0
"""Of 50 recordings whose programs do not sort for themselves, none spends more than 5.5 % of its
kernel time on it outside of backward (docs/facts.md)."""

CHANGE: Final = (
    "if only the largest or smallest k are needed: torch.topk(x, k), not torch.sort(x)[:k]",
    "for top-p sampling: torch.topk of some hundred tokens first, or a sampler that does not sort"
    " (flashinfer.sampling)",
    "a median or quantile: torch.kthvalue; the same order each time: sort once, before the loop",
)


def full_sort(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels that sort, outside of a backward pass: there indices are sorted, so that equal ones
    are added in order.

    To find 50 of 128,256 logits by sorting took 3.77 ms a step, by topk 2.38 (H200, 2026-11-29).
    """
    sorting = matching(subject.kernels["name"], SORTS) & ~is_backward(subject)
    rows = subject.kernels.filter(sorting).with_columns(pl.col("ns").alias("gain_ns"))
    share = share_of_kernels(subject, rows)
    if share < SORT_PCT:
        return
    yield kernel_finding(
        subject,
        rows,
        rule="full-sort",
        title=f"whole tensors are sorted: {percent(share)} of kernel time",
        change=CHANGE,
        evidence=(in_words(subject, rows),),
    )
