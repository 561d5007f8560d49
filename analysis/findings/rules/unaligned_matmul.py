"""`unaligned-matmul`: matrix products by slow kernels, because of their sizes."""

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
from nsysflow.analysis.findings.kernels import capability
from nsysflow.base.units import percent

HOPPER: Final = 90
BLACKWELL_DATACENTER: Final = 100
"""From sm_90 to sm_103 cuBLAS has kernels of the GPU's own generation. On sm_86, sm_89 and sm_120
those of sm_80 are the native ones."""

AMPERE: Final = 80

LEFT_OF_OLDEST: Final = 0.2
LEFT_OF_UNALIGNED: Final = 0.35
LEFT_OF_OLDER: Final = 0.6
"""What is left of the time with aligned sizes and kernels of the GPU's own generation. Measured on
an H200 (torch 2.11, 2026-11-22): a vocabulary of 50257 instead of 50304 ran `cutlass_75…align1` at
148 instead of 770 TFLOP/s in bf16 (0.19); align2 at 261 (0.34); TF32 align1 at 116 instead of 331
(0.35); aligned sm_80 kernels took 1/0.55 to 1/0.74 of the others' time for the same product."""

LEFT_BEFORE_HOPPER: Final = 0.5
"""Not measured. An A100's unaligned kernels are those of sm_75, whose instruction does half of the
work of its own (m16n8k8 instead of m16n8k16)."""

PAD: Final = (
    "pad sizes to a multiple of 8, a vocabulary to one of 64: 50257 → 50304",
    "torch.compile pads matmuls where that is faster",
    "look for odd sizes in batch x sequence, hidden sizes and classes: rows must begin at 16 bytes",
)
NEWER: Final = (
    "a newer PyTorch and cuBLAS: later ones have more kernels of the GPU's own generation",
    "torch.compile(mode='max-autotune'): Triton kernels compete with cuBLAS",
    "other sizes: multiples of 64, and fewer long, thin products",
)


def unaligned_matmul(subject: JudgedReport) -> Iterator[Finding]:
    """Tensor-core kernels for data that is not aligned, and those of an older generation of GPU.

    cuBLAS has fast kernels for rows that begin at a multiple of 16 bytes: 8 numbers of 16 bits, 4
    of TF32. For others it takes kernels that load number by number.
    """
    rows = _slower_than_need_be(subject)
    if rows.is_empty():
        return
    odd_ns = int(rows.filter("odd")["gain_ns"].sum())
    mostly_odd = 2 * odd_ns >= int(rows["gain_ns"].sum())
    what = "with unaligned sizes" if mostly_odd else "by kernels of an older GPU generation"
    yield kernel_finding(
        subject,
        rows,
        rule="unaligned-matmul",
        title=f"matmul {what}: {percent(share_of_kernels(subject, rows))} of kernel time",
        change=PAD if mostly_odd else NEWER,
        evidence=(in_words(subject, rows),),
    )


def _slower_than_need_be(subject: JudgedReport) -> pl.DataFrame:
    """The matmul kernels that are not the GPU's fastest, with `gain_ns` (what those would take
    less) and `odd` (whether sizes are the reason, rather than the library)."""
    kernels = subject.kernels
    newest = {
        device: capability(gpu or "", kernels["generation"].drop_nulls())
        for device, gpu in subject.tables.accounting[["device", "name"]].rows()
    }
    own = pl.col("device").replace_strict(newest, default=None, return_dtype=pl.Int64)
    with_own = own.is_between(HOPPER, BLACKWELL_DATACENTER + 9)
    old = pl.col("generation")
    oldest, older = (old < AMPERE) & (own >= AMPERE), (old < HOPPER) & with_own
    unaligned = pl.col("aligned_to") <= 2
    left = (
        pl.when((unaligned | oldest) & ~with_own.fill_null(value=False))
        .then(LEFT_BEFORE_HOPPER)
        .when(oldest)
        .then(LEFT_OF_OLDEST)
        .when(unaligned)
        .then(LEFT_OF_UNALIGNED)
        .when(older)
        .then(LEFT_OF_OLDER)
    )
    saved = (pl.col("ns") * (1 - left)).round().cast(pl.Int64)
    rows = kernels.filter((pl.col("class") == "matmul") & ~pl.col("simt")).with_columns(
        saved.alias("gain_ns"), (unaligned | oldest).fill_null(value=False).alias("odd")
    )
    return rows.drop_nulls("gain_ns")
