"""How long the launching thread waits for a CPU, and who uses the CPUs, during a recording.

Linux counts of each thread how long it ran, and how long it could have run and had no CPU
(`schedstat`). That is read at most every 10 ms, where a step begins; of the other threads of
Python, which may hold its lock (GIL), at most every second. Where a system does not count it,
nothing is read: the program runs on in any case.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import enumerate as threads_of_python
from threading import get_native_id
from typing import TYPE_CHECKING, Final, Optional

from nsysflow.runtime.process import THIS_PROCESS, is_loader_worker
from nsysflow.runtime.protocol import READINGS

PERIOD_NS: Final = 10_000_000
"""A reading takes 13 us and its mark 45 us, 0.6 % of this, in a program of Python under nsys (nsys
2023.4, 2-core VM, 2026-11-27)."""

WHOLE_NS: Final = 1_000_000_000
"""The process is read less often, which takes 1 to 2 ms, and 4 us and a mark for each other thread
of Python: a recording may be ended from outside, and what it used is known up to the last
reading."""

THREAD: Final = "thread_cpu"
PROCESS: Final = "process_cpu"
"""The keys of the two kinds of readings in a report."""

_SCHEDSTAT: Final = "/proc/thread-self/schedstat"
_OF_THREAD: Final = "/proc/self/task/{}/schedstat"
_GROUPS: Final = Path("/sys/fs/cgroup")
_NS_PER_S: Final = 1_000_000_000

if TYPE_CHECKING:
    Values = tuple[Optional[int], ...]

    Keep = Callable[[str, Values], None]
    """Takes the key and the values of a reading."""


def thread_reading() -> Values | None:
    """Of this thread its id, how long it ran and how long it waited for a CPU, in ns; None where
    the system does not say."""
    return _counters(_SCHEDSTAT, get_native_id())


def other_readings() -> Iterator[Values]:
    """The same of the other threads of Python, those that have not ended."""
    for thread in threads_of_python():
        tid = thread.native_id
        if tid is not None and tid != get_native_id():
            reading = _counters(_OF_THREAD.format(tid), tid)
            if reading is not None:
                yield reading


def _counters(path: str, tid: int) -> Values | None:
    # opened each time, which takes 4 us: a file that is kept open is another thread's after a fork
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        ran, waited, slices = map(int, os.read(file, 128).split())
        # a kernel that does not count writes three zeros
        return (tid, ran, waited) if slices else None
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)


def process_reading(groups: Path = _GROUPS) -> Values:
    """Of this process: the CPUs that this thread may use, the time that its threads and those of
    the processes it started took of CPUs, how long these CPUs were busy, the limit of its control
    group in thousandths of a CPU, and how long that held it up, summed over CPUs; times in ns. None
    for what the system does not say.

    Args:
        groups: where control groups are mounted.
    """
    cores = os.sched_getaffinity(0)
    limit, throttled_ns = group_limit(_groups_here(groups))
    return (
        len(cores),
        time.process_time_ns(),
        _started_ns(),
        _busy_ns(_text(Path("/proc/stat")), cores),
        limit,
        throttled_ns,
    )


def usable_cpus() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_here() -> int | None:
    """The limit of this process's control group, in thousandths of a CPU; None without one."""
    return group_limit(_groups_here(_GROUPS))[0]


def group_limit(folders: Sequence[Path]) -> tuple[int | None, int | None]:
    """The lowest limit on CPU time of these control groups, in thousandths of a CPU, and how long
    that one held its threads up, in ns; None without a limit."""
    limits = [(limit, folder) for folder in folders if (limit := _limit(folder)) is not None]
    if not limits:
        return None, None
    limit, folder = min(limits)
    stat = dict(line.split(maxsplit=1) for line in _text(folder / "cpu.stat").splitlines())
    if "throttled_usec" in stat:
        return limit, int(stat["throttled_usec"]) * 1000
    return limit, int(stat["throttled_time"]) if "throttled_time" in stat else None


