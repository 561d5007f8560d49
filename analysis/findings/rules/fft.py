"""FFTs that compute more than they have to.

* `fft-length`: FFTs of a length for which the library has no fast plan.
* `real-fft`: FFTs of real numbers that give both halves of the spectrum.
"""

from collections.abc import Iterator
from typing import Final

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.kernel_findings import in_words, kernel_finding, share_of_kernels
from nsysflow.analysis.findings.kernels import covered, run_of
from nsysflow.analysis.frames.columns import matching
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
    slow = kernels["name"].cast(pl.String).str.contains(SLOW)
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

COMPLEX: Final = r"\bc10::complex<"

CHANGE_OF_REAL: Final = (
    "torch.fft.rfft and irfft(spectrum, n=n): half of the numbers, the same result",
    "rfft2 or rfftn for images and volumes: the last dimension is halved",
)


def real_fft(subject: JudgedReport) -> Iterator[Finding]:
    """FFTs of real numbers by the function for complex ones.

    By rfft no second half is written, and the other FFTs and products of the spectrum have half of
    the numbers. Some of those may be of signals that are complex, so the saving is a bound.
    Convolutions of 16,384 points took 42.1 ms a step by fft, and 37.5 by rfft (H200, 2026-11-29).
    """
    kernels = subject.kernels
    mirrored = matching(kernels["name"], BOTH_HALVES)
    if not mirrored.any():
        return
    halved = pl.lit(matching(kernels["name"], COMPLEX)) | (pl.col("class") == "fft")
    share = pl.when(pl.lit(mirrored)).then(1.0).when(halved.fill_null(value=False)).then(0.5)
    gain = (pl.col("ns") * share).round().cast(pl.Int64).alias("gain_ns")
    rows = kernels.with_columns(gain).drop_nulls("gain_ns")
    if share_of_kernels(subject, rows) < SLOW_PCT:
        return
    yield kernel_finding(
        subject,
        rows,
        rule="real-fft",
        title="FFTs of real numbers give both halves of the spectrum:"
        f" {percent(share_of_kernels(subject, rows))} of kernel time",
        change=CHANGE_OF_REAL,
        evidence=(
            in_words(subject, rows),
            f"{in_words(subject, kernels.filter(mirrored))} only to write the second halves",
        ),
    )
