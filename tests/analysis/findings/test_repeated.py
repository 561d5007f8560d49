"""Kernels that are launched in turn again and again."""

import random
from collections.abc import Sequence

import pytest

from nsysflow.analysis.findings.repeated import backward_of, passes_of, with_passes
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import US, Row, judged, named
from tests.oracle.passes import pass_lengths

KINDS = {"a": names.ADD, "m": names.MUL, "c": names.DOWN, "P": names.PRODUCT}
"""Kernels by letter: all are simple but the product of matrices."""


def launched(phases: Sequence[tuple[str, str]], steps: int = 1) -> list[Row]:
    """Steps of phases, each with kernels by letter."""
    rows: list[Row] = []
    now, number = 100, 0
    for _ in range(steps):
        begun = now
        for phase, kernels in phases:
            opened = now
            for letter in kernels:
                number += 1
                rows.append(tiny.launch((now + 1) * US, (now + 4) * US, number))
                kernel = tiny.kernel((now + 5) * US, (now + 7) * US, number)
                rows.append(named(kernel, KINDS[letter]))
                now += 10
            rows.append(tiny.opened(opened * US, now * US, phase))
        rows.append(tiny.opened(begun * US - 1, now * US + 1, "step"))
        now += 10
    return rows


def lengths(kernels: str) -> list[int | None]:
    subject = judged(*launched([("forward", kernels)]))
    return with_passes(subject)["pass_kernels"].to_list()


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        ("mac" * 10, [3] * 30),
        ("mac" * 9 + "ma", [None] * 29),  # less than ten passes
        ("c" + "ma" * 10 + "m" + "c", [None] + [2] * 21 + [None]),
        ("maP" * 10, [None] * 30),  # a model
        ("a" * 10 + "mac" * 10, [1] * 10 + [3] * 30),
        ("mac" * 5 + "m" + "mac" * 5, [None] * 31),
        ("mmaaccma" * 5 + "mmaacccc" + "mmaaccma" * 5, [8] * 88),
        ("mmaaccma" * 5 + "cmacmcmm" + "mmaaccma" * 5, [None] * 88),
    ],
    ids=["whole", "few", "with a rest", "matmul", "two", "interrupted", "alike", "unlike"],
)
def test_passes_are_the_shortest_that_repeat_ten_times(
    kernels: str, expected: list[int | None]
) -> None:
    assert lengths(kernels) == expected


@pytest.mark.parametrize("seed", range(12))
def test_passes_are_those_of_the_oracle(seed: int) -> None:
    of = random.Random(seed)
    kernels = ""
    while len(kernels) < 150:
        unit = "".join(of.choices("aamcP", k=of.randint(1, 5)))
        kernels += unit * of.choice([1, 2, 9, 10, 12, 20])
    assert lengths(kernels) == pass_lengths(kernels, [letter != "P" for letter in kernels])


@pytest.mark.parametrize(
    ("backward", "kernels"), [("ccma", 4 * 12), ("ccma" * 2, 0)], ids=["as often", "twice as often"]
)
def test_a_backward_pass_belongs_to_the_loop_with_as_many_passes(
    backward: str, kernels: int
) -> None:
    phases = [("forward", "PP" + "ma" * 12), ("backward", backward * 12 + "PP"), ("loss", "c")]
    subject = judged(*launched(phases, steps=3))
    rows = with_passes(subject)
    loop = rows.filter(rows["phase"] == "step/forward", rows["pass_kernels"].is_not_null())
    assert passes_of(subject, loop) == pytest.approx(12)
    found = backward_of(subject, passes_of(subject, loop))
    assert subject.per_step(len(found)) == kernels
