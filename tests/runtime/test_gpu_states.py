"""Clocks, power, temperature and traffic are sampled while something records, and never harm the
program."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nsysflow.runtime import captures, gpu_states
from nsysflow.runtime.captures import CudaProfilerCapture
from nsysflow.runtime.gpu_states import STATES, TRAFFIC, Field, Nvml, Sampler
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import READINGS as ASKED
from tests.recording import Kept, kineto_capture

READINGS = {
    ("nvmlDeviceGetClockInfo", 1): 1980,
    ("nvmlDeviceGetClockInfo", 2): 2619,
    ("nvmlDeviceGetPowerUsage",): 351_200,
    ("nvmlDeviceGetTemperature", 0): 52,
    ("nvmlDeviceGetCurrentClocksThrottleReasons",): 4,
}
CALLED = {("nvmlDeviceGetPcieThroughput", 0): 7, ("nvmlDeviceGetPcieThroughput", 1): 9}
LINK = {("nvmlDeviceGetMaxPcieLinkGeneration",): 4, ("nvmlDeviceGetMaxPcieLinkWidth",): 8}
FIELDS = {(197, 0): (1, 5), (198, 0): (3, 6), (138, 2**32 - 1): (3, 1 << 40)}
"""Of NVML's fields and scopes the type and the value."""
NOT_SUPPORTED = 3


class Library:
    """An NVML with these readings; what it lacks, it does not support."""

    def __init__(self, readings: dict[Any, int], *, code: int = 0, fields: Any = None) -> None:
        self.readings, self.code, self.fields = readings, code, fields
        self.asked: list[bytes] = []

    def nvmlInit_v2(self) -> int:
        return self.code

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        self.asked.append(uuid)
        handle._obj.value = 7
        return 0 if uuid == b"GPU-a" else NOT_SUPPORTED

    def nvmlDeviceGetHandleByIndex_v2(self, _index: int, handle: Any) -> int:
        handle._obj.value = 7
        return 0

    def nvmlDeviceGetFieldValues(self, _gpu: object, count: int, fields: Any) -> int:
        if self.fields is None:
            return NOT_SUPPORTED
        assert count == len(fields)
        for field in fields:
            kind, value = self.fields.get((field.field, field.scope), (0, 0))
            field.kind, field.value.wide, field.code = kind, value, 0 if kind else NOT_SUPPORTED
        return 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not any(name == key[0] for key in self.readings):
            raise AttributeError(name)

        def read(_gpu: object, *arguments: Any) -> int:
            *which, value = arguments
            if (name, *which) not in self.readings:
                return NOT_SUPPORTED
            value._obj.value = self.readings[name, *which]
            return 0

        return read


@pytest.mark.parametrize("lacks", [None, *READINGS])
def test_a_gpu_has_all_its_readings_and_none_for_one_that_it_lacks(lacks: Any) -> None:
    nvml = Nvml(Library({key: value for key, value in READINGS.items() if key != lacks}))
    gpu = nvml.first_gpu()
    assert gpu is not None
    assert nvml.state(gpu) == tuple(None if k == lacks else v for k, v in READINGS.items())


def test_there_is_no_nvml_without_a_driver_or_where_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_name: str) -> object:
        raise OSError

    for load in (refuse, lambda _: Library(READINGS, code=9), lambda _: object()):
        monkeypatch.setattr(ctypes, "CDLL", load)
        assert Nvml.here() is None
        assert gpu_states.readings_here() is None
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library(READINGS))
    assert gpu_states.readings_here() == {
        **dict(zip(gpu_states._FUNCTIONS, READINGS.values(), strict=True)),
        "PCIe traffic": None,
        "NVLink traffic": None,
    }


