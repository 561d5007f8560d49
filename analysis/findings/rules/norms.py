"""`unfused-norm`: a norm that the program writes out, with a kernel for each operation.

Each operation is a letter, and a norm is a pattern of them: a mean or variance, the small number
that is added to it, its root, and what is divided or multiplied by that. Of its gradient only that
of the root is as rare; what stands beside that on its stream is the rest.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import (
    in_words,
    kernel_finding,
    kernels_by_pass,
    share_of_kernels,
)
from nsysflow.analysis.findings.launches import counting_launches
from nsysflow.analysis.schema import GRID
from nsysflow.base.units import number, percent

OPERATIONS: Final[Mapping[str, str]] = {
    "M": r"\breduce_kernel<.*\bMeanOps<",
    "V": r"\breduce_kernel<.*\bWelfordOps<",
    "S": r"\breduce_kernel<.*\bsum_functor<",
    "E": r"\bCUDAFunctorOnSelf_add<",
    "R": r"\br?sqrt_kernel_cuda\(",
    "P": r"\bpow_tensor_scalar_kernel_impl<",
    "D": r"\bBinaryFunctor<.*\bDivFunctor<",
    "X": r"\bBinaryFunctor<.*\bMulFunctor<",
    "U": r"\b[AB]UnaryFunctor<.*\bMulFunctor<",
    "A": r"\bCUDAFunctor_add<",
    "N": r"\bneg_kernel_cuda\(",
    "C": r"copy_kernel_cuda\(",
}
"""PyTorch's kernels: means (M), variances (V), sums (S), a tensor plus a number (E), roots and
their inverse (R), powers (P), quotients (D) and products (X) of two tensors, products with a number
(U), sums and differences of two (A), negation (N), copies and casts (C)."""

OTHER: Final = "-"

FORWARD: Final = re.compile(
    r"(?:M[AC]{0,3})?C?[PX]?(?:[MV]A?E(?P<root>R)A?|(?P<rows>V)A?X?(?P<std>E))(?P<scaled>[DX])"
    r"C?X?C?A?"
)
"""Layer norm by hand is M A P M A E R D X A, with a standard deviation M V A X E D A; the norm of
LLaMA is C P M E R X C X."""

OF_LAYER_NORM: Final = re.compile(r"[SXDNAUC]{0,10}(?P<root>UD|UPX|PUX)[SXNAUCP]{0,11}")
OF_RMS_NORM: Final = re.compile(r"[SXDNAUC]{0,6}(?P<root>UD|UPX|PUX)[SXNAUCP]{0,6}")
"""The gradient of a root or of its inverse, which is short, and what is beside it. That of layer
norm is S X X S D D N X D S, the root's U D, and N S A U U X N S A U A; that of LLaMA's norm is
X S X X S, the root's U P X, and X U U X A."""

LONGER: Final = 2
"""What a norm scales has so many times the blocks of a root: that has a number for each row."""

FEWEST: Final = 2
"""A single norm is not of layers."""

NORM_PCT: Final = 5.0
"""Less of the kernel time is not worth another form of the program."""

CHANGE_OF_LAYER_NORM: Final = (
    "F.layer_norm over the last dimensions; for groups of channels F.group_norm",
    "over the channels of images: F.layer_norm(x.permute(0, 2, 3, 1), (channels,), weight, bias,"
    " eps).permute(0, 3, 1, 2), which copies nothing where x is channels_last",
    "torch.compile the norm's module: it makes one or two kernels of it",
)
CHANGE_OF_RMS_NORM: Final = (
    "F.rms_norm(x, (channels,), weight, eps), one kernel from PyTorch 2.9 on, with a weight of x's"
    " type",
    "before that a fused one, such as Liger's, or torch.compile the norm's module",
)


def unfused_norm(subject: JudgedReport) -> Iterator[Finding]:
    """Means or variances, their roots and what these scale, with their gradients. Fused, they
    take as long as the longest of their kernels, and gradients as two such.

    A U-Net with 24 layer norms over channels took 85.0 ms a step, and 55.6 with F.layer_norm (H200,
    2026-11-30).
    """
    letters = _letters(subject)
    if "E" not in letters["letter"]:  # each norm adds a number
        return
    kernels = _in_letters(subject, letters)
    by_hand = _found(kernels, FORWARD, backward=False)
    centred = _are_centred(by_hand)
    norms = subject.per_step(by_hand["norm"].n_unique())
    if norms < FEWEST:
        return
    gradient = OF_LAYER_NORM if centred else OF_RMS_NORM
    gradients = _found(kernels, gradient, backward=True)
    rows = pl.concat([by_hand, gradients]).unique("op", keep="first", maintain_order=True)
    share = share_of_kernels(subject, rows)
    if share < NORM_PCT:
        return
    finding = kernel_finding(
        subject,
        rows.sort("op"),
        rule="unfused-norm",
        title=f"{number(norms)} norms{subject.a_step} run one kernel for each operation:"
        f" {percent(share)} of kernel time",
        change=CHANGE_OF_LAYER_NORM if centred else CHANGE_OF_RMS_NORM,
        evidence=(
            "a mean or variance, a root and a product or quotient follow each other:"
            f" {in_words(subject, by_hand)}",
            *_of_gradients(subject, gradients),
            "the saving assumes that a fused norm takes as long as its longest kernel now, and its"
            " gradient twice that",
        ),
        at=by_hand,
    )
    yield counting_launches(subject, finding, rows["op"], inside_calls=True)


