"""FFTs that compute more than they have to.

* `fft-length`: FFTs of a length for which the library has no fast plan.
* `real-fft`: FFTs of real numbers that give both halves of the spectrum.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.backward import is_backward
from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.findings.kernels import covered, run_of
from nsysflow.analysis.frames.columns import matching, repeated
from nsysflow.base.units import percent

SLOW: Final = r"(?i)bluestein|\bprime_fft"
"""cuFFT's and rocFFT's kernels of Bluestein's algorithm, for lengths with a large prime factor, and
cuFFT's that compute a prime factor up to 127 directly. (Lengths with 31 had a plain kernel.)"""

SLOW_PCT: Final = 5.0
"""Less of the kernel time is not worth a change of the program."""

LEFT: Final = 0.09
"""The least that is left of an FFT's time with the next power of two: 75 of 846 us, of 8191 real
numbers. Of ten other lengths from 1021 to 131071, real and complex, 0.10 to 0.32 was left (H200,
cuFFT of CUDA 13.0, 2026-11-28). rocFFT was not measured."""

CHANGE: Final = (
    "if the FFT is for a convolution, pad it to a power of two: rfft(x, n=8192), not n=8191",
    "or to scipy.fft.next_fast_len(n, real=True), the next length with small prime factors only",
    "if you need the spectrum, take windows of such a length (n_fft), or cut the signal to one",
)


def fft_length(subject: JudgedReport) -> Iterator[Finding]:
    """FFTs with a kernel for lengths that have a large prime factor.

    Bluestein's algorithm makes a convolution of such an FFT: two FFTs of a fast length that is at
    least twice as large, and three products. cuFFT also turns real numbers into complex ones and
    back, as an odd length cannot be halved. All FFT kernels right before and behind it on the
    stream are counted. Some may be of another FFT, so the saving is a bound.
    Convolutions of 8191 points took 64.8 ms a step, of 8192 points 41.7 ms (H200, 2026-11-28).
    """
    kernels = subject.kernels
    slow = matching(kernels["name"], SLOW)
    if not slow.any():
        return
    runs = run_of(kernels, (pl.col("class") == "fft") | pl.lit(slow))
    at = slow.arg_true()
    holds = at.search_sorted(runs["last"], side="right") > at.search_sorted(runs["first"])
    gain = (pl.col("ns") * (1 - LEFT)).round().cast(pl.Int64).alias("gain_ns")
    rows = kernels.filter(covered(kernels, runs.filter(holds))).with_columns(gain)
    share = share_of_kernels(subject, rows)
    if share < SLOW_PCT:
        return
    yield kernel_finding(
        subject,
        rows,
        rule="fft-length",
        title=f"FFTs of a length with a large prime factor: {percent(share)} of kernel time",
        change=CHANGE,
        evidence=(
            in_words(subject, rows),
            f"padded to the next power of two, {percent(100 * LEFT)} to 32 % of the time was left"
            " (11 lengths, H200)",
        ),
    )


BOTH_HALVES: Final = r"\b_fft_conjugate_copy_kernel\b"
"""PyTorch's kernel that writes the second half of a spectrum, the first one's mirror image. It runs
only in torch.fft.fft of real numbers, and in its like."""

TO_COMPLEX: Final = (
    r"(?s)\bunrolled_elementwise_kernel<.*\bdirect_copy_kernel.*\bc10::complex<.*\bLoadWithCast"
    r"|\bgpu_kernel_impl<.*\bdirect_copy_kernel.*\bc10::complex<"
)
"""PyTorch's copy of numbers of another dtype into complex ones: fft2 and fftn begin so with real
ones."""

_PRECISION: Final = r"\bc10::complex<([\w:]+)>"
_FROM_HOST: Final = r"^memcpy HtoD$"
_SCALE: Final = r"\b[AB]UnaryFunctor<c10::complex<"
_STRIDED: Final = r"\belementwise_kernel<"
_COPY: Final = r"\bdirect_copy_kernel"

CHANGE_OF_REAL: Final = (
    "torch.fft.rfft and irfft(y, n=n), of images rfft2 and irfft2(y, s=shape): half of the numbers",
    "results stay the same; what multiplies the spectrum is halved, too: rfftfreq, not fftfreq",
)