@pytest.mark.parametrize(
    ("library", "traffic"),
    [
        (Library(READINGS, fields=FIELDS), [5, 1 << 40]),
        (Library({**READINGS, **CALLED}), [7_000, None]),
        (Library(READINGS, fields={(197, 0): (0, 5), (138, 0): (3, 5)}), [None, None]),
    ],
)
def test_doctor_is_told_whether_a_driver_says_the_traffic(
    library: Library, traffic: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    said = gpu_states.readings_here()
    assert said is not None
    assert [said["PCIe traffic"], said["NVLink traffic"]] == traffic


def test_counters_link_and_rates_are_read_as_nvml_has_them() -> None:
    assert [ctypes.sizeof(Field), Field.kind.offset, Field.value.offset] == [40, 24, 32]
    nvml, gpu = Nvml(Library(LINK | CALLED, fields=FIELDS)), ctypes.c_void_p(7)
    assert nvml.counters(gpu) == [5, 6, 1 << 40, None]
    assert nvml.pcie_lanes(gpu) == (4, 8)
    assert [nvml.pcie_rate(gpu, direction) for direction in (0, 1)] == [7_000, 9_000]
    without = Nvml(Library({}))
    assert without.counters(gpu) == [None] * 4
    assert without.pcie_lanes(gpu) is None
    assert without.pcie_rate(gpu, 0) is None


def fake_torch(*, fails: bool = False) -> SimpleNamespace:
    """Three GPUs: one that NVML knows, one without memory in use, one that NVML does not know."""

    def properties(number: int) -> SimpleNamespace:
        if fails:
            raise RuntimeError
        return SimpleNamespace(uuid="abc"[number])

    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 3,
            memory_reserved=lambda number: (1, 0, 1)[number],
            get_device_properties=properties,
        )
    )


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process of `nsysflow profile` with torch; its thread ends with the test."""
    monkeypatch.setenv(ASKED, "1")
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    monkeypatch.setattr(gpu_states, "PERIOD_S", 0.005)
    yield
    THIS_PROCESS.recorded = True
    for thread in threading.enumerate():
        if thread.name == "nsysflow-clocks":
            thread.join(0.05)
    THIS_PROCESS.recorded = False


def sampler_of(**counted: Any) -> Sampler:
    """A sampler of GPUs whose states and traffic are these."""
    nvml = {"state": lambda _gpu: (1,), "gpu": lambda _uuid: ctypes.c_void_p(7)} | counted
    nvml["pcie_rate"] = lambda _gpu, _direction: None
    return Sampler(lambda: SimpleNamespace(**nvml))  # type: ignore[arg-type, return-value]


@pytest.mark.usefixtures("wanted")
def test_traffic_is_sampled_between_begin_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters are read twice per sample, as the link may fill their 32 bits in one; and once
    more at the end, so that a short window has a reading, too."""
    looks = list[int]()

    def counters(_gpu: object) -> list[int | None]:
        looks.append(len(looks))
        return [None, (1 << 32) - 10 + 10 * len(looks), None, None]

    monkeypatch.setattr(gpu_states, "PERIOD_S", 0.1)
    sampler, kept = sampler_of(counters=counters, pcie_lanes=lambda _gpu: (5, 16)), Kept()
    sampler.begin(kept.keep)
    assert waited_for(lambda: kept.keys.count(STATES) == 3)
    time.sleep(0.02)
    sampler.end(kept.keep)
    assert kept.keys[:5] == [STATES, TRAFFIC, STATES, TRAFFIC, STATES]
    assert kept.keys[-1] == TRAFFIC
    assert len(looks) >= 2 * (1 + 1 + 2 * 2 + 1)  # two GPUs: found, begin, two per sample, end
    assert len(kept[1][1]) == 2
    number, past_ns, *rates = kept[1][1][0]
    assert (number, rates[0], rates[2:]) == (0, None, [None, None])
    assert past_ns > 90_000_000
    assert 0 < rates[1] < 1_000
    kept.clear()
    time.sleep(0.6)
    sampler.begin(kept.keep)
    assert waited_for(lambda: len(kept) > 1)
    assert kept[1][1][0][1] < 500_000_000  # nothing of the time between two windows


