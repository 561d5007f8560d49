"""Arithmetic that is slower than the tensor cores allow.

* `fp32-matmul`: float32 matrix products that do not use the tensor cores.
* `slow-convolution`: convolutions whose sizes suit no kernel of the tensor cores.
* `fp64-kernels`: kernels that compute in float64.
* `unaligned-matmul`: matrix products by slow kernels, because of their sizes.
* `low-mfu`: matrix kernels far below the peak of the arithmetic that they ran in.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, cast

import polars as pl

from nsysflow.analysis.events.operator_work import unaligned_sizes
from nsysflow.analysis.events.operators import shapes_in_words
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.gpus import gpu_name
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.findings.kernels import (
    AMPERE,
    MATRIX_CLASSES,
    VOLTA,
    capability,
    largest_operators,
    peak_ratio,
)
from nsysflow.analysis.findings.rules.extra_kernels import kernels_to_drop
from nsysflow.analysis.findings.rules.matrices import parts_of_solvers, tiny_products
from nsysflow.analysis.findings.rules.occupancy import too_small
from nsysflow.base.peaks import Unit, peak_flops
from nsysflow.base.units import flops, percent

LEAST_RATIO: Final = 2.0
"""On a GPU that `nsysflow.base.peaks` does not list: every GPU with tensor cores multiplies 16-bit
numbers at least twice as fast on these as float32 numbers beside them (Volta, Turing, GA10x and
AD10x whitepapers, dense, with float32 sums)."""

CHANGE_OF_FP32: Final = (
    "torch.set_float32_matmul_precision('high'): TF32 on the tensor cores; for convolutions"
    " torch.backends.cudnn.allow_tf32 = True",
    "torch.autocast('cuda', torch.bfloat16): twice the rate of TF32, and half the bytes",
    "in a Triton kernel of your own: tl.dot(a, b, input_precision='tf32')",
)

CHANGE_BEFORE_AMPERE: Final = (
    "float16 is what the tensor cores of this GPU take; it has neither TF32 nor bfloat16",
    "in PyTorch: torch.autocast('cuda', torch.float16), with torch.amp.GradScaler in training",
)


def fp32_matmul(subject: JudgedReport) -> Iterator[Finding]:
    """Matmuls and convolutions that run on the cores for float32 instead of the tensor cores.

    PyTorch multiplies float32 tensors so by default. On an H200 the same training step took 64.9 ms
    with and 11.9 ms without (2026-11-22). Products within a solver stay as they are, whatever
    PyTorch is told, and tensor cores make those of tiny matrices no faster. Nor does TF32 help
    convolutions that stay off them where others are on them.
    """
    gpus = subject.tables.accounting[["device", "name"]]
    ratios = _ratios(gpus)
    others = tiny_products(subject) | parts_of_solvers(subject) | _convolutions_by_size(subject)
    slow = subject.kernels.filter(pl.col("simt") & ~others).with_columns(_gain_ns(ratios))
    reordered = conversions_of_fp32(subject).with_columns(pl.col("ns").alias("gain_ns"))
    rows = pl.concat([slow, reordered]) if slow["gain_ns"].sum() > 0 else slow
    rows = rows.filter(pl.col("gain_ns") > 0)  # TF32 is no faster on an RTX 4090 or 5090
    known = {device: capability(gpu or "", _NO_KERNELS) for device, gpu in gpus.rows()}
    own = pl.col("device").replace_strict(known, default=None, return_dtype=pl.Int64)
    rows = rows.filter((own >= VOLTA).fill_null(value=True))
    if rows.is_empty():
        return
    before_ampere = len(rows.filter(own < AMPERE)) == len(rows)
    finding = kernel_finding(
        subject,
        rows,
        rule="fp32-matmul",
        title="float32 matmul off the tensor cores:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_BEFORE_AMPERE if before_ampere else CHANGE_OF_FP32,
        evidence=(in_words(subject, rows), *_fp32_rates(gpus, ratios)),
    )
    yield replace(finding, fits=before_ampere)


def _ratios(gpus: pl.DataFrame) -> dict[int, float | None]:
    """How many times float32's peak TF32 has, by `device`; None for a GPU without peaks."""
    named = gpus[["device", "name"]].rows()
    return {device: peak_ratio(gpu or "", "float32", "tf32") for device, gpu in named}


def _gain_ns(ratios: dict[int, float | None]) -> pl.Expr:
    """What float32 kernels take less at the peak of TF32."""
    ratio = pl.col("device").replace_strict(ratios, default=None, return_dtype=pl.Float64)
    saved = pl.col("ns") * (1 - 1 / ratio.fill_null(LEAST_RATIO))
    return saved.round().cast(pl.Int64).alias("gain_ns")


def conversions_of_fp32(subject: JudgedReport) -> pl.DataFrame:
    """The kernels that reorder tensors for float32 convolutions off the tensor cores, which take
    NCHW, where most of the convolutions' time is theirs. Those on the tensor cores take NHWC."""
    convolutions = subject.kernels.filter(pl.col("class") == "conv")
    in_nchw = int(convolutions.filter("simt")["ns"].sum())
    converts = pl.col("layout") & pl.col("name").cast(pl.String).str.contains(CONVERSIONS)
    return subject.kernels.filter(converts & (2 * in_nchw > int(convolutions["ns"].sum())))


