"""Three matrices that are multiplied in the costly order, as recorded sizes tell."""

import json
from collections.abc import Sequence
from typing import Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.products import product_order
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, Row, asked, found, left_of, subject_of
from tests.in_us import opened
from tests.oracle.model import OperatorShape

LENGTH, HEAD = 2048, 64
SCORES: Final = ([8, LENGTH, HEAD], [8, HEAD, LENGTH])
SUMS: Final = ([8, LENGTH, LENGTH], [8, LENGTH, HEAD])
FIRST, SECOND, BACK, OTHER = (f"{names.PRODUCT}#{k}" for k in range(4))


def product(factors: tuple[list[int], list[int]], name: str = "aten::bmm") -> OperatorShape:
    return OperatorShape(name, json.dumps(factors), json.dumps(["c10::BFloat16"] * 2), None)


def copied(name: str = "aten::copy_") -> OperatorShape:
    return OperatorShape(name, "[[8, 64]]", '["float"]', None)


def program(*kernels: tuple[str, OperatorShape], ranges: Sequence[Row] = ()) -> JudgedReport:
    run: Kernels = [(name, 100) for name, _ in kernels]
    operators = tuple(operator for _, operator in kernels)
    return subject_of(run, operators=operators, ranges=tuple(ranges))


def test_attention_without_a_softmax_is_named_with_its_gradients() -> None:
    kernels = [
        (FIRST, product(SCORES)),
        (names.STRIDED, copied()),
        (SECOND, product(SUMS)),
        (OTHER, product(SCORES[::-1])),
        *[(BACK, product(SUMS))] * 2,
    ]
    # the launches of the last two, in us
    one = asked(product_order, program(*kernels, ranges=[opened(5, 10, "backward")]))
    assert left_of(one) == {FIRST: 0.0, SECOND: 0.0, BACK: 0.0}
    assert one.title == "three matrices are multiplied in the costly order: 67 % of kernel time"
    assert one.evidence[0] == (
        "8x2048x64 by 8x64x2048 makes 8x2048x2048, which the next product reads: 8.59 GFLOP, in the"
        " other order 268 MFLOP"
    )
    assert one.method == "bound"


def test_what_is_multiplied_from_the_left_is_named_too() -> None:
    left = ([8, HEAD, LENGTH], [8, LENGTH, LENGTH])
    assert asked(product_order, program((FIRST, product(SCORES)), (SECOND, product(left))))


@pytest.mark.parametrize(
    "kernels",
    [
        [(FIRST, product(SCORES)), (names.SOFTMAX, copied()), (SECOND, product(SUMS))],
        [(FIRST, product(SCORES)), (names.MUL, copied()), (SECOND, product(SUMS))],
        [(FIRST, product(SCORES)), (SECOND, product(SCORES))],
        [(FIRST, product(SCORES, "aten::addmm")), (SECOND, product(SUMS, "aten::addmm"))],
        [
            (FIRST, product(([8, 512, 256], [8, 256, 512]))),
            (SECOND, product(([8, 512, 512], [8, 512, 256]))),
        ],
    ],
    ids=["a softmax", "a mask", "of two layers", "an MLP", "about as large"],
)
def test_products_stay_in_their_order_where_that_is_not_known_to_help(
    kernels: list[tuple[str, OperatorShape]],
) -> None:
    assert not found(product_order, program(*kernels))


def test_gradients_of_scores_are_no_pair() -> None:
    """In the backward pass of attention that is not fused two such products stand side by side."""
    kernels = [(FIRST, product(SCORES)), (SECOND, product(SUMS))]
    ranges = [opened(1, 10, "backward")]
    assert not found(product_order, program(*kernels, ranges=ranges))
