"""`unfused-elementwise`: chains of kernels that only read and write memory."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import (
    LAUNCHES_TOO,
    JudgedReport,
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.base.units import percent

CHAINS_PCT: Final = 15.0
"""Chains with less of the kernel time are the usual glue of a model (verdict §4)."""

FUSED_MOST: Final = 8
"""Of a longer chain, so many kernels at most are taken as one: its tensors change."""

WHOLE_ROWS: Final = ("norm", "softmax")
"""These need a row before they give its first number: a fused kernel holds one of them."""

CHANGE: Final = (
    "torch.compile the module: it fuses neighbours into one kernel",
    "fused operations: F.layer_norm or rms_norm, GELU and dropout in one call; in-place where the"
    " input is not needed any more",
    "a fused kernel of your own in Triton",
)


def unfused_elementwise(subject: JudgedReport) -> Iterator[Finding]:
    """Elementwise, norm, softmax and copy kernels that follow one another.

    Each reads what the one before wrote. Fused, what lies between is neither written nor read: a
    chain then takes as long as its longest kernel. (`fusion-eager`: 103 of 260 us by that; the
    fused kernel takes 97 us, torch.compile's 117 us.)
    """
    chains = _pieces(subject.kernels.filter(pl.col("job") == "chain"))
    if share_of_kernels(subject, chains) < CHAINS_PCT:
        return
    pieces = chains["piece"].n_unique()
    share = percent(share_of_kernels(subject, chains))
    per_step, a_step = subject.per_step, " a step" if subject.of_steps else ""
    yield kernel_finding(
        subject,
        chains,
        rule="unfused-elementwise",
        title=f"{per_step(len(chains)):,} memory-bound kernels not fused: {share} of kernel time",
        change=CHANGE,
        evidence=(
            in_words(subject, chains),
            f"they are {per_step(pieces):,} chains{a_step}; fused, each takes as long as its"
            " longest kernel",
            LAUNCHES_TOO,
        ),
    )


def _pieces(kernels: pl.DataFrame) -> pl.DataFrame:
    """Rows of chains of two or more, with `piece` and `gain_ns`: each takes the same share of what
    its chain needs beyond its longest kernel."""
    row = pl.int_range(pl.len(), dtype=pl.UInt32)
    whole_row = pl.col("class").is_in(WHOLE_ROWS)
    part = pl.struct("run", whole_row.cum_sum()).rle_id().alias("part")
    cut = kernels.with_columns(part)
    begins = (pl.col("part") != pl.col("part").shift(1)).fill_null(value=True)
    at = (row - pl.when(begins).then(row).forward_fill()) // FUSED_MOST
    cut = cut.with_columns(pl.struct("part", at).rle_id().alias("piece"))
    pieces = cut.group_by("piece", maintain_order=True).agg(
        pl.len().alias("count"), pl.col("ns").sum().alias("sum"), pl.col("ns").max().alias("most")
    )
    piece = cut["piece"]
    left = (pieces["most"] / pieces["sum"]).fill_nan(1.0)[piece]
    gain = (cut["ns"] * (1 - left)).round(0).cast(pl.Int64)
    return cut.with_columns(gain.alias("gain_ns")).filter(pieces["count"][piece] > 1)
