"""How calls are timed; with a GPU, also that they can be."""

from collections.abc import Callable
from functools import partial
from unittest.mock import Mock
from weakref import WeakSet

import pytest
import torch

from nsysflow.kernels.bench.measurement import RUNS, _again, _once_each, _placements, measured
from nsysflow.kernels.bench.problem import Direction, Random, call_of
from nsysflow.kernels.bench.problems import BENCHMARKS
from nsysflow.kernels.bench.rows import PASSES, REPETITIONS, REPLAYS, Measured
from nsysflow.kernels.bench.stopwatch import Call, Stopwatch, stopwatch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Output:
    """The output of a call; its memory is freed with it."""


@pytest.mark.parametrize(
    ("times", "living"),
    [(lambda call: _once_each(4 * [call]), [1, 2, 3, 4]), (lambda call: _again(call, 4), 4 * [1])],
    ids=["cold", "warm"],
)
def test_cold_calls_write_apart(times: Callable[[Call], object], living: list[int]) -> None:
    outputs: WeakSet[Output] = WeakSet()
    seen: list[int] = []

    def call() -> Output:
        output = Output()
        outputs.add(output)
        seen.append(len(outputs))
        return output

    times(call)
    assert seen == living


@pytest.mark.parametrize(("each", "placements"), [(0, 20), (10, 6), (1000, RUNS)])
def test_placements_take_at_most_half_of_the_free_memory(
    each: int, placements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Mock()
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (100 - call.call_count * each, 100))
    assert len(_placements(call, lambda: call, 20)) == placements
    assert call.call_count == placements - 1


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    """A stopwatch for the first GPU; few placements are enough for these tests."""
    monkeypatch.setattr("nsysflow.kernels.bench.measurement.PLACEMENTS", 2)
    return stopwatch(torch.device("cuda", 0))


def toy(watch: Stopwatch, name: str, direction: Direction) -> Call:
    benchmark = BENCHMARKS[name]
    problem = benchmark.make(benchmark.toy, Random(device=watch.device, dtype=torch.float32))
    return call_of(problem, problem.kernels["triton"], direction)


def measured_toy(watch: Stopwatch, name: str, direction: Direction) -> Measured:
    with watch.using():
        another = partial(toy, watch, name, direction)
        return measured(watch, another(), another)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_direction_of_a_kernel_can_be_timed_and_captured(watch: Stopwatch, name: str) -> None:
    for direction in BENCHMARKS[name].directions:
        timed = measured_toy(watch, name, direction)
        assert timed.why_no_graph is None
        assert timed.graph_cold is not None
        assert timed.graph_warm is not None
        assert timed.device.n == RUNS * REPETITIONS[1]
        assert timed.graph_warm.n == RUNS * 2 * REPLAYS
        assert timed.span_cold.n == timed.span_warm.n == timed.graph_cold.n == RUNS * PASSES
        assert timed.device.min_ns > 0
        assert timed.host_min_ns > 0


@pytest.mark.gpu
@needs_gpu
def test_a_call_that_waits_for_the_gpu_is_timed_but_not_captured(watch: Stopwatch) -> None:
    with watch.using():
        x = torch.ones(1000, device=watch.device)
        timed = measured(watch, lambda: x.sum().item(), lambda: lambda: x.sum().item())
    assert timed.graph_cold is timed.graph_warm is None
    assert timed.why_no_graph
    assert timed.span_cold.min_ns > 0
    # raises after a failed capture, unless it is followed by a successful one
    torch.rand(1, device=watch.device)
