"""FFTs of a length for which the library has no fast plan."""

from typing import Final

import pytest

from nsysflow.analysis.findings.rules.fft import fft_length, real_fft
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    US,
    Kernels,
    asked,
    found,
    judged,
    left_of,
    named,
    subject_of,
)

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
CAST: Final = (
    f"void {names.NATIVE}unrolled_elementwise_kernel<{names.NATIVE}direct_copy_kernel_cuda("
    "TensorIteratorBase &)::[lambda(c10::complex<float>) (instance 1)], LoadWithCast<(int)1>>(int)"
)
STRIDED_CAST: Final = (
    f"void {names.NATIVE}elementwise_kernel<(int)128, (int)4, void {names.NATIVE}gpu_kernel_impl<"
    f"{names.NATIVE}direct_copy_kernel_cuda(T1)::[lambda(c10::complex<float>) (instance 1)]>>(int)"
)
SCALE: Final = (
    f"void {names.NATIVE}vectorized_elementwise_kernel<(int)2,"
    " AUnaryFunctor<c10::complex<float>, MulFunctor<c10::complex<float>>>>(int)"
)
OF_REAL_PARTS: Final = (
    f"void {names.NATIVE}elementwise_kernel<(int)128, (int)2,"
    f" void {names.NATIVE}gpu_kernel_impl_nocast<MulFunctor<float>>>(int)"
)
COPY_OF_PARTS: Final = (
    f"void {names.NATIVE}elementwise_kernel<(int)128, (int)2,"
    f" void {names.NATIVE}gpu_kernel_impl_nocast<direct_copy_kernel_cuda(T1)>>(int)"
)
OF_DOUBLES: Final = OF_SPECTRA.replace("float", "double")
FILTERED: Final[Kernels] = [(FAST, 20), (OF_SPECTRA, 20), (FAST, 20), (SCALE, 10)]
ROCFFT: Final = "bluestein_pad_mul_sp_CI_CI"


def test_the_kernels_of_an_fft_of_a_prime_length_are_named() -> None:
    odd: Kernels = [(PACK, 10), (BLUESTEIN, 40), (BLUESTEIN, 40), (BEHIND, 10)]
    fast: Kernels = [(FAST, 50), (BEHIND, 10)]
    one = asked(fft_length, subject_of([*odd, (names.MUL, 40), *fast]))
    assert one.title == "FFTs of a length with a large prime factor: 50 % of kernel time"
    assert "pad" in one.change[0]
    assert "convolution" in one.change[0]
    assert (one.method, one.culprit) == ("bound", "multi_bluestein_fft")
    # one of two kernels behind is of an FFT of a fast length
    assert left_of(one) == {PACK: 0.09, BLUESTEIN: 0.09, BEHIND: 0.54}


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
    assert not found(fft_length, subject_of(kernels))


def test_half_of_all_work_on_a_spectrum_is_left_where_its_second_half_is_written() -> None:
    kernels: Kernels = [(FAST, 20), (MIRROR, 10), (OF_SPECTRA, 20), (FAST, 20), (names.ADD, 30)]
    one = asked(real_fft, subject_of(kernels))
    assert one.title == "FFTs of real numbers give both halves of the spectrum: 50 % of kernel time"
    assert one.method == "bound"
    # the first FFT is rfft's already
    assert left_of(one) == {FAST: 0.75, OF_SPECTRA: 0.5, MIRROR: 0.0}


@pytest.mark.parametrize(
    "kernels", [[(FAST, 20), (OF_SPECTRA, 20)], [(MIRROR, 4), (names.ADD, 96)]]
)
def test_spectra_of_complex_numbers_and_small_ones_are_left_alone(kernels: Kernels) -> None:
    assert not found(real_fft, subject_of(kernels))


@pytest.mark.parametrize("cast", [CAST, STRIDED_CAST])
def test_fft2_of_real_numbers_is_told_by_its_cast(cast: str) -> None:
    one = asked(real_fft, subject_of([(names.ADD, 10), (cast, 10), *FILTERED, (OF_REAL_PARTS, 20)]))
    # irfft copies its input, which costs as much as scaling half of the numbers
    assert left_of(one) == {FAST: 0.5, OF_SPECTRA: 0.5, cast: 0.0}


def test_a_spectrum_of_real_numbers_without_an_inverse_may_be_halved() -> None:
    assert left_of(asked(real_fft, subject_of([(CAST, 10), (FAST, 20), (names.ADD, 20)]))) == {
        FAST: 0.5,
        CAST: 0.0,
    }


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param([(CAST, 10), *FILTERED, ("abs_kernel_vectorized4_kernel", 10)], id="abs"),
        pytest.param([(CAST, 10), *FILTERED, (COPY_OF_PARTS, 10)], id="both parts are copied"),
        pytest.param([(CAST, 10), *FILTERED, (OF_SPECTRA, 10)], id="the result stays complex"),
        pytest.param([(MIRROR, 10), *FILTERED, ("abs_kernel_vectorized4_kernel", 10)], id="hull"),
        pytest.param([(CAST, 10), (OF_SPECTRA, 10), *FILTERED], id="another FFT's input"),
        pytest.param([(CAST, 10), (FAST, 5), *[(names.ADD, 1), (FAST, 5)] * 3], id="few are cast"),
        pytest.param([(OF_DOUBLES, 10), (CAST, 10), (FAST, 20)], id="of another precision"),
    ],
)
def test_ffts_of_complex_numbers_are_left_alone(kernels: Kernels) -> None:
    assert not found(real_fft, subject_of(kernels))


def test_casts_in_the_backward_pass_tell_nothing() -> None:
    backward = tiny.opened(0, 1_000 * US, "backward")
    assert not found(real_fft, subject_of([(CAST, 10), (FAST, 20)], ranges=(backward,)))


def test_what_came_from_the_host_may_be_complex() -> None:
    kernels = [
        named(tiny.kernel(30 * US, 40 * US, 2), CAST),
        named(tiny.kernel(41 * US, 61 * US, 3), FAST),
    ]
    copied = tiny.copy(10 * US, 29 * US, 1, "HtoD", "pageable", "device")
    launches = [tiny.launch(number * US, number * US + 500, number) for number in (1, 2, 3)]
    assert found(real_fft, judged(*launches[1:], *kernels))
    assert not found(real_fft, judged(*launches, copied, *kernels))
