"""Tensors that are copied into another order.

* `layout-transpose`: kernels that only put a tensor into another order.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    in_words,
    kernel_finding,
    share_of_kernels,
)
from nsysflow.analysis.findings.rules.loss import kernels_of_losses, strided_softmaxes
from nsysflow.analysis.findings.rules.tensor_cores import conversions_of_fp32
from nsysflow.analysis.frames.columns import matching
from nsysflow.base.units import percent

LAYOUT_PCT: Final = 5.0
"""Some copies into another order are needed: attention's heads took 2 % of the kernel time of
GPT-2 with fused attention. NCHW under cuDNN's tensor cores took 18 % (H200, 2026-11-22)."""

CONVOLUTIONS: Final = (
    "channels_last: model.to(memory_format=torch.channels_last), and its input likewise",
    "no .permute() or NCHW operation between convolutions: each makes cuDNN convert again",
    "of Conv1d: as Conv2d with a height of 1, as channels_last is for tensors of four dimensions",
)
FASTER_TOO: Final = (
    "convolutions and norms are faster in NHWC, too: it saves more than these conversions"
)
BATCH_NORM: Final = r"\bbn_(?:fw|bw)\w*_1C11"
"""cuDNN's kernels of BatchNorm for NCHW. It has some for NHWC, too."""

COMPILED_CONVOLUTIONS: Final = (
    "torch.compile the module: it puts convolutions and what is between them into one order",
    "channels_last for model and input, but time it: what reads only NCHW then needs copies",
)
COPIED_BACK: Final = (
    "GroupNorm, InstanceNorm and others read only NCHW: four programs with channels_last, not"
    " compiled, took 4 % less to 11 % longer (H200)"
)
NHWC: Final = "(?i)nhwc"
CONVERTS: Final = "(?i)nhwc|convertTensor"
"""cuDNN's conversions between both orders."""

MIOPEN: Final = "batched_transpose_"
"""MIOpen's kernels that convert between NCHW and NHWC."""

CONVOLUTIONS_OF_MIOPEN: Final = (
    "channels_last, model and input, with PYTORCH_MIOPEN_SUGGEST_NHWC=1 in the environment:"
    " MIOpen then reads that order as it is",
)
GROUP_NORM: Final = r"\bComputeFusedParamsCUDAKernel\b"
"""A kernel that only PyTorch's GroupNorm has."""

READ_AS_NCHW: Final = r"\b(?:RowwiseMoments|ComputeInternalGradients)CUDAKernel\b"
"""What GroupNorm runs first, in forward and backward. Both read NCHW alone, so that a tensor in
channels_last is copied before."""

GROUP_NORM_SHARE: Final = 0.25
"""If so much of the time is of copies right before a GroupNorm, it is the reason for them: behind
it the next convolution copies back."""

GROUP_NORMS: Final = (
    "torch.compile the module: GroupNorm reads NCHW alone, the compiled one reads both orders",
    "a group norm for channels_last, such as apex.contrib.group_norm.GroupNorm",
    "leave the model in NCHW, if few of its layers are convolutions",
)
COPIED_FOR_NORMS: Final = (
    "GroupNorm reads NCHW alone: a tensor in channels_last is copied before it, and back for the"
    " next convolution"
)
COPIES: Final = (
    "no .contiguous() or .reshape() of a transposed tensor: matmul and attention can read it",
    "keep one order through the layer: transpose a weight once, at the start",
    "torch.compile: it reads through transposes, and fuses the copies that are left",
)


