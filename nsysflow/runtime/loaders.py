"""When workers of a DataLoader fetch batches, and when the loop waits for one.

nsys does not follow a process that is forked and does not exec, so each worker writes its times to
a file in the run's folder. The main process opens that file, removes its name at once, and reads
what is new twice a second, while the program asks for batches. Without a folder, or on a full disk,
nothing is recorded and the program runs on.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import struct
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Optional

from nsysflow.runtime.cpu import usable_cpus
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import KEY, LOADER_FILES, RUN_FOLDER, WORKER_CODE
from nsysflow.runtime.regions import note_seen
from nsysflow.runtime.worker_code import Code, counted, row_of

FLUSH_NS: Final = 500_000_000
"""The main process reads its workers' files so often."""

ROWS_IN_A_MARK: Final = 100

MOST_BYTES: Final = 24 << 20
"""A worker writes no more: a million batches that nobody reads."""

ITERABLE: Final = 1
"""What torch calls the kind of an IterableDataset, in the private part of a DataLoader."""

_TIMES: Final = struct.Struct("=qqq")
"""A batch: when its request came, when it was fetched, and when it went to the main process."""

Keep = Callable[[int, str], None]
"""Takes the monotonic time at which it is called, and JSON about a loader."""

Settings = tuple[int, int, Optional[int], Optional[int], bool, bool, str, int]
"""Of a loader: its number, workers, batch size, prefetch factor, whether it pins memory, whether
its workers persist, how they start, and the cores that the process may use."""


class WorkerTimes:
    """The times of one worker, in that worker: what it takes from one queue and puts into another.

    A thread of the queue copies a batch to shared memory and sends it, after it was fetched.
    """

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: it cannot be opened.
        """
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._got_ns: int | None = None
        self._unsent: deque[tuple[int, int] | None] = deque()
        self._bytes = 0

    def is_busy(self) -> bool:
        """Whether the worker makes a batch now."""
        return self._got_ns is not None

    def got(self, request: object) -> None:
        """A request came. Those that are no pair of numbers ask for no batch."""
        self._got_ns = time.monotonic_ns() if isinstance(request, tuple) else None

    def fetched(self) -> None:
        """A batch, or what answers another request, is ready."""
        got_ns, self._got_ns = self._got_ns, None
        self._unsent.append(None if got_ns is None else (got_ns, time.monotonic_ns()))

    def sent(self) -> None:
        """The oldest of these goes to the main process now."""
        times = self._unsent.popleft() if self._unsent else None
        if times is None or self._bytes >= MOST_BYTES:
            return
        self._bytes += _TIMES.size
        with suppress(OSError):  # a full disk: the program goes on
            os.write(self._file, _TIMES.pack(*times, time.monotonic_ns()))


class Requests:
    """A worker's queue of requests."""

    def __init__(self, queue: Any, times: WorkerTimes) -> None:
        self._queue, self._times = queue, times

    def get(self, *args: Any, **kwargs: Any) -> Any:
        request = self._queue.get(*args, **kwargs)
        self._times.got(request)
        return request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class Results:
    """A worker's queue of batches."""

    def __init__(self, queue: Any, times: WorkerTimes) -> None:
        self._queue, self._times = queue, times
        send = getattr(queue, "_send_bytes", None)
        self._sends = send is not None
        if send is not None:

            def send_bytes(*args: Any, **kwargs: Any) -> Any:
                times.sent()
                return send(*args, **kwargs)

            queue._send_bytes = send_bytes

    def put(self, result: Any, *args: Any, **kwargs: Any) -> None:
        self._times.fetched()
        self._queue.put(result, *args, **kwargs)
        if not self._sends:  # another kind of queue: taken as sent when it was fetched
            self._times.sent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _WorkerFile:
    """What a worker writes, in the main process."""

    def __init__(self, path: Path) -> None:
        self._path: Path | None = path
        self._file: int | None = None
        self._read = 0

    def batches(self) -> Iterator[tuple[int, int, int]]:
        """The batches that were not read before."""
        data = self._rest()
        whole = len(data) // _TIMES.size * _TIMES.size
        self._read += whole
        yield from _TIMES.iter_unpack(data[:whole])

    def lines(self) -> bytes:
        """The whole lines that were not read before."""
        data = self._rest()
        whole = data.rfind(b"\n") + 1
        self._read += whole
        return data[:whole]

    def _rest(self) -> bytes:
        file = self._open()
        if file is None:
            return b""
        return os.pread(file, os.fstat(file).st_size - self._read, self._read)

    def drop(self) -> None:
        """Forget what it has written: nothing is recorded now."""
        file = self._open()
        if file is not None:
            os.ftruncate(file, 0)
            self._read = 0

    def close(self) -> None:
        """Read no more of it."""
        file = self._open()
        self._path = None
        if file is not None:
            os.close(file)
            self._file = None

    def _open(self) -> int | None:
        """The file, which has no name once it is open; None if the worker has made none yet."""
        if self._file is None and self._path is not None:
            with suppress(OSError):
                self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                self._path.unlink()
        return self._file


