"""How calls are timed; the device time of a repetition's launches in any order of the record."""

from collections.abc import Callable
from functools import partial
from random import Random as Shuffled
from unittest.mock import Mock
from weakref import WeakSet

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.kernels.bench.measurement import RUNS, _again, _once_each, _placements, measured
from nsysflow.kernels.bench.problem import Direction, Random, call_of
from nsysflow.kernels.bench.problems import BENCHMARKS
from nsysflow.kernels.bench.rows import PASSES, REPETITIONS, REPLAYS, Measured
from nsysflow.kernels.bench.stopwatch import (
    Activity,
    Call,
    LostActivity,
    Repetition,
    Stopwatch,
    repetitions_of,
    stopwatch,
)


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
def test_a_call_that_waits_for_the_gpu_is_timed_but_not_captured(watch: Stopwatch) -> None:
    with watch.using():
        x = torch.ones(1000, device=watch.device)
        timed = measured(watch, lambda: x.sum().item(), lambda: lambda: x.sum().item())
    assert timed.graph_cold is timed.graph_warm is None
    assert timed.why_no_graph
    assert timed.span_cold.min_ns > 0
    # raises after a failed capture, unless it is followed by a successful one
    torch.rand(1, device=watch.device)


class Session:
    """A record like CUPTI's: the host runs ahead of the device, and waits wait for it."""

    def __init__(self) -> None:
        self.record: list[Activity] = []
        self._host_ns = 1_000
        self._device_ns = 0
        self._correlation = 0

    def launch(self, kernel: str, duration_ns: int, *, recorded: bool = True) -> None:
        self._correlation += 1
        call = "cudaLaunchKernel" if self._correlation % 2 else "cuLaunchKernelEx"
        if recorded:
            self._add(call, self._host_ns, self._host_ns + 5)
        start_ns = max(self._host_ns + 8, self._device_ns + 1)
        self._device_ns = start_ns + duration_ns
        self._add(kernel, start_ns, self._device_ns, on_device=True)
        self._host_ns += 6

    def wait(self, call: str) -> None:
        self._correlation += 1
        self._add(call, self._host_ns, max(self._host_ns, self._device_ns) + 3)
        self._host_ns = self.record[-1].end_ns + 1

    def repetition(self, durations_ns: list[int], *, flush_ns: int = 60_000) -> None:
        self.launch("fill", flush_ns)
        self.wait("cudaEventSynchronize")
        for duration_ns in durations_ns:
            self.launch("fill", duration_ns)
        self.wait("cudaDeviceSynchronize")

    def _add(self, name: str, start_ns: int, end_ns: int, *, on_device: bool = False) -> None:
        at = {"start_ns": start_ns, "end_ns": end_ns, "correlation": self._correlation}
        self.record.append(Activity(name=name, on_device=on_device, **at))


durations = st.integers(0, 10**8)


@given(
    st.integers(1, 4).flatmap(
        lambda kernels: st.lists(
            st.tuples(durations, st.lists(durations, min_size=kernels, max_size=kernels)),
            min_size=1,
            max_size=8,
        )
    ),
    st.randoms(use_true_random=False),
)
def test_a_repetition_has_its_kernels(calls: list[tuple[int, list[int]]], random: Shuffled) -> None:
    session = Session()
    session.launch("fill", 123)  # the call before the first range
    for flush_ns, kernels_ns in calls:
        session.wait("cudaDeviceSynchronize")  # outside a range
        session.repetition(kernels_ns, flush_ns=flush_ns)
    session.wait("cudaDeviceSynchronize")  # the profiler's own, at its end
    random.shuffle(session.record)
    assert repetitions_of(session.record, len(calls)) == [
        Repetition(operations=len(kernels_ns), device_ns=sum(kernels_ns)) for _, kernels_ns in calls
    ]


@pytest.mark.parametrize("version", ["", "_v3020"])
def test_a_kernel_without_its_launch_counts_by_its_own_start(version: str) -> None:
    session = Session()
    session.launch("flush", 500)
    session.wait(f"cudaEventSynchronize{version}")
    session.launch("one", 40, recorded=False)
    session.launch("two", 2)
    session.wait(f"cudaDeviceSynchronize{version}")
    session.launch("after", 900, recorded=False)
    assert repetitions_of(session.record, 1) == [Repetition(operations=2, device_ns=42)]


@pytest.mark.parametrize(
    ("repetitions", "asked", "said"),
    [
        ([[3]], 2, "2 repetitions ran, but the record has 1"),
        ([[3, 4], [3]], 2, "have 1, 2 device operations"),
        ([[]], 1, "have 0 device operations"),
    ],
    ids=["a repetition is lost", "a kernel is lost", "without kernels"],
)
def test_an_incomplete_one_is_refused(repetitions: list[list[int]], asked: int, said: str) -> None:
    session = Session()
    for durations_ns in repetitions:
        session.repetition(durations_ns)
    with pytest.raises(LostActivity, match=said):
        repetitions_of(session.record, asked)
