"""Loops of recurrent cells, and calls of attention one after another: they launch products, too."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pytest

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.plan import _in_order
from nsysflow.analysis.findings.rules.loops import (
    CHANGE_OF_CELLS,
    CHANGE_OF_HEADS,
    CHANGE_OF_SEQUENCES,
    attention_in_turn,
    loop_of_launches,
)
from tests import in_us
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import Row, found, launched, left_of, loop
from tests.in_us import opened
from tests.oracle.model import Op, Shape

CELL: Final = f"void {names.NATIVE}<unnamed>::kernel::lstm_cell_forward<float, float, int, (int)1>"
GRADIENT: Final = CELL.replace("forward", "backward")
NORM_GRADIENT: Final = f"void {names.NATIVE}<unnamed>::layer_norm_grad_input_kernel<float>"
FLASH_GRADIENT: Final = names.FLASH.replace("fprop", "bprop")
OTHER_PRODUCT: Final = names.BF16[1]

HEAD: Final = (*(names.DOWN, names.PRODUCT) * 3, names.FLASH)
HEAD_GRADIENT: Final = (FLASH_GRADIENT, *(names.PRODUCT, OTHER_PRODUCT, names.ADD) * 3)
MLP: Final = (names.NORM, names.PRODUCT, names.MUL, names.PRODUCT)


def steps(
    forward: Sequence[str],
    backward: Sequence[str],
    *,
    grids: Sequence[int] = (1,),
    code: Sequence[tuple[str, ...]] = (),
) -> JudgedReport:
    """Steps that launch these, 20 us apart, and then 120 products in a row. Calls of attention take
    turns in these `grids`. While each is launched, the functions of `code` run, likewise."""
    every = 20 * (len(forward) + len(backward)) + 600
    return loop(_step(forward, backward, grids, code), every=every)


def _step(
    forward: Sequence[str],
    backward: Sequence[str],
    grids: Sequence[int],
    code: Sequence[tuple[str, ...]],
) -> Iterator[Row]:
    begin, calls = 0, 0
    for phase, kinds in (("forward", forward), ("backward", backward)):
        end = begin + 20 * len(kinds)
        yield opened(begin, end + 10, phase)
        for place, kind in enumerate(kinds):
            at = begin + 20 * place
            for row in launched(at, 2, took=6, name=kind):
                if isinstance(row, Op) and kind == names.FLASH:
                    row = replace(row, shape=Shape(grid_x=grids[calls % len(grids)]))
                    calls += 1
                yield row
            if code:
                yield in_us.sample(at + 1, *code[place % len(code)])
        begin = end + 20
    for at in range(begin, begin + 480, 4):
        yield from launched(at, 1, took=1, name=OTHER_PRODUCT)


def layers(head: tuple[str, ...], heads: int, between: tuple[str, ...]) -> list[str]:
    """What five layers launch: so many heads, and then the rest of the layer."""
    return [*(*head * heads, *between)] * 5


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
    assert not found(attention_in_turn, subject)


def test_layers_with_products_are_no_loop_of_recurrent_cells() -> None:
    layer = (names.PRODUCT, names.MUL, OTHER_PRODUCT)
    assert not found(loop_of_launches, steps(layer * 30, ()))


def test_heads_that_call_attention_in_turn_are_found_before_a_graph_of_the_step() -> None:
    """As modules for each head launch them, in each of five layers."""
    subject = steps(layers(HEAD, 6, MLP), layers(HEAD_GRADIENT, 6, (NORM_GRADIENT,)))
    (one,), first = found(attention_in_turn, subject), find(subject).valued[0]
    assert one.title.startswith(
        "attention is called 30 times a step, 6 in a row, with 210 kernels in step/forward, 300"
        " more in backward"
    )
    assert one.change == CHANGE_OF_HEADS
    assert {*left_of(one)} == {names.DOWN, names.ADD}
    assert (first.finding.title, first.finding.method) == (one.title, "bound")
    assert not found(loop_of_launches, subject)


@pytest.mark.parametrize(("times", "first"), [(2, True), (4, False)])
def test_heads_come_before_a_graph_that_saves_less_than_three_times_as_much(
    times: int, *, first: bool
) -> None:
    heads = find(steps(layers(HEAD, 6, MLP), layers(HEAD_GRADIENT, 6, (NORM_GRADIENT,)))).valued[0]
    graph = replace(heads.finding, rule="launch-bound")
    ns = times * heads.alone_ns
    launches = replace(heads, finding=graph, alone_ns=ns, alone_low_ns=ns, low_ns=ns, high_ns=ns)
    plan = _in_order([launches, heads], 10 * ns)
    assert (plan[0] is heads) == first


@pytest.mark.parametrize(
    ("head", "heads", "between"),
    [
        (HEAD, 3, MLP),
        ((*HEAD, names.NORM), 6, ()),
        ((*(names.PRODUCT, names.MUL) * 4, names.FLASH), 6, ()),
        ((*(names.PRODUCT, names.MUL) * 4, names.FLASH, "flash_fwd_splitkv_combine"), 6, ()),
    ],
    ids=["few", "a norm between them", "layers without norms", "a call of two kernels"],
)
def test_layers_do_not_call_attention_in_turn(
    head: tuple[str, ...], heads: int, between: tuple[str, ...]
) -> None:
    assert not found(attention_in_turn, steps(layers(head, heads, between), ()))


def test_heads_that_are_parts_of_one_product_are_in_turn() -> None:
    subject = steps(layers((names.FLASH, names.DOWN), 12, MLP), ())
    (one,) = found(attention_in_turn, subject)
    assert one.title.startswith("attention is called 60 times a step, 12 in a row, with 120")


def test_calls_of_different_sizes_are_told_to_pack_their_sequences() -> None:
    (one,) = found(attention_in_turn, steps(layers(HEAD, 6, MLP), (), grids=(7, 5, 9)))
    assert one.change == CHANGE_OF_SEQUENCES


def test_calls_of_attention_are_placed_at_the_line_that_calls_the_head() -> None:
    """Half of the launches are at each of two lines of the head."""
    code = [("project", "head", "heads", "step"), ("attend", "head", "heads", "step")]
    (one,) = found(attention_in_turn, steps(layers(HEAD, 6, MLP), (), code=code))
    assert one.source == "train.py:2 in head"
    assert one.title.endswith("head (train.py:2)")
