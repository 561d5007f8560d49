"""Sums of whole numbers are exact in any order."""

import torch

from nsysflow.catalog.catalog import find
from nsysflow.workloads.common.run import run
from nsysflow.workloads.sum_many import BELOW
from tests.workloads.toys import toy

SUM_MANY = find("sum_many")


def test_float32_holds_every_sum_of_a_hundred_steps_exactly() -> None:
    (numel,) = (option.default for option in SUM_MANY.options if option.name == "numel")
    assert 100 * 1.5 * numel * (BELOW - 1) < 2**24


def test_every_step_adds_the_same_whole_numbers() -> None:
    once, thrice = (run(toy(SUM_MANY, steps=steps)).result for steps in (1, 3))
    assert torch.equal(thrice, 3 * once)
    assert torch.equal(once, once.round())
    assert once.count_nonzero() > 0
