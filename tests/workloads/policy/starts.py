"""What a training step of the policy starts from, at sizes for tests."""

from dataclasses import replace
from typing import Final

import torch

from nsysflow.catalog.catalog import find
from nsysflow.workloads.common.run import options_of
from nsysflow.workloads.common.training import Precision
from nsysflow.workloads.policy.variants import Start, start_of
from tests.workloads.toys import toy

TRAINSTEP: Final = find("trainstep")

SMALL: Final = {"horizon": 5, "minibatch": 4, "hidden": 8}
"""The interpreter's time depends on the number of programs and on the steps of a segment."""


def small_start(precision: Precision = "float", **options: int) -> Start:
    """A start of small size, on the CPU."""
    torch.manual_seed(0)
    return start_of(toy(TRAINSTEP, precision=precision, options=SMALL | options))


def usual_start(precision: Precision) -> Start:
    """A start of the usual size, on a GPU."""
    torch.manual_seed(0)
    config = toy(TRAINSTEP, on="cuda", precision=precision)
    return start_of(replace(config, options=options_of(TRAINSTEP, "cuda", {})))