def _are_centred(by_hand: pl.DataFrame) -> bool:
    """Whether norms subtract a mean first, or divide by a deviation from it."""
    centred = pl.col("letter").is_in(["A", "V"]) & ~pl.col("scaled")
    return bool(by_hand.select(centred.any()).item())


def _of_gradients(subject: JudgedReport, rows: pl.DataFrame) -> Iterator[str]:
    """What the gradients take, if there are some."""
    if not rows.is_empty():
        yield f"their gradients, found by the gradient of the root: {in_words(subject, rows)}"


def _letters(subject: JudgedReport) -> pl.DataFrame:
    """The `letter` of each `name` of a judged kernel."""
    text, letter = pl.col("name").cast(pl.String), pl.lit(OTHER)
    for operation, pattern in reversed([*OPERATIONS.items()]):
        letter = pl.when(text.str.contains(pattern)).then(pl.lit(operation)).otherwise(letter)
    return subject.kernels[["name"]].unique().with_columns(letter.alias("letter"))


def _in_letters(subject: JudgedReport, letters: pl.DataFrame) -> pl.DataFrame:
    """The judged kernels with the letter of each, and the `columns` and `blocks` of its grid."""
    kernels = kernels_by_pass(subject)
    x, y, z = (pl.col(name) for name in GRID)
    grids = subject.grids.select(x.alias("columns"), (x * y * z).alias("blocks"))
    kernels = kernels.join(letters, on="name", how="left", maintain_order="left")
    tuned = (pl.col("job") == "optimizer").fill_null(value=False)
    return kernels.with_columns(
        pl.when(tuned).then(pl.lit(OTHER)).otherwise("letter").alias("letter"),
        *grids.select(pl.all().fill_null(0).gather(kernels["detail"])),
    )


def _found(kernels: pl.DataFrame, pattern: re.Pattern[str], *, backward: bool) -> pl.DataFrame:
    """The kernels of norms: `norm` numbers these, `scaled` says whether it comes behind the root,
    and `gain_ns` is its share of what its norm needs beyond its longest kernel; of gradients beyond
    two such, as weights have one, too.

    Args:
        kernels: of `_in_letters`.
        pattern: of norms or their gradients.
        backward: which pass it is for.
    """
    text, blocks, columns = "".join(kernels["letter"]), kernels["blocks"], kernels["columns"]
    passes = kernels["backward"].fill_null(value=False)
    found: list[tuple[int, int, bool]] = []
    for norm, match in enumerate(_matches(kernels, pattern, text)):
        at = {name: match.start(name) for name in match.groupdict()}
        root = max(at["root"], at.get("std", -1))
        whole = range(*match.span())
        large = blocks[at["scaled"]] if "scaled" in at else max(blocks[row] for row in whole)
        by_rows = at.get("rows", -1) < 0 or columns[at["rows"]] > 1
        if passes[root] == backward and large >= LONGER * blocks[root] and by_rows:
            found += [(row, norm, row > root) for row in whole]
    schema = {"row": pl.UInt32, "norm": pl.UInt32, "scaled": pl.Boolean}
    rows = pl.DataFrame(found, schema=schema, orient="row")
    ns = pl.col("ns")
    kept = (1 + backward) * ns.max() / ns.sum()
    gain = ns * (1 - kept).clip(0).over("norm").fill_nan(0)
    rows = kernels[rows["row"]].hstack(rows.select("norm", "scaled"))
    return rows.with_columns(gain.round().cast(pl.Int64).alias("gain_ns"))


def _matches(kernels: pl.DataFrame, pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Where the pattern is in the letters of each stream."""
    streams = kernels.with_row_index().group_by("lane", maintain_order=True)
    for first, count in streams.agg(pl.col("index").first(), pl.len())[["index", "len"]].rows():
        yield from pattern.finditer(text, first, first + count)
