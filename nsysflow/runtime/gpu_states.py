"""The clocks, power and temperature of the GPUs that this process uses, and what they send and
receive over PCIe and NVLink, while it is recorded.

A thread asks NVML ten times a second; ctypes leaves the GIL to the program meanwhile. Without the
library or a permission nothing is sampled, and what a GPU does not say is left out: the program
runs on in any case. Numbers and units are those of `nvml.h` (2026-11). A GPU sends (TX) what a copy
to the host moves.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Optional, Protocol

from nsysflow.runtime.process import THIS_PROCESS, is_loader_worker
from nsysflow.runtime.protocol import READINGS

if TYPE_CHECKING:
    Reading = tuple[int, int | None, int | None, int | None, int | None]
    """The ns since the last reading, and the bytes per second in them over `COUNTERS`."""

_ALL_LINKS: Final = 0xFFFFFFFF

COUNTERS: Final = ((197, 0), (198, 0), (138, _ALL_LINKS), (139, _ALL_LINKS))
"""NVML's fields of what was sent and received over PCIe in bytes (driver 555 and later), and over
all NVLinks in KiB, each with its scope."""

_PCIE: Final = 2
"""The first two counters are PCIe's, the others NVLink's."""

_KIB: Final = 1024

_WRAPS_AT: Final = 1 << 32
"""PCIe's counters start again from 0 here: those of an H200 and an L40S have 32 bits
(docs/facts.md). A larger value shows that a counter has 64."""

_LANE: Final = 250_000_000
"""The bytes per second of a PCIe lane of generation 1, at most; each generation doubles it."""

_USUAL: Final = 5, 16
"""Generation and lanes where a GPU does not tell them."""

_LATE: Final = 1.3
"""A look may come 1.3 times as late as planned, as its thread waits for Python's lock."""

_SHORTEST_NS: Final = 10_000_000
"""No rate is given over a shorter time: reading the counters takes up to 0.4 ms, 4 % of it."""


class Value(ctypes.Union):
    """The number that NVML gives for a field (`nvmlValue_t`). A counter has one of these types."""

    _fields_ = (("uint", ctypes.c_uint), ("wide", ctypes.c_ulonglong))


class Field(ctypes.Structure):
    """A field that NVML is asked for, and its answer (`nvmlFieldValue_t`)."""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("code", ctypes.c_uint),
        ("value", Value),
    )

    def count(self) -> int | None:
        """The value of a counter; None if NVML has none, or one that is no whole number."""
        if self.code or self.kind not in (1, 2, 3, 4):
            return None
        count: int = self.value.uint if self.kind == 1 else self.value.wide
        return count


class Readable(Protocol):
    """The part of `Nvml` that `Traffic` uses."""

    def counters(self, gpu: ctypes.c_void_p) -> list[int | None]:
        """The values of `COUNTERS`."""

    def pcie_rate(self, gpu: ctypes.c_void_p, direction: int) -> int | None:
        """The bytes per second that are sent (0) or received (1)."""

    def pcie_lanes(self, gpu: ctypes.c_void_p) -> tuple[int, int] | None:
        """Generation and width of the link."""


