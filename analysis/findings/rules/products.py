"""`summed-product`: a product of broadcast tensors is written, and then summed up."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    LAUNCHES_TOO,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.rules.extra_kernels import kernels_to_drop
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import percent

PRODUCT: Final = r"(?s)\belementwise_kernel<.*\bBinaryFunctor<.*\bMulFunctor<"
"""PyTorch's product of two tensors that are not contiguous in the same order, as broadcast ones
are."""

SUM: Final = r"(?s)\breduce_kernel<.*\b(?:sum_functor|MeanOps)<"
"""PyTorch's sums and means."""

LEAST_NS: Final = 20_000
"""Shorter products are of small tensors, such as a weight for each row."""

LONGER: Final = 1.5
"""A product that takes so many times as long as its sum writes more than it reads: with as many
numbers in as out, both take about as long."""

SUMMED_PCT: Final = 10.0
"""Less of the kernel time is not worth another form of the program."""

CHANGE: Final = (
    "torch.einsum or torch.bmm: a matrix product never writes the large tensor between",
    "torch.compile the function: it sums what it multiplies, without writing it",
)

CHANGE_OF_BAGS: Final = (
    "F.embedding_bag(ids, weight, mode='sum', padding_idx=0): it reads rows and writes only sums",
    "with a weight for each row: its per_sample_weights",
    "of many tables: one batched embedding for all, such as torchrec's",
)
"""For rows of a table that are multiplied and summed up, such as those of a padded list of ids. A
ranker with eight such features took 10.9 ms, and 3.7 with embedding_bag (H200, 2026-11-29)."""


def summed_product(subject: JudgedReport) -> Iterator[Finding]:
    """Products right before a sum, on one stream, that write more than they read; with that sum,
    and with what fetches rows of a table for them.

    A triangle update of 192 x 192 pairs took 21.4 ms a step as products and sums, and 10.8 ms by
    einsum (H200, 2026-11-29).
    """
    kernels = subject.kernels
    product, total = matching(kernels["name"], PRODUCT), matching(kernels["name"], SUM)
    if not product.any() or not total.any():
        return
    sum_ns = pl.when(pl.lit(total)).then("ns").alias("sum_ns")
    behind_ns = pl.col("sum_ns").shift(-1).over("lane")
    large = pl.lit(product) & (pl.col("ns") >= LEAST_NS) & (pl.col("ns") >= LONGER * behind_ns)
    flags = kernels.with_columns(sum_ns).with_columns(large.fill_null(value=False).alias("large"))
    behind, before = (pl.col("large").shift(by, fill_value=False).over("lane") for by in (-1, 1))
    fetched = flags.select((pl.col("class") == "embedding") & behind).to_series()
    summed = flags.select(pl.col("large") | before).to_series()
    rows = kernels_to_drop(subject, summed | fetched, SUMMED_PCT)
    if rows.is_empty():
        return
    of_bags = 2 * int(fetched.sum()) >= int(flags["large"].sum())
    yield kernel_finding(
        subject,
        rows,
        rule="summed-product",
        title="products are written, then summed up:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_BAGS if of_bags else CHANGE,
        evidence=(in_words(subject, rows), LAUNCHES_TOO),
    )
