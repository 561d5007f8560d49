"""Loops of recurrent cells: they launch products, too."""

from collections.abc import Iterator, Sequence
from typing import Final

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.loops import CHANGE_OF_CELLS, loop_of_launches
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Row, found, launched, left_of, loop
from tests.in_us import opened

CELL: Final = f"void {names.NATIVE}<unnamed>::kernel::lstm_cell_forward<float, float, int, (int)1>"
GRADIENT: Final = CELL.replace("forward", "backward")
OTHER_PRODUCT: Final = names.BF16[1]


def steps(forward: Sequence[str], backward: Sequence[str]) -> JudgedReport:
    """Steps that launch these, 20 us apart, and then 120 products in a row."""
    every = 20 * (len(forward) + len(backward)) + 600
    return loop(_step(forward, backward), every=every)


def _step(forward: Sequence[str], backward: Sequence[str]) -> Iterator[Row]:
    begin = 0
    for phase, kinds in (("forward", forward), ("backward", backward)):
        end = begin + 20 * len(kinds)
        yield opened(begin, end + 10, phase)
        for place, kind in enumerate(kinds):
            yield from launched(begin + 20 * place, 2, took=6, name=kind)
        begin = end + 20
    for at in range(begin, begin + 480, 4):
        yield from launched(at, 1, took=1, name=OTHER_PRODUCT)


def test_a_loop_of_recurrent_cells_counts_its_products_and_is_told_of_whole_sequences() -> None:
    """As nn.LSTMCell for each token launches them; a cell's products stay as long as they are."""
    cell = (names.PRODUCT, OTHER_PRODUCT, CELL)
    gradient = (GRADIENT, OTHER_PRODUCT, names.ADD)
    subject = steps(cell * 20, gradient * 20)
    (one,), first = found(loop_of_launches, subject), find(subject).valued[0]
    assert one.title.startswith("a loop launches 60 small kernels a step in step/forward, 60 more")
    assert one.change == CHANGE_OF_CELLS
    assert left_of(one) == dict.fromkeys((CELL, GRADIENT, names.ADD), 0.2)
    assert (first.finding.title, first.finding.method) == (one.title, "bound")


def test_layers_with_products_are_no_loop_of_recurrent_cells() -> None:
    layer = (names.PRODUCT, names.MUL, OTHER_PRODUCT)
    assert not found(loop_of_launches, steps(layer * 30, ()))