def _limit(folder: Path) -> int | None:
    """The limit of a control group, of version 2 or 1."""
    numbers = _text(folder / "cpu.max").split() or [
        word
        for name in ("quota", "period")
        for word in _text(folder / f"cpu.cfs_{name}_us").split()
    ]
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None  # `max`, or -1: no limit
    quota, period = map(int, numbers)
    return quota * 1000 // period if quota and period else None


def _groups_here(groups: Path) -> list[Path]:
    """The control groups of this process, and those around them.

    In a container the path may be that of the host, where the container's group is mounted as the
    root: that one always counts.
    """
    found = []
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, kinds, path = line.split(":", maxsplit=2)
        if kinds and "cpu" not in kinds.split(","):
            continue
        for mounted in (groups / kinds, groups / "cpu") if kinds else (groups, groups / "unified"):
            inner = mounted / path.strip("/")
            found += [inner, *(each for each in inner.parents if mounted in (each, *each.parents))]
    return found


def _busy_ns(stat: str, cores: set[int]) -> int | None:
    """How long these CPUs were busy since the system started; None where one has no line."""
    busy = {}
    for line in stat.splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name[3:].isdecimal():
            user, nice, system, _idle, _waits, *others = map(int, numbers[:8])
            busy[int(name[3:])] = user + nice + system + sum(others)
    if not cores <= busy.keys():
        return None
    return sum(busy[core] for core in cores) * _NS_PER_S // os.sysconf("SC_CLK_TCK")


def _started_ns() -> int:
    """The CPU time of the processes that this one started, those that have ended included."""
    times = os.times()
    ticks = sum(_ticks(pid) for pid in _started_by(os.getpid()))
    ended_s = times.children_user + times.children_system
    return round(ended_s * _NS_PER_S) + ticks * _NS_PER_S // os.sysconf("SC_CLK_TCK")


def _started_by(pid: int) -> Iterator[int]:
    """The processes that a process started, and those that they started."""
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _text(listed).split()):
            yield child
            yield from _started_by(child)


def _ticks(pid: int) -> int:
    """The CPU time of a process and of its ended children; 0 once it is gone."""
    after_name = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, after_name[11:15]))


def _text(path: Path) -> str:
    """What a file of the system says; empty where it is not there or may not be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


class Reader:
    """Reads while one or more recordings run."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._keeps: list[Keep] = []
        self._pid = 0
        self._due_ns = 0
        self._whole_due_ns = 0

    def begin(self, keep: Keep) -> None:
        """Read now, if `nsysflow profile` wants it, and where steps begin from now on; give each
        reading to `keep`."""
        if READINGS not in os.environ or is_loader_worker() or thread_reading() is None:
            return
        if self._pid != os.getpid():  # a forked process does not go on with its parent's
            self._pid, self._keeps = os.getpid(), []
        self._keeps.append(keep)
        self._read(keep, whole=True)

    def at_step(self) -> None:
        """A step begins on this thread: read, unless the last reading is less than 10 ms ago."""
        if not self._keeps or THIS_PROCESS.recorded:
            return
        now_ns = time.monotonic_ns()
        if now_ns >= self._due_ns and self._pid == os.getpid():
            whole = now_ns >= self._whole_due_ns
            for keep in dict.fromkeys(self._keeps):
                self._read(keep, whole=whole)

    def end(self, keep: Keep) -> None:
        """Read a last time, and no more for `keep`."""
        if keep in self._keeps:
            self._keeps.remove(keep)
            if self._pid == os.getpid():
                self._read(keep, whole=True)

    def _read(self, keep: Keep, *, whole: bool = False) -> None:
        thread = thread_reading()
        if thread is not None:
            keep(THREAD, thread)
        if whole:
            for other in other_readings():
                keep(THREAD, other)
            with suppress(OSError, ValueError):  # a system whose files say something else
                keep(PROCESS, process_reading())
            self._whole_due_ns = time.monotonic_ns() + WHOLE_NS
        self._due_ns = time.monotonic_ns() + PERIOD_NS


READER: Final = Reader()
"""The reader of this process."""
