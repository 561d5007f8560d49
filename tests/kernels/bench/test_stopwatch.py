"""Device time is that of the work launched in a repetition, in any order of the record."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsysflow.kernels.bench.stopwatch import Activity, LostActivity, Repetition, repetitions_of


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
def test_a_repetition_has_its_kernels(calls: list[tuple[int, list[int]]], random: Random) -> None:
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