CONVERSIONS: Final = r"(?i)nhwc\w*<float"
"""Names of cuDNN's kernels that reorder float32 tensors for convolutions."""

_NO_KERNELS: Final = pl.Series(dtype=pl.Int64)
"""A kernel of an older GPU runs on newer ones, too: only the name says that a GPU has no TF32."""


def _fp32_rates(gpus: pl.DataFrame, ratios: dict[int, float | None]) -> Iterator[str]:
    """How much faster the tensor cores are, and who says so."""
    for name, device in dict(zip(gpus["name"], gpus["device"], strict=True)).items():
        ratio = ratios[device]
        if ratio is None:
            yield f"tensor cores are at least {LEAST_RATIO:g} times as fast where a GPU has them"
        else:
            yield f"{name}: TF32 has {ratio:.1f} times the peak of float32 (its data sheet)"


ON_TENSOR_CORES: Final = ("tf32", "bf16", "fp16", "fp8")
"""Units of matrix kernels on the tensor cores."""

CONVOLUTIONS_PCT: Final = 10.0
"""Less of the kernel time is not worth another convolution: a first layer of few channels."""

FEW_CONVOLUTIONS: Final = 3
"""So few a step are filters, such as a blur; more are layers."""

CHANGE_OF_FILTERS: Final = (
    "a blur by a Gaussian or a box is separable: two convolutions, with k x 1 and 1 x k weights,"
    " instead of one with k x k",
    "another large filter: multiply spectra, torch.fft.rfft2 and irfft2",
)

CHANGE_OF_LAYERS: Final = (
    "torch.backends.cudnn.benchmark = True: cuDNN then times its kernels for these sizes once, and"
    " takes the fastest",
    "channels in multiples of 8, in memory_format=torch.channels_last",
)


def _convolutions_by_size(subject: JudgedReport) -> pl.Series:
    """Whether each kernel is a float32 convolution off the tensor cores, while others are on them:
    TF32 is on then, and cuDNN has no such kernel for its sizes."""
    is_convolution = pl.col("class") == "conv"
    on = (is_convolution & pl.col("unit").is_in(ON_TENSOR_CORES)).any()
    off = is_convolution & pl.col("simt") & on
    return subject.kernels.select(off.fill_null(value=False)).to_series()


def slow_convolution(subject: JudgedReport) -> Iterator[Finding]:
    """Float32 convolutions that cuDNN computes off the tensor cores, for their sizes.

    A blur of 61 x 61 weights took 47.4 of 70.6 ms; as two convolutions the step took 24.6 (H200,
    2026-12-01). So the bound of few is no time at all; that of layers is the peak of TF32.
    """
    rows = kernels_to_drop(subject, _convolutions_by_size(subject), CONVOLUTIONS_PCT)
    if rows.is_empty():
        return
    change = CHANGE_OF_FILTERS + CHANGE_OF_LAYERS
    if subject.per_step(len(rows)) > FEW_CONVOLUTIONS:
        rows = rows.with_columns(_gain_ns(_ratios(subject.tables.accounting)))
        change = CHANGE_OF_LAYERS + CHANGE_OF_FILTERS
    yield kernel_finding(
        subject,
        rows,
        rule="slow-convolution",
        title="float32 convolutions whose sizes suit no tensor core:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=change,
        evidence=(in_words(subject, rows), "other convolutions are on the tensor cores"),
    )


DOUBLES_PCT: Final = 5.0
"""A few small kernels in float64, such as a sum of losses, are no mistake."""

FASTER_MATMUL: Final = 8
"""TF32 has 7.4 times the peak of float64 on an H100 and 8 times on an A100, both on the tensor
cores (NVIDIA's architecture papers, table 1, dense)."""

FASTER: Final = 2
"""Other kernels read and write half the bytes in float32."""

AS_LONG: Final = 1.1
"""A kernel that takes at most so many times as long as one that leaves SMs empty, with more blocks,
waits as that one does: a sparse solver's took 67 to 73 us with 1 to 114 blocks on a T4's 40 SMs."""

CHANGE_OF_FP64: Final = (
    "call .float() on what comes from numpy: its arrays are float64",
    "look for a float64 operand: all that is computed with it is float64, too",
    "keep float64 for the few values that need it, such as sums over many batches",
)


def fp64_kernels(subject: JudgedReport) -> Iterator[Finding]:
    """Kernels on float64 tensors: twice the bytes, and slow arithmetic.

    A log prior from numpy made float64 of a loss on an H100: 7.3 of 14.3 ms of kernels a step
    (2026-11-26).
    """
    matrix = pl.col("class").is_in(MATRIX_CLASSES)
    factor = pl.when(matrix).then(FASTER_MATMUL).otherwise(FASTER)
    gain_ns = (pl.col("ns") * (1 - 1 / factor)).round().cast(pl.Int64)
    rows = subject.kernels.filter(pl.col("double") & (matrix | ~pl.lit(_waiting(subject))))
    rows = rows.with_columns(gain_ns.alias("gain_ns"))
    share = share_of_kernels(subject, rows)
    if share < DOUBLES_PCT:
        return
    yield kernel_finding(
        subject,
        rows,
        rule="fp64-kernels",
        title=f"kernels compute in float64: {percent(share)} of kernel time",
        change=CHANGE_OF_FP64,
        evidence=(
            in_words(subject, rows),
            "in float32 they read and write half the bytes; a GPU without fast float64 gains more",
        ),
    )