class Traffic:
    """What a GPU sends and receives from reading to reading.

    Attributes:
        looks: how many times per period to look at the counters. They have 32 bits, which a link of
            64 GB/s fills in 67 ms.
    """

    def __init__(self, nvml: Readable, gpu: ctypes.c_void_p, period_s: float) -> None:
        """Look for the first time.

        Args:
            nvml: what says it.
            gpu: its handle.
            period_s: the time between two readings.
        """
        self._nvml, self._gpu = nvml, gpu
        generation, width = nvml.pcie_lanes(gpu) or _USUAL
        self._most_per_s = (_LANE << generation - 1) * width
        self._counts: list[int | None] = []
        self._moved: list[int | None] = []
        self._at_ns = self._since_ns = 0
        self.look(afresh=True)
        counts = self._counts[:_PCIE] != [None] * _PCIE
        self.looks = math.ceil(period_s * _LATE * self._most_per_s / _WRAPS_AT) if counts else 1
        self._by_call: int | None = None if counts else 0
        """Without counters: the direction to ask for next. A call takes 20 ms, so that each
        reading has one of them."""

    def look(self, *, afresh: bool = False) -> None:
        """Add what was counted since the last look, or count from now on."""
        counts, now_ns = self._nvml.counters(self._gpu), time.monotonic_ns()
        if afresh:
            self._since_ns = now_ns
            self._moved = [0] * len(COUNTERS)
        else:
            most = self._most_per_s * (now_ns - self._at_ns) // 1_000_000_000
            for at, (before, after) in enumerate(zip(self._counts, counts)):
                moved, so_far = _moved(before, after, at < _PCIE, most), self._moved[at]
                self._moved[at] = None if moved is None or so_far is None else so_far + moved
        self._counts, self._at_ns = counts, now_ns

    def reading(self, *, may_wait: bool = True) -> Reading | None:
        """What was moved since the last reading; None if nothing is known of it.

        Args:
            may_wait: whether the driver may count for 20 ms where it has no counters.
        """
        self.look()
        past_ns = self._at_ns - self._since_ns
        if past_ns < _SHORTEST_NS:
            return None
        rates = [None if n is None else n * 1_000_000_000 // past_ns for n in self._moved]
        if self._by_call is not None and may_wait:
            rates[self._by_call] = self._nvml.pcie_rate(self._gpu, self._by_call)
            self._by_call = 1 - self._by_call
        self._since_ns, self._moved = self._at_ns, [0] * len(COUNTERS)
        if rates == [None] * len(COUNTERS):
            return None
        pcie_tx, pcie_rx, nvlink_tx, nvlink_rx = rates
        return past_ns, pcie_tx, pcie_rx, nvlink_tx, nvlink_rx


def _moved(before: int | None, after: int | None, is_pcie: bool, most: int) -> int | None:
    """The bytes between two values of a counter; None if that is not known.

    Args:
        before: the value at the last look.
        after: the value now.
        is_pcie: whether it counts bytes and may have 32 bits; else it counts KiB.
        most: what PCIe can have moved meanwhile.
    """
    if before is None or after is None:
        return None
    if is_pcie and max(before, after) < _WRAPS_AT:
        return (after - before) % _WRAPS_AT if most < _WRAPS_AT else None
    moved = after - before if is_pcie else (after - before) * _KIB
    return moved if moved >= 0 else None


PERIOD_S: Final = 0.1

_LIBRARY: Final = "libnvidia-ml.so.1"

STATES: Final = "gpu_states"
TRAFFIC: Final = "gpu_traffic"
"""What marks call the readings."""

_LOOKS_EVERY: Final = 10
"""After so many samples the thread looks which GPUs are in use: torch takes 0.1 ms to say it."""

_FORK_WAITS_S: Final = 1.0
"""A fork waits so long at most for a reading to end."""

_SM, _MEMORY, _ON_DIE = 1, 2, 0
"""NVML's numbers of the two clocks, and of the sensor of the temperature."""

_FUNCTIONS: Final[Mapping[str, tuple[str, tuple[int, ...], type[ctypes._SimpleCData[int]]]]] = {
    "SM clock": ("nvmlDeviceGetClockInfo", (_SM,), ctypes.c_uint),
    "memory clock": ("nvmlDeviceGetClockInfo", (_MEMORY,), ctypes.c_uint),
    "power": ("nvmlDeviceGetPowerUsage", (), ctypes.c_uint),
    "temperature": ("nvmlDeviceGetTemperature", (_ON_DIE,), ctypes.c_uint),
    "reasons": ("nvmlDeviceGetCurrentClocksThrottleReasons", (), ctypes.c_ulonglong),
}
"""Each reading with NVML's function, its arguments, and the type of its result."""

if TYPE_CHECKING:
    State = tuple[Optional[int], ...]
    """The readings of a GPU in that order: MHz, MHz, mW, °C, and NVML's bits of what limits the
    clock. None for what the GPU does not say."""

    Keep = Callable[[str, Sequence[State]], None]
    """Takes the kind of the readings (`STATES`, `TRAFFIC`), and the GPUs' readings of one instant:
    before each, the GPU's number in CUDA."""


class Nvml:
    """NVML, for readings."""

    def __init__(self, library: Any) -> None:
        """Start it.

        Args:
            library: NVML as ctypes has it.

        Raises:
            OSError: it does not answer.
        """
        code = library.nvmlInit_v2()
        if code:
            raise OSError(f"NVML error {code}")
        self._library = library

    @classmethod
    def here(cls) -> Nvml | None:
        """This machine's NVML; None without an NVIDIA driver, or with too old a one."""
        try:
            return cls(ctypes.CDLL(_LIBRARY))
        except (OSError, AttributeError):  # no driver, or one without these functions
            return None

    def gpu(self, uuid: str) -> ctypes.c_void_p | None:
        """The handle of the GPU with that UUID, e.g. `GPU-1234…`; None if NVML does not know it."""
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
        return None if code else handle

    def first_gpu(self) -> ctypes.c_void_p | None:
        """The handle of the first GPU; None on a machine without GPUs."""
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
        return None if code else handle

    def readings(self, gpu: ctypes.c_void_p) -> dict[str, int | None]:
        """The readings of a GPU now, by name."""
        return {name: self._read(gpu, *reading) for name, reading in _FUNCTIONS.items()}

    def state(self, gpu: ctypes.c_void_p) -> State:
        """The readings of a GPU now."""
        return tuple(self.readings(gpu).values())

    def counters(self, gpu: ctypes.c_void_p) -> list[int | None]:
        """The values of `COUNTERS` now."""
        function = getattr(self._library, "nvmlDeviceGetFieldValues", None)
        fields = (Field * len(COUNTERS))(*(Field(*counter) for counter in COUNTERS))
        if function is None or function(gpu, len(fields), fields):
            return [None] * len(fields)
        return [field.count() for field in fields]

    def pcie_rate(self, gpu: ctypes.c_void_p, direction: int) -> int | None:
        """The bytes per second that a GPU sends (0) or receives (1). NVML counts them for 20 ms."""
        rate = self._read(gpu, "nvmlDeviceGetPcieThroughput", (direction,), ctypes.c_uint)
        return None if rate is None else 1000 * rate

    def pcie_lanes(self, gpu: ctypes.c_void_p) -> tuple[int, int] | None:
        """Generation and width of the PCIe link at its best."""
        generation, width = (
            self._read(gpu, f"nvmlDeviceGetMaxPcieLink{name}", (), ctypes.c_uint)
            for name in ("Generation", "Width")
        )
        return (generation, width) if generation and width else None

    def _read(
        self,
        gpu: ctypes.c_void_p,
        name: str,
        arguments: tuple[int, ...],
        kind: type[ctypes._SimpleCData[int]],
    ) -> int | None:
        function = getattr(self._library, name, None)
        value = kind()
        if function is None or function(gpu, *arguments, ctypes.byref(value)):
            return None
        return value.value


def readings_here() -> dict[str, int | None] | None:
    """What NVML says of the first GPU of this machine, by the name of the reading; None if it does
    not answer."""
    nvml = Nvml.here()
    gpu = None if nvml is None else nvml.first_gpu()
    if nvml is None or gpu is None:
        return None
    pcie, _, nvlink, _ = nvml.counters(gpu)
    pcie = nvml.pcie_rate(gpu, 0) if pcie is None else pcie
    return {**nvml.readings(gpu), "PCIe traffic": pcie, "NVLink traffic": nvlink}


class _Gpu:
    """A GPU that is sampled: its handle in NVML, and its traffic."""

    def __init__(self, nvml: Nvml, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        self.traffic = Traffic(nvml, handle, PERIOD_S)


class Sampler:
    """Samples the GPUs in a thread of its own, while one or more recordings run."""

    def __init__(self, nvml: Callable[[], Nvml | None] = Nvml.here) -> None:
        """Take NVML, which is asked for in the thread: to start it takes 10 ms and more."""
        self._open = nvml
        self._keeps: list[Keep] = []
        self._wake = threading.Event()
        self._pid: int | None = None
        self._in_nvml = threading.Lock()
        self._held = False
        self._gpus: dict[int, _Gpu] = {}

    def prepare(self) -> None:
        """Start the thread, if `nsysflow profile` wants it: NVML is ready then once it is needed.

        A forked process has none of its parent's threads, and gets its own.
        """
        if READINGS not in os.environ or self._pid == os.getpid() or is_loader_worker():
            return
        if self._pid is None:
            os.register_at_fork(
                before=self._hold, after_in_parent=self._let_go, after_in_child=self._let_go
            )
        self._pid = os.getpid()
        self._wake = threading.Event()
        self._keeps, self._gpus = [], {}
        threading.Thread(target=self._run, name="nsysflow-clocks", daemon=True).start()

    def begin(self, keep: Keep) -> None:
        """Sample from now on, and give each sample to `keep`."""
        self.prepare()
        self._keeps.append(keep)
        self._wake.set()

    def end(self, keep: Keep) -> None:
        """Sample no more for `keep`, which gets the traffic since the last sample."""
        if keep not in self._keeps:
            return
        self._keeps.remove(keep)
        if self._in_nvml.acquire(timeout=PERIOD_S):
            try:
                traffic = _traffic_of(self._gpus, may_wait=False)
            finally:
                self._in_nvml.release()
            if traffic:
                keep(TRAFFIC, traffic)

    def _hold(self) -> None:
        """Let no thread be in NVML: a forked process would find its locks taken for ever."""
        self._held = self._in_nvml.acquire(timeout=_FORK_WAITS_S)

    def _let_go(self) -> None:
        if self._held:
            self._in_nvml.release()

    def _run(self) -> None:
        with self._in_nvml:
            nvml = self._open()
        if nvml is None:
            return
        looks = samples = 0
        while not THIS_PROCESS.recorded:
            in_a_sample = max((gpu.traffic.looks for gpu in self._gpus.values()), default=1)
            self._wake.wait(PERIOD_S / in_a_sample if self._keeps else None)
            woken = self._wake.is_set()
            self._wake.clear()
            if not self._keeps:
                continue
            looks = 0 if woken else (looks + 1) % in_a_sample
            readings: dict[str, list[State]] = {}
            with self._in_nvml:
                if not self._gpus or (looks == 0 and samples % _LOOKS_EVERY == 0):
                    self._gpus |= _found(nvml, but=self._gpus)
                if woken or looks:
                    for gpu in self._gpus.values():
                        gpu.traffic.look(afresh=woken)
                else:
                    readings[TRAFFIC] = _traffic_of(self._gpus)
                if looks == 0:
                    samples += 1
                    readings[STATES] = [
                        (number, *nvml.state(gpu.handle)) for number, gpu in self._gpus.items()
                    ]
            for keep in [*self._keeps]:
                for kind, of_gpus in readings.items():
                    if of_gpus:
                        keep(kind, of_gpus)


def _traffic_of(gpus: Mapping[int, _Gpu], *, may_wait: bool = True) -> list[State]:
    """The traffic since the last reading, of GPUs that say something of it."""
    read = [(number, gpu.traffic.reading(may_wait=may_wait)) for number, gpu in gpus.items()]
    return [(number, *reading) for number, reading in read if reading is not None]


def _found(nvml: Nvml, but: Mapping[int, object]) -> dict[int, _Gpu]:
    """The GPUs on which torch holds memory, by their number in CUDA, without those of `but`."""
    found = {}
    with suppress(RuntimeError):  # after a failed kernel CUDA says nothing more
        for number, uuid in _used_gpus():
            gpu = None if number in but else nvml.gpu(uuid)
            if gpu is not None:
                found[number] = _Gpu(nvml, gpu)
    return found


def _used_gpus() -> Iterator[tuple[int, str]]:
    """The numbers and UUIDs of these GPUs; none before torch 2.5, which does not say the UUIDs."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    for number in range(torch.cuda.device_count()):
        if torch.cuda.memory_reserved(number):
            uuid = getattr(torch.cuda.get_device_properties(number), "uuid", None)
            if uuid is not None:
                yield number, f"GPU-{uuid}"


SAMPLER: Final = Sampler()
"""The sampler of this process."""
