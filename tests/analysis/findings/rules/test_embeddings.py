"""Embeddings whose gradient is dense."""

from typing import Final

import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.rules.embeddings import dense_embedding
from nsysflow.base.units import size
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import US, found, left_of, subject_of

NATIVE: Final = "void at::native::"
LOOK_UP: Final = f"{NATIVE}vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int)"
BAG: Final = f"{NATIVE}EmbeddingBag_updateOutputKernel_sum_mean<float, long>(const T2 *)"
FILL: Final = f"{NATIVE}vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int)"
WRITE: Final = f"{NATIVE}<unnamed>::sum_and_scatter<float, long>(const T2 *, T1 *, long)"
FEW: Final = f"{NATIVE}<unnamed>::embedding_backward_feature_kernel<float, float, long>(const T3 *)"
SUM: Final = (
    f"{NATIVE}vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>(int)"
)
OTHER_PASS: Final = names.FOREACH.replace("(int)3", "(int)2")

Launches = list[tuple[str, int, int]]
"""Full names, lengths in us, and blocks."""

STEP: Final[Launches] = [
    (LOOK_UP, 100, 20_000),
    (names.PRODUCT, 300, 100),
    (FILL, 200, 200_000),
    (WRITE, 100, 20_000),
    (names.FOREACH, 400, 4_000),
    (names.FOREACH, 225, 2_250),
]
"""The table has 200,000 x 1,024 elements, of which an optimizer's block takes 65,536: 3,125 of its
6,250 blocks. More elements in 200 us are more than the memory takes, fewer are half of it."""


def found_in(launches: Launches) -> list[Finding]:
    blocks = [blocks for _, _, blocks in launches]
    kernels = [(name, us) for name, us, _ in launches]
    return found(dense_embedding, subject_of(kernels, blocks=(blocks[-1], *blocks[:-1])))


def changed(row: int, *instead: tuple[str, int, int]) -> Launches:
    """The step with other kernels instead of one."""
    return [*STEP[:row], *instead, *STEP[row + 1 :]]


def test_the_table_is_filled_and_takes_its_part_of_the_optimizer() -> None:
    (one,) = found_in(STEP)
    assert one.title == (
        "an embedding's gradient is dense: its whole table is filled and updated, 39 % of kernel"
        " time"
    )
    assert "sparse=True" in one.change[0]
    assert "SparseAdam is lazy" in one.change[3]
    assert one.evidence[0] == (
        "a gradient of about 819 MB, of which a step uses at most 20,000 rows"
    )
    assert one.method == "bound"
    # a sparse update is launched behind its wait: two launches of 0.5 us, and 0.5 us between them
    assert one.at_most_ns == round((200 + 625 / 2 - 1.5) * US)


SMALL: Final[Launches] = [(FILL, 100, 100_000), (WRITE, 50, 20_000)]


@pytest.mark.parametrize(
    ("launches", "left"),
    [
        pytest.param(STEP, {names.FOREACH: 0.5}, id="one table"),
        pytest.param(
            [*STEP, (OTHER_PASS, 100, 6_250)],
            {names.FOREACH: 0.5, OTHER_PASS: 0.5},
            id="each pass has the table",
        ),
        pytest.param([*STEP, *STEP], {names.FOREACH: 0.5}, id="each step is of its own tables"),
        pytest.param([*STEP[:4], *SMALL, *STEP[4:]], {names.FOREACH: 0.25}, id="tables together"),
        pytest.param(
            [*STEP, (OTHER_PASS, 100, 3_000)], {names.FOREACH: 0.5}, id="fewer are other parameters"
        ),
    ],
)
def test_the_optimizer_keeps_what_is_of_other_parameters(
    launches: Launches, left: dict[str, float]
) -> None:
    (one, *_) = found_in(launches)
    assert left_of(one) == {FILL: 0.0, **left}


def test_a_sum_before_it_is_of_other_gradients() -> None:
    assert found_in(changed(1, (SUM, 500, 9_000)))


@pytest.mark.parametrize(
    ("blocks", "parts"), [(625_000, 2), (156_250, 1)], ids=["in two parts", "two small tensors"]
)
def test_a_table_of_over_2_gib_is_filled_in_parts(blocks: int, parts: int) -> None:
    fill = (FILL, blocks // 1_000, blocks)
    (one,) = found_in(
        [STEP[0], STEP[1], fill, fill, STEP[3], (names.FOREACH, 900, 2 * blocks // 64)]
    )
    assert one.evidence[0].startswith(f"a gradient of about {size(parts * blocks * 4_096)}")
    assert one.evidence[1].startswith(f"filled with zeros: {parts} kernel")


def test_a_few_rows_have_a_kernel_of_their_own() -> None:
    (one,) = found_in(changed(3, (FEW, 100, 2)))
    assert one.evidence[0] == "a gradient of about 819 MB"


@pytest.mark.parametrize(
    "launches",
    [
        pytest.param(changed(0, (LOOK_UP, 201, 20_000)), id="most rows are read"),
        pytest.param(changed(0, (BAG, 101, 20_000)), id="bags of rows are read and not written"),
        pytest.param(changed(3, (WRITE, 100, 20_000), (SUM, 600, 200_000)), id="the output, too"),
        pytest.param(changed(2, (FILL, 200, 0)), id="of unknown size"),
        pytest.param(changed(2, (FILL, 200, 200_000), *[(names.NORM, 1, 9)] * 16), id="far apart"),
        pytest.param(changed(1, (names.PRODUCT, 9_000, 100)), id="little of the time"),
        pytest.param([*STEP[:4], (names.FOREACH, 100, 3_000)], id="no pass has its size"),
        pytest.param(STEP[1:], id="no look-up"),
        pytest.param([*STEP[:3], *STEP[4:]], id="no embedding"),
        pytest.param(STEP[:4], id="no optimizer"),
    ],
)
def test_nothing_is_said_of_embeddings(launches: Launches) -> None:
    assert not found_in(launches)