class LoaderRun:
    """One pass over a loader, or all passes of one whose workers persist.

    Attributes:
        settings: of the loader.
        files: one for each worker, with its times.
        code_files: one for each worker, with what it runs.
        waits: when the loop began to wait for a batch, and when it had it; not flushed yet.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pid = os.getpid()
        self.files: list[_WorkerFile] | None = None
        self.code_files: list[_WorkerFile] = []
        self.waits: list[tuple[int, int]] = []
        self.flushed_ns = 0

    def know(self, pids: Sequence[int]) -> None:
        """Take the ids of the workers, once they have started."""
        folder = os.environ.get(RUN_FOLDER, "")
        self.files = [_WorkerFile(worker_file(folder, pid)) for pid in pids]
        self.code_files = [_WorkerFile(code_file(folder, pid)) for pid in pids]

    def all_files(self) -> Iterator[_WorkerFile]:
        """The files of all workers."""
        yield from self.files or ()
        yield from self.code_files


def worker_file(folder: str, pid: int) -> Path:
    """The file with the times of a worker, by its process id."""
    return Path(folder, LOADER_FILES.replace("*", str(pid)))


def code_file(folder: str, pid: int) -> Path:
    """The file with what a worker runs."""
    return Path(folder, LOADER_FILES.replace("*", f"{pid}-code"))


class Loaders:
    """The loaders of this process, while one or more recordings run."""

    def __init__(self) -> None:
        self._keeps: list[Keep] = []
        self._runs: list[LoaderRun] = []
        self._loaders: list[weakref.ref[Any]] = []
        self._code: dict[int, Counter[Code]] = {}
        self._streams: set[int] = set()
        self._lock = threading.RLock()

    def begin(self, keep: Keep) -> None:
        """Record from now on, and give it to `keep`."""
        for run in self._mine():
            self._flush(run)
        self._keeps.append(keep)
        atexit.register(self.end, keep)

    def end(self, keep: Keep) -> None:
        """Give `keep` the rest, and record no more for it."""
        if keep in self._keeps:
            for run in self._mine():
                self._flush(run)
            self._keeps.remove(keep)
            atexit.unregister(self.end)

    def opened(self, loader: Any) -> LoaderRun:
        """A pass over a loader begins."""
        number = next((n for n, ref in enumerate(self._loaders) if ref() is loader), None)
        if number is None:
            number = len(self._loaders)
            self._loaders.append(weakref.ref(loader))
            if getattr(loader, "_dataset_kind", None) == ITERABLE:
                self._streams.add(number)
        run = LoaderRun(_settings(number, loader))
        self._runs.append(run)
        return run

    def waited(self, run: LoaderRun, begun_ns: int, ended_ns: int) -> None:
        """The loop has got a batch."""
        THIS_PROCESS.waited_ns += ended_ns - begun_ns
        if self._keeps and not THIS_PROCESS.recorded:
            run.waits.append((begun_ns, ended_ns))
        if ended_ns - run.flushed_ns >= FLUSH_NS:
            self._flush(run)

    def closed(self, run: LoaderRun) -> None:
        """The pass is over, and its workers have ended."""
        if run.pid != os.getpid() or run not in self._runs:
            return
        self._flush(run)
        with self._lock:
            if run in self._runs:
                self._runs.remove(run)
            for file in run.all_files():
                file.close()

    def _mine(self) -> list[LoaderRun]:
        """The passes of this process, and none that a forked one has from its parent."""
        return [run for run in self._runs if run.pid == os.getpid()]

    def _flush(self, run: LoaderRun) -> None:
        """Give what is new to the recordings; without one, forget it."""
        if run.pid != os.getpid():
            return
        with self._lock:
            run.flushed_ns = time.monotonic_ns()
            if not self._keeps or THIS_PROCESS.recorded:
                run.waits.clear()
                for file in run.all_files():
                    file.drop()
                return
            waits, run.waits = run.waits, []
            batches = [
                (worker, *times)
                for worker, file in enumerate(run.files or ())
                for times in file.batches()
            ]
            self._count(run)
            for text in marks_of(run.settings, batches, waits):
                for keep in [*self._keeps]:
                    keep(time.monotonic_ns(), text)

    def _count(self, run: LoaderRun) -> None:
        """Count what its workers ran, and note it."""
        counts = self._code.setdefault(run.settings[0], Counter())
        new = [counted(file.lines()) for file in run.code_files]
        for each in new:
            counts += each
        if any(new):
            rows = [
                row_of(number, each, streams=number in self._streams)
                for number, each in self._code.items()
                if each
            ]
            note_seen(WORKER_CODE, rows)


def _settings(number: int, loader: Any) -> Settings:
    """The settings of a loader, or of what another library gives torch's iterators for one."""
    batch_size, workers, prefetch = (
        value if type(value := getattr(loader, name, None)) is int else None
        for name in ("batch_size", "num_workers", "prefetch_factor")
    )
    pins, persists = (
        bool(getattr(loader, name, False)) for name in ("pin_memory", "persistent_workers")
    )
    context = getattr(loader, "multiprocessing_context", None) or multiprocessing
    starts = str(context.get_start_method()) if workers else ""
    return number, workers or 0, batch_size, prefetch, pins, persists, starts, usable_cpus()


def marks_of(
    settings: Settings,
    batches: Sequence[tuple[int, int, int, int]],
    waits: Sequence[tuple[int, int]],
) -> Iterator[str]:
    """JSON about a loader, in pieces that a mark can hold: `loader`, `batches`, `waits`."""
    for first in range(0, max(len(batches), len(waits)), ROWS_IN_A_MARK):
        piece = slice(first, first + ROWS_IN_A_MARK)
        about = {"loader": settings, "batches": batches[piece], "waits": waits[piece]}
        yield json.dumps(about, separators=(",", ":"))


def mark_of(clock_ns: int, about: str) -> str:
    """The text of the mark that holds such JSON, with the time of the clock of its times."""
    return f'{{"{KEY}":{{"clock_ns":{clock_ns},{about[1:]}}}'


LOADERS: Final = Loaders()
"""The loaders of this process."""
