"""FFTs of a length for which the library has no fast plan."""

from typing import Final

import pytest

from nsysflow.analysis.findings.rules.fft import fft_length, real_fft
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, asked, left_of, subject_of

PACK: Final = "void kernel_wrapper<unsigned int, &packR2C_kernel_Odd_impl<unsigned int, float>>(T1)"
BLUESTEIN: Final = "void multi_bluestein_fft<(unsigned int)128, EPT<(unsigned int)16>>(T9)"
PRIME: Final = "void prime_fft_factor<(unsigned int)101, EPT<(unsigned int)2>>(T9)"
FACTOR: Final = "void regular_fft_factor<(unsigned int)8, EPT<(unsigned int)8>>(T9)"
FAST: Final = "void vector_fft<(unsigned int)4096, EPT<(unsigned int)16>>(T9)"
BEHIND: Final = "void postprocess_kernel<float, unsigned int>(real_complex_args_t<T2>)"
MIRROR: Final = f"void {names.NATIVE}_fft_conjugate_copy_kernel<c10::complex<float>, T2>(T1)"
OF_SPECTRA: Final = (
    f"void {names.NATIVE}elementwise_kernel<(int)4, MulFunctor<c10::complex<float>>>(T1)"
)
ROCFFT: Final = "bluestein_pad_mul_sp_CI_CI"


def test_the_kernels_of_an_fft_of_a_prime_length_are_named() -> None:
    odd: Kernels = [(PACK, 10), (BLUESTEIN, 40), (BLUESTEIN, 40), (BEHIND, 10)]
    fast: Kernels = [(FAST, 50), (BEHIND, 10)]
    found = asked(fft_length, subject_of([*odd, (names.MUL, 40), *fast]))
    assert found is not None
    assert found.title == "FFTs of a length with a large prime factor: 50 % of kernel time"
    assert "pad" in found.change[0]
    assert "convolution" in found.change[0]
    assert (found.method, found.culprit) == ("bound", "multi_bluestein_fft")
    # one of two kernels behind is of an FFT of a fast length
    assert left_of(found) == {PACK: 0.09, BLUESTEIN: 0.09, BEHIND: 0.54}


@pytest.mark.parametrize("kernels", [[(FACTOR, 10), (PRIME, 40)], [(ROCFFT, 40)]])
def test_other_kernels_for_large_prime_factors_are_known(kernels: Kernels) -> None:
    left = left_of(asked(fft_length, subject_of([*kernels, (names.MUL, 40)])))
    assert left == {name: 0.09 for name, _ in kernels}


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param([(FACTOR, 50), (FAST, 50), (BEHIND, 10)], id="fast lengths"),
        pytest.param([(BLUESTEIN, 4), (names.MUL, 96)], id="little time"),
        pytest.param([], id="no kernels"),
    ],
)
def test_nothing_is_said_of_ffts(kernels: Kernels) -> None:
    assert asked(fft_length, subject_of(kernels)) is None


def test_half_of_all_work_on_a_spectrum_is_left_where_its_second_half_is_written() -> None:
    kernels: Kernels = [(FAST, 20), (MIRROR, 10), (OF_SPECTRA, 20), (FAST, 20), (names.ADD, 30)]
    found = asked(real_fft, subject_of(kernels))
    assert found is not None
    assert (
        found.title == "FFTs of real numbers give both halves of the spectrum: 70 % of kernel time"
    )
    assert found.method == "bound"
    assert left_of(found) == {FAST: 0.5, OF_SPECTRA: 0.5, MIRROR: 0.0}


@pytest.mark.parametrize(
    "kernels", [[(FAST, 20), (OF_SPECTRA, 20)], [(MIRROR, 4), (names.ADD, 96)]]
)
def test_spectra_of_complex_numbers_and_small_ones_are_left_alone(kernels: Kernels) -> None:
    assert asked(real_fft, subject_of(kernels)) is None