def _waiting(subject: JudgedReport) -> pl.Series:
    """Whether each kernel mostly waits for its own instructions, so that fewer bytes save nothing:
    its blocks leave SMs empty, or it takes as long as those of its name that do."""
    kernels = subject.kernels.select("name", "ns", small=too_small(subject))
    median_ns = pl.col("ns").filter("small").median().over("name")
    as_long = (pl.col("ns") <= AS_LONG * median_ns).fill_null(value=False)
    return kernels.select((as_long | pl.col("small")).alias("waiting")).to_series()


HOPPER: Final = 90
BLACKWELL_DATACENTER: Final = 100
"""From sm_90 to sm_103 cuBLAS has kernels of the GPU's own generation. On sm_86, sm_89 and sm_120
those of sm_80 are the native ones."""

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
        change=(*_paddings(subject, rows), *PAD) if mostly_odd else NEWER,
        evidence=(in_words(subject, rows),),
    )


LARGE: Final = 1_024
"""From this size on, padding to a multiple of 64 costs at most 6 %, and fills whole tiles."""

LARGE_MULTIPLE: Final = 64


def _paddings(subject: JudgedReport, rows: pl.DataFrame) -> Iterator[str]:
    """What to pad to, of the operators with most of the time, where their shapes were recorded."""
    for name, args, _ in largest_operators(subject.view, rows.filter("odd")):
        pads = [
            f"{size} to {size + -size % (LARGE_MULTIPLE if size >= LARGE else multiple)}"
            for size, multiple in unaligned_sizes(name, args)
        ]
        if pads:
            yield f"pad {' and '.join(pads)} in {name} {shapes_in_words(args)}"


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


LOW_MFU_PCT: Final = 50.0
"""Half of the peak. Large matmuls reach 80 %: 790 of 989 TFLOP/s in bf16 on an H200."""

REACHED: Final = 0.8
"""What of the peak large products reach (as above)."""

MATRIX_PCT: Final = 50.0
"""With less of the kernel time in kernels known for matrix products, others do part of them."""

CHANGE_OF_LOW_MFU: Final = (
    "larger products: a larger batch, or several small ones as one torch.bmm",
    "sizes that are multiples of 128 on every side, so that no tile is partly empty",
    "torch.compile(mode='max-autotune'): it tries Triton's matmuls beside cuBLAS's",
)


def low_mfu(subject: JudgedReport) -> Iterator[Finding]:
    """Declared FLOPs over the time of matmul, convolution and attention kernels alone, beside the
    peak of what these say they computed in. Without declared FLOPs it stays quiet."""
    steps = set(subject.timeline.step_paths["joined"])
    table = subject.tables.mfu.filter(pl.col("path").is_in(steps))
    if table.is_empty() or not subject.of_steps:
        return
    row: dict[str, Any] = table.sort("mfu_pct", nulls_last=True).row(0, named=True)
    matrix = pl.col("class").is_in(MATRIX_CLASSES) & (pl.col("device") == row["device"])
    rows = subject.kernels.filter(matrix)
    matrix_ns = subject.worst_ns(rows, "ns")
    peak = peak_flops(gpu_name(subject, row["device"]), _unit(rows, row["unit"]))
    if peak is None or not matrix_ns or share_of_kernels(subject, rows) < MATRIX_PCT:
        return
    rate = row["flops"] * 1e9 / matrix_ns
    if rate >= LOW_MFU_PCT / 100 * peak:
        return
    left = rate / (REACHED * peak)
    gain = (pl.col("ns") * (1 - left)).round().cast(pl.Int64).alias("gain_ns")
    unit = _unit(rows, row["unit"])
    yield kernel_finding(
        subject,
        rows.with_columns(gain),
        rule="low-mfu",
        title=f"matrix kernels reach {percent(100 * rate / peak)} of the {unit} peak",
        change=CHANGE_OF_LOW_MFU,
        evidence=(
            in_words(subject, rows),
            f"{flops(rate)}/s while they run, of {flops(peak)}/s: they ran in {unit}",
            f"MFU of the whole step, beside {row['unit']}: {percent(row['mfu_pct'])}",
        ),
        table="mfu",
    )


def _unit(rows: pl.DataFrame, declared: Unit) -> Unit:
    """The arithmetic with most of the time, by the kernels' names; else as declared."""
    sums = rows.group_by("unit").agg(pl.col("ns").sum()).sort("ns", "unit", descending=True)
    ran = sums["unit"][0] if len(sums) else None
    return cast("Unit", ran) if ran is not None else declared
