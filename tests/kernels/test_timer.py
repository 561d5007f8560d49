"""CUDATimer on a simulated GPU: a clock that the test moves, and events on it."""

import pytest

from nsysflow.kernels import timer as module
from nsysflow.kernels.timer import CUDATimer, CUDATimerCollection, Timing


class Gpu:
    """A simulated GPU: queued work runs only when someone waits or `run` is called."""

    def __init__(self) -> None:
        self.queued_ms = 0.0
        self.done_ms = 0.0
        self.events = 0
        self.waits = 0

    def queue(self, ms: float) -> None:
        self.queued_ms += ms

    def run(self) -> None:
        self.done_ms = self.queued_ms

    def event(self) -> "FakeEvent":
        self.events += 1
        return FakeEvent(self)


class FakeEvent:
    """An event after the work that was queued when it was recorded."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.at_ms = float("inf")

    def record(self) -> None:
        self.at_ms = self.gpu.queued_ms

    def query(self) -> bool:
        return self.at_ms <= self.gpu.done_ms

    def synchronize(self) -> None:
        self.gpu.waits += 1
        self.gpu.run()

    def elapsed_time(self, end_event: "FakeEvent") -> float:
        assert self.query()
        assert end_event.query(), "read before the GPU reached it"
        return end_event.at_ms - self.at_ms


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


def test_passes_add_up_before_and_after_a_reading(gpu: Gpu) -> None:
    timer = CUDATimer("forward", event=gpu.event)
    for passes, (ms, total_ns) in enumerate([(1.5, 1_500_000), (2, 3_500_000), (4, 7_500_000)], 1):
        gpu.queue(7)
        with timer:
            gpu.queue(ms)
        gpu.queue(9)
        for _ in range(2):
            assert timer.read() == Timing(name="forward", count=passes, total_ns=total_ns)


def test_of_nested_passes_only_the_outermost_counts(gpu: Gpu) -> None:
    timer = CUDATimer(event=gpu.event)
    with timer:
        gpu.queue(1)
        with timer:
            gpu.queue(2)
        gpu.queue(4)
        assert timer.read().total_ns is None, "it has not ended"
    assert timer.read() == Timing(name="", count=1, total_ns=7_000_000)


def test_a_pass_that_raises_is_timed_and_still_raises(gpu: Gpu) -> None:
    timer = CUDATimer(event=gpu.event)

    def fail() -> None:
        with timer:
            gpu.queue(3)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with timer:
        gpu.queue(1)
    assert timer.read() == Timing(name="", count=2, total_ns=4_000_000)


@pytest.mark.parametrize("keeps_up", [True, False])
def test_nothing_waits_while_the_gpu_keeps_up(gpu: Gpu, keeps_up: bool) -> None:
    timer = CUDATimer(event=gpu.event)
    passes = 4 * module.PENDING_MAX
    for _ in range(passes):
        with timer:
            gpu.queue(1)
        if keeps_up:
            gpu.run()
    assert gpu.events <= (2 * module.PENDING_MAX + 2 if keeps_up else 2 * passes)
    assert gpu.waits == 0
    assert timer.read() == Timing(name="", count=passes, total_ns=passes * 1_000_000)
    assert gpu.waits == 1


def test_a_collection_reads_its_regions_in_order_nested_or_not(gpu: Gpu) -> None:
    timers = CUDATimerCollection(["a", "b", "c"], event=gpu.event)
    with timers.region("c"):
        gpu.queue(1)
        with timers.region("a"):
            gpu.queue(2)
    with timers.region("c"):
        gpu.queue(4)
    assert timers.read() == (
        Timing(name="a", count=1, total_ns=2_000_000),
        Timing(name="b", count=0, total_ns=None),
        Timing(name="c", count=2, total_ns=7_000_000),
    )
