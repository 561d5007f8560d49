"""Norms that a program writes out, and what is none."""

import re
from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.rules.norms import unfused_norm
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    US,
    Kernels,
    Row,
    asked,
    changes_of,
    found,
    judged,
    left_of,
    loop,
    named,
    seen,
    subject_of,
)
from tests.in_us import kernel, launch, opened
from tests.oracle.model import Op, Shape

NATIVE: Final = names.NATIVE
SIMPLE: Final = f"void {NATIVE}vectorized_elementwise_kernel<(int)4, {NATIVE}"
ROWS: Final = f"void {NATIVE}reduce_kernel<(int)512, (int)1, {NATIVE}ReduceOp<float, {NATIVE}"
LETTERS: Final = {
    "M": f"{ROWS}MeanOps<float, float, float, float>>>(T3)",
    "V": f"{ROWS}WelfordOps<float, float, int>>>(T3)",
    "S": f"{ROWS}func_wrapper_t<float, {NATIVE}sum_functor<float>>>>(T3)",
    "E": f"{SIMPLE}CUDAFunctorOnSelf_add<float>>(int, T2)",
    "Q": f"{SIMPLE}sqrt_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 2)]>(int)",
    "R": f"{SIMPLE}rsqrt_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 2)]>(int)",
    "P": f"{SIMPLE}pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase &)>(int)",
    "D": f"{SIMPLE}BinaryFunctor<float, float, float, binary_internal::DivFunctor<float>>>(int)",
    "X": f"{SIMPLE}BinaryFunctor<float, float, float, binary_internal::MulFunctor<float>>>(int)",
    "U": f"{SIMPLE}AUnaryFunctor<float, float, float, binary_internal::MulFunctor<float>>>(int)",
    "A": f"{SIMPLE}CUDAFunctor_add<float>>(int, T2)",
    "N": f"{SIMPLE}neg_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 2)]>(int)",
    "C": names.DOWN,
    "-": names.PRODUCT,
}
"""Kernels of PyTorch by the letters of the rule; sqrt is Q."""

BLOCKS: Final = {"E": 1, "Q": 1, "R": 1, "M": 8, "V": 8}
"""Roots have a number for each row, and need one block; what else reads the rows needs more."""

LAYER_NORM: Final = "MAPMAEQDXA"
LLAMA: Final = "CPMERXCX"
GRADIENT: Final = "SXXSDDNXDSUDNSAUUXNSAUA"


def kernels_of(letters: str) -> Kernels:
    return [(LETTERS[letter], 1 if letter in "EQR" else 10) for letter in letters]


def grids_of(letters: str) -> tuple[int, ...]:
    """The blocks of each, as `subject_of` counts them: from the second on."""
    blocks = [BLOCKS.get(letter, 64) for letter in letters]
    return (blocks[-1], *blocks[:-1])


def layers(part: str) -> str:
    """Four of these behind products, no step like the one before."""
    return "".join("-" * (1 + count) + part for count in (0, 2, 1, 4))


def title_of(letters: str) -> str:
    """What is said of these kernels; empty where nothing is."""
    subject = subject_of(kernels_of(letters), blocks=grids_of(letters))
    return "".join(one.title for one in found(unfused_norm, subject))


@pytest.mark.parametrize(
    "norm",
    [
        LAYER_NORM,
        "MACPMAEQDXA",  # bfloat16, squared in float32
        "MAXMERXX",  # the inverse of a root
        "MVAEQDXA",  # a variance of its own
        "MVAXEDA",  # a standard deviation, as the annotated transformer has
        LLAMA,
        "PMERX",
    ],
)
def test_norms_by_hand_are_found(norm: str) -> None:
    assert title_of(layers(norm)).startswith("4 norms run one kernel for each operation: ")


@pytest.mark.parametrize(
    "letters",
    [
        "MAPMAEQ",  # nothing is scaled
        "APMEQ",  # the root of a mean loss
        "APEQM",  # a mean of roots
        "PSEQD",  # a vector of length 1
        "MAPMAQD",  # no number is added
        "MAPM-EQD",  # a product between
    ],
)
def test_what_is_no_norm_is_not_named(letters: str) -> None:
    assert not title_of(layers(letters))


