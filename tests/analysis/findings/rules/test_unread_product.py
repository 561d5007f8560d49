"""Products of which a step reads a few rows."""

from typing import Final

import pytest

from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.products import unread_product
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Kernels, Row, asked, found, judged, left_of, repeated
from tests.analysis.findings.subjects import launched as kernel_launched
from tests.in_us import opened

LOOKUP: Final = (
    "void at::native::<unnamed>::vectorized_gather_kernel<(int)16, long>(char *, char *)"
)
HEAD: Final = f"{names.PRODUCT}#head"
CAST: Final = names.UP
LAYERS: Final[Kernels] = [(LOOKUP, 9), (names.ADD, 9), (names.PRODUCT, 400), (names.ADD, 30)] * 2
ROWS: Final[Kernels] = [(names.SOFTMAX, 2), (names.ADD, 2)]
LOGITS: Final[Kernels] = [(HEAD, 2_000), (CAST, 600)]


def program(*kernels: tuple[str, int], phase: str = "forward") -> JudgedReport:
    """Steps that run these kernels back to back, all launched before the first of them begins."""
    rows: list[Row] = [opened(0, 9_999, "step"), opened(1, 900, phase)]
    begun = 1_000
    for place, (name, us) in enumerate(kernels):
        at = 10 + 10 * place
        rows += kernel_launched(at, us, queued=begun - at - 5, name=name)
        begun += us
    return judged(*repeated(rows, 10_000))


@pytest.mark.parametrize("casts", [[(CAST, 600)], [(CAST, 600), (CAST, 500)]], ids=["one", "two"])
def test_logits_of_which_a_few_rows_are_read_are_named(casts: Kernels) -> None:
    one = asked(unread_product, program(*LAYERS, (HEAD, 2_000), *casts, *ROWS))
    assert one.title.startswith("most of a product's result is never read: ")
    assert one.method == "bound"
    # of 7 judged steps the last does not say what follows it
    assert left_of(one) == pytest.approx({HEAD: 1 / 7, CAST: 1 / 7}, abs=0.01)
    took = "600 us" if len(casts) == 1 else "500 us"
    assert one.evidence[1] == (
        f"the last kernel that passes over its result takes {took}; all that follows, until"
        " the next product, takes 22.0 us"
    )


@pytest.mark.parametrize(
    ("behind", "phase"),
    [
        ([*LOGITS, (names.SOFTMAX, 300), *ROWS], "forward"),
        ([*LOGITS, *[(names.ADD, 9)] * 8], "forward"),
        (LOGITS, "backward"),
        ([*LOGITS, *ROWS, (names.PRODUCT, 400)], "forward"),
        ([(HEAD, 2_000), *ROWS], "forward"),
        ([(HEAD, 90), (CAST, 40), (names.ADD, 1)], "forward"),
        ([(HEAD, 30_000), (CAST, 60), (names.ADD, 1)], "forward"),
    ],
    ids=[
        "a softmax of all rows",
        "many small readers",
        "of training",
        "a product behind it",
        "its size is not known",
        "it may be in the cache",
        "small beside its product",
    ],
)
def test_a_product_that_may_be_read_is_not_named(behind: Kernels, phase: str) -> None:
    assert not found(unread_product, program(*LAYERS, *behind, phase=phase))


@pytest.mark.parametrize(("next_us", "is_named"), [(100, True), (400, False)])
def test_without_a_lookup_the_next_product_is_too_short_to_read_it(
    next_us: int, is_named: bool
) -> None:
    layers = [(names.PRODUCT, next_us), (names.PRODUCT, 400)]
    assert bool(found(unread_product, program(*layers, *LOGITS, *ROWS))) == is_named
