"""Pieces of work run side by side, each is counted, and a failure stops the rest."""

import time
from functools import partial

import pytest

from nsysflow.analysis.frames.parallel import side_by_side


@pytest.mark.parametrize("at_once", [1, 2])
def test_results_come_in_order_and_each_piece_is_counted(at_once: int) -> None:
    counted: list[None] = []
    pieces = [partial(int, at) for at in range(20)]
    found = side_by_side(pieces, lambda: counted.append(None), at_once=at_once)
    assert found == list(range(20))
    assert len(counted) == 20


@pytest.mark.parametrize("at_once", [1, 2])
def test_after_a_failure_what_has_not_begun_does_not_begin(at_once: int) -> None:
    ran: list[float] = []

    def fail() -> None:
        raise ZeroDivisionError

    def work() -> None:
        time.sleep(0.01)
        ran.append(1)

    with pytest.raises(ZeroDivisionError):
        side_by_side([fail, *[work] * 1000], at_once=at_once)
    assert len(ran) < 1000