def waited_for(condition: Callable[[], bool]) -> bool:
    """Whether it became true within 5 s."""
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.002)
    return condition()


@pytest.mark.usefixtures("wanted")
def test_the_gpus_in_use_are_sampled_from_begin_to_end() -> None:
    library, kept = Library(READINGS), Kept()
    sampler = Sampler(lambda: Nvml(library))
    sampler.prepare()
    time.sleep(0.03)
    assert not kept
    sampler.begin(kept.keep)
    assert waited_for(lambda: len(kept) > 2)
    assert kept[0] == (STATES, [(0, *READINGS.values())])
    assert {*kept.keys} == {STATES}  # this GPU says nothing of its traffic
    assert set(library.asked) == {b"GPU-a", b"GPU-c"}
    sampler.end(kept.keep)
    time.sleep(0.03)
    count = len(kept)
    time.sleep(0.03)
    assert len(kept) == count


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("nvml", [lambda: None, lambda: Nvml(Library(READINGS))])
def test_nothing_is_kept_without_nvml_or_after_a_failed_kernel(
    nvml: Callable[[], Nvml | None], monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(fails=True))
    kept = Kept()
    Sampler(nvml).begin(kept.keep)
    time.sleep(0.05)
    assert (kept, *capfd.readouterr()) == ([], "", "")


@pytest.mark.usefixtures("wanted")
def test_a_process_is_forked_between_two_readings() -> None:
    reading, kept = threading.Event(), Kept()

    def state(_gpu: object) -> tuple[int, ...]:
        reading.set()
        time.sleep(0.02)
        reading.clear()
        return (1,)

    unknown = {"counters": lambda _gpu: [None] * 4, "pcie_lanes": lambda _gpu: None}
    sampler_of(state=state, **unknown).begin(kept.keep)
    assert reading.wait(5)
    child = os.fork()
    if not child:
        os._exit(reading.is_set())
    assert os.waitpid(child, 0)[1] == 0
    count = len(kept)
    assert waited_for(lambda: len(kept) > count)  # and the parent goes on


def test_no_thread_is_started_unless_profile_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ASKED, raising=False)
    before = threading.active_count()
    Sampler().begin(Kept().keep)
    assert threading.active_count() == before


def test_a_capture_samples_while_it_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """nsys gets a mark of each sample; torch.profiler has them with times, beside its events."""
    sampler, marks = Sampler(), list[str]()
    monkeypatch.setattr(captures, "SAMPLER", sampler)
    monkeypatch.setattr(captures, "mark", marks.append)
    monkeypatch.setattr(captures, "synchronize", lambda: None)
    capture = CudaProfilerCapture()
    capture.start(None)
    state = (0, *READINGS.values())
    for keep in sampler._keeps:
        keep(STATES, [state])
        keep(TRAFFIC, [(0, 100, None, 5, 6, 7)])
    capture.stop()
    assert marks == [
        '{"nsysflow":{"gpu_states":[[0,1980,2619,351200,52,4]]}}',
        '{"nsysflow":{"gpu_traffic":[[0,100,null,5,6,7]]}}',
    ]
    kineto, written = kineto_capture(monkeypatch)
    kineto._about = {"capture": "1:1:1"}
    before_ns = time.time_ns()
    kineto._keep_all(STATES, [state])
    kineto._keep_all(TRAFFIC, [(0, 100, None, 5, 6, 7), (1, 100, 8, 9, None, None)])
    kineto.stop()
    ((at_ns, kept),) = written["nsysflow"].pop("gpu_states")
    of_traffic = [kept for _, kept in written["nsysflow"].pop("gpu_traffic")]
    assert of_traffic == [[0, 100, None, 5, 6, 7], [1, 100, 8, 9, None, None]]
    assert written == {"nsysflow": {"capture": "1:1:1"}}
    assert kept == [*state]
    assert before_ns <= at_ns <= time.time_ns()
    assert sampler._keeps == []