def test_a_single_norm_and_numbers_of_one_row_are_left_alone() -> None:
    assert not title_of(f"-{LLAMA}")
    # the advantages of PPO: one mean and one deviation for all
    letters = layers("MAVED")
    whole = (64, *(1 if one in "MVE" else 64 for one in letters[:-1]))
    assert not found(unfused_norm, subject_of(kernels_of(letters), blocks=whole))
    # what is divided has as many numbers as the root
    assert not found(unfused_norm, subject_of(kernels_of(layers(LAYER_NORM)), blocks=(8,)))


def test_a_fused_norm_takes_as_long_as_its_longest_kernel() -> None:
    letters = layers(LLAMA)
    one = asked(unfused_norm, subject_of(kernels_of(letters), blocks=grids_of(letters)))
    kept = round(10 / 62, 2)  # six kernels of 10 us, and two of 1
    assert left_of(one) == {LETTERS[name]: kept for name in {*LLAMA}}
    assert one.change[0].startswith("F.rms_norm")
    assert one.method == "bound"
    letters = layers(LAYER_NORM)
    one = asked(unfused_norm, subject_of(kernels_of(letters), blocks=grids_of(letters)))
    assert one.change[0].startswith("F.layer_norm")


def test_gradients_of_norms_count_by_that_of_the_root_and_what_is_beside_it() -> None:
    letters = layers(LAYER_NORM) + layers(f"CCC{GRADIENT}XX") + "-"
    blocks = [BLOCKS.get(letter, 64) for letter in letters]
    for found_at in re.finditer("SUD", letters):
        blocks[found_at.start() + 1 : found_at.end()] = [1, 1]
    backward = tiny.opened((letters.index("CCC") + 1) * US - 100, 1_000 * US, "backward")
    kernels, grids = kernels_of(letters), (blocks[-1], *blocks[:-1])
    subject = subject_of(kernels, blocks=grids, ranges=(backward,))
    one = asked(unfused_norm, subject)
    assert one.evidence[0].split(": ")[1].startswith("40 kernels")
    # a root's gradient has two kernels, ten before and eleven behind
    assert one.evidence[1].startswith(
        f"their gradients, found by the gradient of the root: {4 * len(GRADIENT)} kernels"
    )


def test_neighbouring_lines_of_a_method_are_the_place_of_a_norm() -> None:
    lines = [27, 28, 28, 28, 29, 29, 29, 29, 30, 30]
    norm = [
        (*kernel_of, f"forward:{line}")
        for kernel_of, line in zip(kernels_of(LAYER_NORM), lines, strict=True)
    ]
    rows = seen((names.PRODUCT, 90, "attend"), *norm, (names.PRODUCT, 90, "attend"), *norm)
    subject = loop(_with_grids(rows), every=1_000)
    one = asked(unfused_norm, subject)
    assert "most at train.py:27-30 in forward" in one.title


def _with_grids(rows: list[Row]) -> list[Row]:
    """The rows with the grids of norms."""
    letter_of = {name: letter for letter, name in LETTERS.items()}
    return [
        replace(row, shape=Shape(grid_x=BLOCKS.get(letter_of.get(row.name, ""), 64)))
        if isinstance(row, Op)
        else row
        for row in rows
    ]


def test_the_host_launches_a_norm_once() -> None:
    rows: list[Row] = []
    letters = f"--{LLAMA}--{LLAMA}"
    for number, letter in enumerate(letters * 8):
        at = 1_000 * (number // len(letters)) + 20 * (number % len(letters))
        if not number % len(letters):
            rows.append(opened(at, at + 1_000, "step"))
        rows += [
            launch(at + 15, at + 20, number),
            named(kernel(at + 21, at + 22, number), LETTERS[letter]),
        ]
    one = asked(unfused_norm, judged(*_with_grids(rows)))
    # 16 launches of 5 us, and the code before all but the first of each norm
    took = 16 * 5 + 14 * 15
    assert f"launches and the code between them take the host {took} us" in one.evidence[-1]
    assert [phase for phase, _ in changes_of(one).faster_host] == ["step"]
