"""Clocks, power and temperature are sampled while something records, and never harm the program."""

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nsysflow.runtime import captures, gpu_states
from nsysflow.runtime.captures import CudaProfilerCapture, KinetoCapture
from nsysflow.runtime.gpu_states import Nvml, Sampler
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import READINGS as ASKED

READINGS = {
    ("nvmlDeviceGetClockInfo", 1): 1980,
    ("nvmlDeviceGetClockInfo", 2): 2619,
    ("nvmlDeviceGetPowerUsage",): 351_200,
    ("nvmlDeviceGetTemperature", 0): 52,
    ("nvmlDeviceGetCurrentClocksThrottleReasons",): 4,
}
NOT_SUPPORTED = 3


class Library:
    """An NVML with these readings; what it lacks, it does not support."""

    def __init__(self, readings: dict[tuple[Any, ...], int], *, code: int = 0) -> None:
        self.readings = readings
        self.code = code
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
    assert gpu_states.readings_here() == dict(
        zip(gpu_states._FUNCTIONS, READINGS.values(), strict=True)
    )


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
    """A process of `nsysflow profile`; its thread ends with the test."""
    monkeypatch.setenv(ASKED, "1")
    monkeypatch.setattr(gpu_states, "PERIOD_S", 0.005)
    yield
    THIS_PROCESS.recorded = True
    for thread in threading.enumerate():
        if thread.name == "nsysflow-clocks":
            thread.join(0.05)
    THIS_PROCESS.recorded = False


def waited_for(condition: Callable[[], bool]) -> bool:
    """Whether it became true within 5 s."""
    until = time.monotonic() + 5
    while not condition() and time.monotonic() < until:
        time.sleep(0.002)
    return condition()


@pytest.mark.usefixtures("wanted")
def test_the_gpus_in_use_are_sampled_from_begin_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    library, kept = Library(READINGS), list[Any]()
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    sampler = Sampler(lambda: Nvml(library))
    sampler.prepare()
    time.sleep(0.03)
    assert not kept
    sampler.begin(kept.append)
    assert waited_for(lambda: len(kept) > 2)
    assert kept[0] == [(0, *READINGS.values())]
    assert set(library.asked) == {b"GPU-a", b"GPU-c"}
    sampler.end(kept.append)
    time.sleep(0.03)
    count = len(kept)
    time.sleep(0.03)
    assert len(kept) == count


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("nvml", [lambda: None, lambda: Nvml(Library(READINGS))])
def test_nothing_is_kept_without_nvml_or_after_a_failed_kernel(
    nvml: Callable[[], Nvml | None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(fails=True))
    kept = list[Any]()
    Sampler(nvml).begin(kept.append)
    time.sleep(0.05)
    assert kept == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("wanted")
def test_a_process_is_forked_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, kept = threading.Event(), list[Any]()

    def state(_gpu: object) -> tuple[int, ...]:
        reading.set()
        time.sleep(0.02)
        reading.clear()
        return (1,)

    nvml = SimpleNamespace(state=state, gpu=lambda _uuid: ctypes.c_void_p(7))
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    sampler = Sampler(lambda: nvml)  # type: ignore[arg-type, return-value]
    sampler.begin(kept.append)
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
    Sampler().begin(print)
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
        keep([state])
    capture.stop()
    assert marks == ['{"nsysflow":{"gpu_states":[[0,1980,2619,351200,52,4]]}}']
    written: dict[str, Any] = {}
    profile = SimpleNamespace(
        start=lambda: None,
        stop=lambda: None,
        add_metadata_json=lambda key, text: written.update({key: json.loads(text)}),
    )
    kineto = KinetoCapture(SimpleNamespace())  # type: ignore[arg-type]
    kineto._profile, kineto._about = profile, {"capture": "1:1:1"}
    monkeypatch.setattr(kineto, "_still_records", lambda: True)
    monkeypatch.setattr(kineto, "_export", lambda: None)
    before_ns = time.time_ns()
    kineto._keep_states([state])
    kineto.stop()
    ((at_ns, kept),) = written["nsysflow"].pop("gpu_states")
    assert written == {"nsysflow": {"capture": "1:1:1"}}
    assert kept == [*state]
    assert before_ns <= at_ns <= time.time_ns()
    assert sampler._keeps == []