def real_fft(subject: JudgedReport) -> Iterator[Finding]:
    """FFTs of real numbers by the function for complex ones, unless an inverse stays complex.

    By rfft no second half is written and nothing is cast, and other FFTs and products of the
    spectrum have half of the numbers. Two programs saved 4.4 of 13.1 ms and 4.6 of 42.1 ms a step
    (H200, 2026-11-29). Not counted are FFTs whose second half is written, which are rfft's already,
    and what scales an inverse: irfft copies its input instead. Some of the rest may be of signals
    that are complex, so the saving is a bound.
    """
    kernels = subject.kernels
    mirrored = matching(kernels["name"], BOTH_HALVES)
    casts = matching(kernels["name"], TO_COMPLEX)
    if not mirrored.any() and not casts.any():
        return
    backward = is_backward(subject.view, kernels)
    casts &= ~backward & _of_real_numbers(subject)
    copied = matching(kernels["name"], _COPY)
    strided = matching(kernels["name"], _STRIDED) & ~kernels["complex"] & ~copied
    flags = kernels.select(
        "lane",
        "complex",
        (pl.col("class") == "fft").fill_null(value=False).alias("fft"),
        strided=strided,
        mirrored=mirrored,
        cast=casts,
        scale=matching(kernels["name"], _SCALE),
    ).with_columns(
        (pl.col("cast") & _near("fft", -1)).alias("cast"),
        (pl.col("scale") & _near("fft", 1)).alias("scale"),
    )
    runs = _ffts(flags, pl.col("fft") & ~pl.lit(backward))
    if not _of_signals(runs, mirrored=mirrored.any()):
        return
    only = pl.col("mirrored") | pl.col("cast")
    whole = pl.col("fft") & ~covered(flags, runs.filter("mirrored"))
    halved = whole | (pl.col("complex") & ~pl.col("scale"))
    share = pl.when(only).then(1.0).when(halved).then(0.5)
    gain = (kernels["ns"] * flags.select(share).to_series()).round().cast(pl.Int64)
    rows = kernels.with_columns(gain.alias("gain_ns")).drop_nulls("gain_ns")
    if share_of_kernels(subject, rows) < SLOW_PCT:
        return
    needless = in_words(subject, kernels.filter(flags.select(only).to_series()))
    purpose = "write the second halves" if mirrored.any() else "make complex numbers of real ones"
    yield kernel_finding(
        subject,
        rows,
        rule="real-fft",
        title="FFTs of real numbers give both halves of the spectrum:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_REAL,
        evidence=(
            in_words(subject, rows),
            f"{needless} only to {purpose}",
        ),
        at=rows.filter(pl.col("class") == "fft"),
    )


def _near(flag: str, places: int) -> pl.Expr:
    """The flag of the kernel this many `places` earlier on the same stream; later, if negative."""
    return pl.col(flag).shift(places, fill_value=False).over("lane")


def _of_real_numbers(subject: JudgedReport) -> pl.Series:
    """Whether a cast at each kernel's place would take real numbers: no complex numbers of another
    precision are computed, and no copy from the host comes right before it."""
    kernels = subject.kernels
    names = kernels["name"].unique().cast(pl.String)
    if names.str.extract(_PRECISION).drop_nulls().n_unique() > 1:
        return repeated(value=False, length=len(kernels))
    stream = pl.col("name").shift(1).over("device_no", "process", "stream")
    before = subject.view.ops.select("op", stream.alias("before"))
    joined = kernels.select("op").join(before, on="op", how="left", maintain_order="left")
    return ~matching(joined["before"], _FROM_HOST).fill_null(value=False)


def _ffts(flags: pl.DataFrame, member: pl.Expr) -> pl.DataFrame:
    """The runs of FFT kernels: whether `cast` numbers go in, whether the second half is `mirrored`,
    whether it is an inverse that is `scaled`, and whether what follows that is of `complex`
    numbers, or reads `strided` real ones, as `.real` leaves them."""
    runs = run_of(flags, member)
    before = flags.select(_near("cast", 1)).select(pl.all().gather(runs["first"]))
    behind = flags.select(
        _near("mirrored", -1).alias("mirrored"),
        _near("scale", -1).alias("scaled"),
        _near("complex", -2).alias("complex"),
        _near("strided", -2).alias("strided"),
    )
    return runs.hstack(before).hstack(behind.select(pl.all().gather(runs["last"])))


def _of_signals(runs: pl.DataFrame, *, mirrored: bool) -> bool:
    """Whether most FFTs are of real numbers. Those that are no inverse begin with a cast, unless a
    mirror image tells. Of most inverses that are used at once, only the real part is read."""
    forward, inverse = runs.filter(~pl.col("scaled")), runs.filter("scaled")
    of_real = mirrored or 0 < runs["cast"].sum() >= len(forward) / 2
    used = inverse.filter(~pl.col("complex"))
    gives_real = inverse.is_empty() or 0 < used["strided"].sum() >= len(used) / 2
    return of_real and gives_real
