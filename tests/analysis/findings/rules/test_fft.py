"""FFTs of a length for which the library has no fast plan."""

from typing import Final

import pytest

from nsysflow.analysis.findings.rules.fft import fft_length
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, asked, left_of, subject_of

PACK: Final = "void kernel_wrapper<unsigned int, &packR2C_kernel_Odd_impl<unsigned int, float>>(T1)"
BLUESTEIN: Final = "void multi_bluestein_fft<(unsigned int)128, EPT<(unsigned int)16>>(T9)"
PRIME: Final = "void prime_fft_factor<(unsigned int)101, EPT<(unsigned int)2>>(T9)"
FACTOR: Final = "void regular_fft_factor<(unsigned int)8, EPT<(unsigned int)8>>(T9)"
FAST: Final = "void vector_fft<(unsigned int)4096, EPT<(unsigned int)16>>(T9)"
BEHIND: Final = "void postprocess_kernel<float, unsigned int>(real_complex_args_t<T2>)"
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
