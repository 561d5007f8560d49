"""`unfused-attention`: a softmax between two matmuls, each of them a pass over all scores."""

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
from nsysflow.analysis.findings.kernels import MOST_GLUE, covered, is_glue, run_of
from nsysflow.base.units import duration, percent

CHANGE: Final = (
    "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), in 16 bits",
    "Hugging Face: from_pretrained(..., attn_implementation='sdpa')",
    "a mask or bias of its own: torch.nn.attention.flex_attention, compiled; or FlashAttention",
)

_BACKWARD: Final = r"(?i)backward"


def unfused_attention(subject: JudgedReport) -> Iterator[Finding]:
    """All that fused attention replaces: scale, mask, casts, softmax, dropout, and the matmuls.

    Fused attention keeps the scores on the chip. Its matmuls no longer write or read them, and how
    much faster they are then no trace can know: on an H100 a layer of 2048 tokens took 7.8 ms so,
    of which 4.8 ms between the matmuls, and 1.7 ms fused (2026-11-25). So the bound is that nothing
    of it takes any time.
    """
    replaced = subject.kernels.filter(replaced_by_fused(subject.kernels))
    rows = replaced.with_columns(pl.col("ns").alias("gain_ns"))
    if rows.is_empty():
        return
    between = rows.filter(pl.col("job") == "attention")
    matmuls = rows.filter(pl.col("class") == "matmul")
    count = subject.per_step(between["run"].n_unique())
    yield kernel_finding(
        subject,
        rows,
        rule="unfused-attention",
        title="attention is not fused:"
        f" {percent(share_of_kernels(subject, between))} of kernel time between its matmuls",
        change=CHANGE,
        evidence=(
            f"matmul, softmax, matmul: {count:,} times{' a step' if subject.of_steps else ''}",
            f"between the matmuls: {in_words(subject, between)}",
            f"its matmuls take {duration(subject.worst_ns(matmuls, 'ns'))}, and less when fused",
            LAUNCHES_TOO,
        ),
    )


def replaced_by_fused(kernels: pl.DataFrame) -> pl.Series:
    """Whether fused attention replaces each kernel: those between two matmuls with a softmax, the
    matmul before and the one behind, and in the backward pass, where a product has two gradients,
    another one on each side with what stands between the two.

    Args:
        kernels: as of `kernels_in_order`.
    """
    backward = pl.col("softmax") & pl.col("name").cast(pl.String).str.contains(_BACKWARD)
    backwards = kernels.select(backward).to_series().arg_true()
    runs = run_of(kernels, pl.col("job") == "attention")
    has_backward = backwards.search_sorted(runs["last"], side="right") > backwards.search_sorted(
        runs["first"]
    )
    edges = runs.with_columns(
        has_backward.alias("backward"),
        (pl.col("first") - 1).alias("before"),
        (pl.col("last") + 1).alias("behind"),
    )
    pairs = _matmuls(kernels)
    edges = edges.join(
        pairs.select(before="row", earlier="earlier"),
        on="before",
        how="left",
        maintain_order="left",
    ).join(
        pairs.select(behind="row", later="later"), on="behind", how="left", maintain_order="left"
    )
    outer = edges.select(
        first=pl.when("backward").then("earlier").otherwise("before"),
        last=pl.when("backward").then("later").otherwise("behind"),
    )
    return covered(kernels, outer)


def _matmuls(kernels: pl.DataFrame) -> pl.DataFrame:
    """`row`, `earlier`, `later`: each matmul, and its neighbours on the same stream. Only glue may
    stand between two neighbours. A matmul without a neighbour has its own row there."""
    rows = kernels.with_row_index("row")
    matmul = (pl.col("class") == "matmul").fill_null(value=False)
    other = (~matmul & ~is_glue().fill_null(value=False)).cum_sum()
    found = rows.select("row", "lane", other.alias("others"), matmul.alias("matmul"))
    found = found.filter("matmul")
    near = pl.col("row") - pl.col("row").shift(1) <= MOST_GLUE + 1
    same = (pl.col("lane") == pl.col("lane").shift(1)) & (
        pl.col("others") == pl.col("others").shift(1)
    )
    joined = (near & same).fill_null(value=False)
    return found.with_columns(joined.alias("joined")).select(
        "row",
        earlier=pl.when("joined").then(pl.col("row").shift(1)).otherwise("row"),
        later=pl.when(pl.col("joined").shift(-1, fill_value=False))
        .then(pl.col("row").shift(-1))
        .otherwise("row"),
    )
