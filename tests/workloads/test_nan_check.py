"""A NaN stops the run: immediately if the host waits, soon if it does not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.base.errors import WorkloadError
from nsysflow.catalog.catalog import find
from nsysflow.workloads.common.run import run
from nsysflow.workloads.nan_check import RING, NanFlags
from tests.workloads.toys import toy

NAN_CHECK = find("nan_check")


@pytest.mark.parametrize("variant", ["sync", "async"])
def test_a_nan_in_a_step_of_the_run_stops_it(variant: str) -> None:
    for step in (0, 2, 3):
        with pytest.raises(WorkloadError, match=f"the loss of step {step} is NaN"):
            run(toy(NAN_CHECK, variant, options={"nan_at_step": step}))
    assert run(toy(NAN_CHECK, variant, options={"nan_at_step": 4})).result.isfinite()


class Gpu:
    """A simulated GPU that is some steps behind the host."""

    def __init__(self, behind: int) -> None:
        self.behind = behind
        self.now = 0
        self.waited_until = -1
        self.waits = 0

    def event(self) -> "LateEvent":
        return LateEvent(self)


class LateEvent:
    """An event of the simulated GPU; waiting for it also waits for all earlier ones."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.step = 0

    def record(self) -> None:
        self.step = self.gpu.now

    def query(self) -> bool:
        return self.step <= max(self.gpu.waited_until, self.gpu.now - self.gpu.behind)

    def synchronize(self) -> None:
        self.gpu.waits += not self.query()
        self.gpu.waited_until = max(self.gpu.waited_until, self.step)


def steps_until_stopped(gpu: Gpu, nan_at: int, count: int) -> int | None:
    """The step in which the flag of a NaN stops the loop."""
    flags = NanFlags(gpu.event, pinned=False)
    for gpu.now in range(count):
        try:
            flags.send(torch.tensor(gpu.now == nan_at), gpu.now)
            flags.read(gpu.now)
        except WorkloadError:
            return gpu.now
    return None


@given(behind=st.integers(0, 3 * RING), nan_at=st.integers(0, 30))
def test_a_nan_stops_when_its_flag_arrives_or_the_ring_is_full(behind: int, nan_at: int) -> None:
    found = steps_until_stopped(Gpu(behind), nan_at, nan_at + RING + 1)
    assert found == nan_at + min(behind, RING)


@given(behind=st.integers(0, 3 * RING))
def test_the_host_waits_only_when_the_gpu_is_a_whole_ring_behind(behind: int) -> None:
    gpu = Gpu(behind)
    assert steps_until_stopped(gpu, nan_at=-1, count=4 * RING) is None
    assert bool(gpu.waits) == (behind > RING)


@given(behind=st.integers(0, RING), nan_at=st.integers(0, 12))
def test_a_nan_in_the_last_steps_is_noticed_at_the_end(behind: int, nan_at: int) -> None:
    gpu = Gpu(behind)
    flags = NanFlags(gpu.event, pinned=False)
    for gpu.now in range(nan_at + 1):
        flags.send(torch.tensor(gpu.now == nan_at), gpu.now)
    with pytest.raises(WorkloadError, match=f"step {nan_at} is NaN"):
        flags.read_all()
