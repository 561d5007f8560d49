"""Caches of keys and values that a decoder moves about.

* `cache-reordered`: beam search gathers the caches of all layers by beam, at each token.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    in_words,
    kernel_finding,
    share_of_kernels,
    trains,
)
from nsysflow.analysis.findings.kernels import MATRIX_CLASSES
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import percent

CHOOSES: Final = r"\bgatherTopK\b"
"""PyTorch's top-k, by which a search chooses its beams."""

GATHERS: Final = (
    r"\bvectorized_gather_kernel\b|\bindexSelect(?:Large|Small)Index\b|\bindex_kernel_impl\b"
    r"|\b_scatter_gather_elementwise_kernel\b"
)
"""PyTorch's kernels of index_select, gather and x[index]."""

FEWEST: Final = 8
"""Keys and values of four layers. Neighbours of a point, or tokens of an expert, are gathered once
or a few times behind a top-k, and a product follows."""

CACHES_PCT: Final = 15.0
"""The caches of a short text take less, and are reordered for good reason."""

CHANGE: Final = (
    "reorder only what differs between beams: keys and values of cross-attention are the same for"
    " all beams of a request",
    "keep the ancestor of each beam at each position, and gather in attention, or once at the end",
)
"""A translator of twelve layers took 10.3 ms a token, and 5.9 once it reordered the keys and values
of self-attention alone (H200, 2026-12-01)."""


def cache_reordered(subject: JudgedReport) -> Iterator[Finding]:
    """Gathers of many tensors behind a top-k, with no product between: all layers' caches are put
    into the order of the new beams. What has to be gathered no trace tells."""
    if subject.mostly_captures or not matching(subject.kernels["name"], CHOOSES).any():
        return
    rows = _behind_top_k(subject.kernels).with_columns(pl.col("ns").alias("gain_ns"))
    if share_of_kernels(subject, rows) < CACHES_PCT or trains(subject):
        return
    runs = rows["part"].n_unique()
    yield kernel_finding(
        subject,
        rows,
        rule="cache-reordered",
        title="beam search gathers its caches at each token:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE,
        evidence=(
            in_words(subject, rows),
            f"{round(len(rows) / runs):,} tensors are gathered behind each top-k",
        ),
    )


def _behind_top_k(kernels: pl.DataFrame) -> pl.DataFrame:
    """The gathers behind a top-k and before the next product or attention on the stream, where they
    are `FEWEST` or more; `part` numbers these."""
    matrix = pl.col("class").is_in(MATRIX_CLASSES).fill_null(value=False)
    marked = kernels.with_columns(
        matching(kernels["name"], CHOOSES).alias("chooses"),
        matching(kernels["name"], GATHERS).alias("gathers"),
        pl.struct("lane", matrix.cum_sum()).rle_id().alias("part"),
    )
    chosen = pl.col("chooses").cum_max().over("part")
    behind = marked.filter(chosen & pl.col("gathers"))
    return behind.filter(pl.len().over("part") >= FEWEST).drop("chooses", "gathers")
