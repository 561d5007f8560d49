"""The formulas of matrix products agree with counts by hand and with what PyTorch counts."""

from importlib import import_module
from itertools import pairwise

import pytest
from torch.utils.flop_counter import FlopCounterMode

from nsysflow.catalog.catalog import find
from nsysflow.workloads.common.config import Work
from nsysflow.workloads.common.training import perceptron_flops, product
from tests.workloads.toys import toy

DECLARING = ("alloc_churn", "dataload", "ddp", "h2d", "metrics", "nan_check", "overlap")


def test_a_product_has_one_multiplication_and_one_addition_per_term() -> None:
    assert product(2, 3, 4) == 2 * 3 * (4 + 4)


@pytest.mark.parametrize("widths", [(4, 8), (4, 8, 6, 2)])
def test_the_operations_of_a_perceptron_match_a_count_by_hand(widths: tuple[int, ...]) -> None:
    layers = [2 * 5 * m * n for m, n in pairwise(widths)]
    assert perceptron_flops(5, widths) == {
        "forward": sum(layers),
        "backward": sum(layers) + sum(layers[1:]),
    }


@pytest.mark.parametrize("name", DECLARING)
def test_a_workload_declares_what_pytorch_counts_in_a_step(name: str) -> None:
    config = toy(find(name))
    work: Work = getattr(import_module(f"nsysflow.workloads.{name}"), name)(config)
    work.step(0)
    with FlopCounterMode(display=False) as counter:
        work.step(1)
    work.result()
    assert work.flops is not None
    assert work.flops.unit == "float32"
    assert counter.get_total_flops() == sum(work.flops.phases.values())