def layout_transpose(subject: JudgedReport) -> Iterator[Finding]:
    """cuDNN's conversions between NCHW and NHWC, transposes, and copies of strided tensors; not
    those of a loss over many logits, which are of parts of these, or of a strided softmax.

    Where channels_last takes the conversions away, convolutions and BatchNorm get faster, too: on
    an H100 2.9 of 13.8 ms were conversions, and 6.8 ms were saved (2026-11-25). How much that is
    depends on shapes that no kernel's name tells, so these are what is saved at least. Copies that
    are not beside a convolution stay: a matrix product or an FFT may need them. Without BatchNorm
    others may come, so these are what is saved at most.
    """
    orders = pl.col("layout") & (pl.col("job").is_null() | (pl.col("job") == "chain"))
    if share_of_kernels(subject, subject.kernels.filter(orders)) < LAYOUT_PCT:
        return
    conv = pl.col("class") == "conv"
    rows = subject.kernels.with_columns(
        pl.col("ns").alias("gain_ns"),
        pl.col("name").shift(-1).over("lane").alias("next"),
        (conv.shift(1).over("lane") | conv.shift(-1).over("lane")).alias("beside"),
    ).filter(orders)
    rows = rows.join(conversions_of_fp32(subject)[["name"]], on="name", how="anti")
    others = pl.concat([kernels_of_losses(subject)[["op"]], strided_softmaxes(subject)[["op"]]])
    rows = rows.join(others, on="op", how="anti", maintain_order="left")
    if share_of_kernels(subject, rows) < LAYOUT_PCT:
        return
    change, why = _of_order(subject, rows)
    if change in {CONVOLUTIONS, COMPILED_CONVOLUTIONS}:
        rows = rows.filter(matching(rows["name"], CONVERTS) | pl.col("beside"))
    finding = kernel_finding(
        subject,
        rows,
        rule="layout-transpose",
        title="tensors copied into another order:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=change,
        evidence=(in_words(subject, rows), *why),
        saves_more=change is CONVOLUTIONS,
    )
    in_a_line = change in {CONVOLUTIONS, CONVOLUTIONS_OF_MIOPEN}
    yield replace(finding, takes="line" if in_a_line else None)


def _of_order(subject: JudgedReport, rows: pl.DataFrame) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What to do about copies into another order, and what there is to know of them.

    Args:
        subject: the judged part.
        rows: the copies, with `next`, the name of the kernel behind each on its stream, and
            whether one is right `beside` a convolution.
    """
    whole_ns = int(rows["ns"].sum())
    if matching(rows["name"], MIOPEN).any():
        return CONVOLUTIONS_OF_MIOPEN, ()
    if 2 * _ns(rows, "name", CONVERTS) > whole_ns:
        if matching(subject.kernels["name"], BATCH_NORM).any():
            return CONVOLUTIONS, (FASTER_TOO,)
        return COMPILED_CONVOLUTIONS, (COPIED_BACK,)
    normed = matching(subject.kernels["name"], GROUP_NORM).any()
    if normed and _ns(rows, "next", READ_AS_NCHW) >= GROUP_NORM_SHARE * whole_ns:
        return GROUP_NORMS, (COPIED_FOR_NORMS,)
    beside_ns = int(rows.filter("beside")["ns"].sum())
    if 2 * beside_ns > whole_ns and _convolves_nchw(subject.kernels):
        return (COMPILED_CONVOLUTIONS, (COPIED_BACK,)) if normed else (CONVOLUTIONS, (FASTER_TOO,))
    return COPIES, ()


def _ns(rows: pl.DataFrame, column: str, pattern: str) -> int:
    """The time of the rows whose text in a column matches."""
    return int(rows.filter(matching(rows[column], pattern))["ns"].sum())


NCHW_PCT: Final = 10.0
"""Convolutions with less of the kernel time are a small part of a model."""


def _convolves_nchw(kernels: pl.DataFrame) -> bool:
    """Whether most convolutions, and a good part of the kernel time, are of kernels that read NCHW:
    then a copy into another order goes with the order of the convolutions. Those of float32 off the
    tensor cores read NCHW in any case."""
    convolutions = kernels.filter(pl.col("class") == "conv")
    of_nchw = ~matching(convolutions["name"], NHWC) & ~convolutions["simt"]
    nchw_ns, all_ns = (int(of["ns"].sum()) for of in (convolutions.filter(of_nchw), convolutions))
    return 2 * nchw_ns > all_ns and 100 * nchw_ns >= NCHW_PCT * int(kernels["ns"].sum())
