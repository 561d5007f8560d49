"""What needs a GPU to be measured, on one."""

import pytest
import torch

from nsysflow.kernels.bench.calls import call_of
from nsysflow.kernels.bench.measuring import RUNS, Stopwatch, measured, stopwatch
from nsysflow.kernels.bench.problem import Direction, Random
from nsysflow.kernels.bench.problems import KERNELS
from nsysflow.kernels.bench.rows import Measured
from nsysflow.kernels.bench.samples import REPETITIONS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def watch() -> Stopwatch:
    """A stopwatch for the first GPU."""
    return stopwatch(torch.device("cuda", 0))


def measured_toy(watch: Stopwatch, name: str, direction: Direction) -> Measured:
    kernel = KERNELS[name]
    with watch.using():
        problem = kernel.make(kernel.toy, Random(device=watch.device, dtype=torch.float32))
        return measured(watch, call_of(problem, problem.kernels["triton"], direction))


@pytest.mark.parametrize("name", KERNELS)
def test_each_direction_of_each_kernel_can_be_timed_and_captured(
    watch: Stopwatch, name: str
) -> None:
    for direction in KERNELS[name].directions:
        timed = measured_toy(watch, name, direction)
        assert timed.why_no_graph is None
        assert timed.device.n == timed.span_cold.n == RUNS * REPETITIONS[1]
        assert timed.device.min_ns > 0


def test_a_call_allocates_what_it_returns(watch: Stopwatch) -> None:
    assert measured_toy(watch, "copy", "fwd").peak_memory_bytes == 3 * 1024
