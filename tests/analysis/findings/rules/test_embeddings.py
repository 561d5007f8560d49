"""Embeddings whose gradient is dense."""

from typing import Final

import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.rules.embeddings import dense_embedding
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import US, asked, left_of, subject_of

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


def found_in(launches: Launches) -> Finding | None:
    blocks = [blocks for _, _, blocks in launches]
    kernels = [(name, us) for name, us, _ in launches]
    return asked(dense_embedding, subject_of(kernels, blocks=(blocks[-1], *blocks[:-1])))


def changed(row: int, *instead: tuple[str, int, int]) -> Launches:
    """The step with other kernels instead of one."""
    return [*STEP[:row], *instead, *STEP[row + 1 :]]


def test_the_table_is_filled_and_takes_its_part_of_the_optimizer() -> None:
    found = found_in(STEP)
    assert found is not None
    assert found.title == (
        "an embedding's gradient is dense: its whole table is filled and updated, 39 % of kernel"
        " time"
    )
    assert "sparse=True" in found.change[0]
    assert "SparseAdam is lazy" in found.change[3]
    assert found.evidence[0] == (
        "a gradient of about 819 MB, of which a step uses at most 20,000 rows"
    )
    assert found.method == "bound"
    assert left_of(found) == {FILL: 0.0, names.FOREACH: 0.5}


def test_the_host_launches_a_sparse_update_behind_its_wait() -> None:
    found = found_in(STEP)
    assert found is not None
    # two launches of 0.5 us, and 0.5 us between them
    assert found.at_most_ns == round((200 + 625 / 2 - 1.5) * US)


def test_each_pass_of_the_optimizer_has_the_table() -> None:
    found = found_in([*STEP, (OTHER_PASS, 100, 6_250)])
    assert left_of(found) == {FILL: 0.0, names.FOREACH: 0.5, OTHER_PASS: 0.5}


def test_each_step_is_of_its_own_tables() -> None:
    assert left_of(found_in([*STEP, *STEP])) == {FILL: 0.0, names.FOREACH: 0.5}


def test_tables_are_updated_together() -> None:
    small: Launches = [(FILL, 100, 100_000), (WRITE, 50, 20_000)]
    found = found_in([*STEP[:4], *small, *STEP[4:]])
    assert left_of(found) == {FILL: 0.0, names.FOREACH: 0.25}


def test_a_pass_of_fewer_elements_is_of_other_parameters() -> None:
    assert left_of(found_in([*STEP, (OTHER_PASS, 100, 3_000)])) == {FILL: 0.0, names.FOREACH: 0.5}


def test_a_sum_before_it_is_of_other_gradients() -> None:
    assert found_in(changed(1, (SUM, 500, 9_000))) is not None


def test_a_few_rows_have_a_kernel_of_their_own() -> None:
    found = found_in(changed(3, (FEW, 100, 2)))
    assert found is not None
    assert found.evidence[0] == "a gradient of about 819 MB"


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
    assert found_in(launches) is None
