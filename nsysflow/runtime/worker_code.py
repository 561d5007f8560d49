"""What the workers of a DataLoader run, by samples of their Python.

No recording tells that: nsys does not follow a process that is forked and does not exec. So a
thread in each worker looks 50 times a second at what the worker runs while it makes a batch, and
counts the line of the program's own code.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from sysconfig import get_paths
from types import FrameType
from typing import TYPE_CHECKING, Final

from nsysflow.runtime.calls import LETTERS, line_of

if TYPE_CHECKING:
    from nsysflow.runtime.regions import WorkerRow

PERIOD_S: Final = 0.02

FLUSH_S: Final = 0.2
"""A worker writes what it has counted so often: it is killed at the end of a pass."""

MOST_BYTES: Final = 4 << 20
"""A worker writes no more."""

SWITCH_S: Final = 0.0001
"""A thread that waits for Python's lock gets it after so long. Python's own 5 ms are too long: an
item of a dataset takes less, and nearly all samples would find the worker in calls that let the
lock go by themselves."""

Code = tuple[str, str]
"""The name of a function, and the line of it that runs: `open_day`, `data.py:42`."""


class WorkerSampler:
    """Counts what a worker runs, in that worker. It never raises, and ends with the process."""

    def __init__(self, path: Path, is_busy: Callable[[], bool]) -> None:
        """Start.

        Args:
            path: where to write it: a line of JSON each time, a list of function, line and count.
            is_busy: whether the worker makes a batch now.

        Raises:
            OSError: the file cannot be opened.
        """
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._is_busy = is_busy
        self._worker, self._started_by = threading.get_ident(), sys._getframe(1)
        self._counts: Counter[Code] = Counter()
        self._bytes = 0
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        thread = threading.Thread(target=self._run, name="nsysflow samples", daemon=True)
        with suppress(RuntimeError):  # no more threads can be started
            thread.start()

    def _run(self) -> None:
        flushed_s = time.monotonic()
        while self._bytes < MOST_BYTES:
            time.sleep(PERIOD_S)
            frame = sys._current_frames().get(self._worker) if self._is_busy() else None
            if frame is not None:
                self._counts[code_of(frame, self._started_by)] += 1
            del frame
            if time.monotonic() - flushed_s >= FLUSH_S:
                self._flush()
                flushed_s = time.monotonic()

    def _flush(self) -> None:
        rows = [(*code, count) for code, count in self._counts.items()]
        self._counts.clear()
        if rows:
            line = json.dumps(rows).encode() + b"\n"
            self._bytes += len(line)
            with suppress(OSError):  # a full disk: the program goes on
                os.write(self._file, line)


def code_of(innermost: FrameType, outermost: FrameType | None = None) -> Code:
    """The innermost code of the program itself. In a worker without any, that of the library which
    the loader calls: `ColorJitter.forward`, `torchvision/transforms/transforms.py:1280`.

    Args:
        innermost: what runs.
        outermost: what started the worker's loop. A forked worker has the stack of the program's
            loop around that, which it does not run.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None and frame is not outermost:
        if not _of_library(frame.f_code.co_filename):
            return _function(frame)[:LETTERS], line_of(frame)
        frames.append(frame)
        frame = frame.f_back
    return _of_package(frames or [innermost])


def _of_package(frames: list[FrameType]) -> Code:
    """The innermost of these frames of libraries in the package that the loader calls."""
    installed = [(one, _installed(one.f_code.co_filename)) for one in frames]
    called = [(one, file) for one, file in installed if file and not file.startswith(_LOADERS)]
    package = called[-1][1].partition("/")[0] if called else ""
    inside = (pair for pair in called if pair[1].partition("/")[0] == package)
    frame, file = next(inside, installed[0])
    name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)  # from Python 3.11 on
    return name[:LETTERS], f"{file}:{frame.f_lineno}"[:LETTERS] if file else line_of(frame)


def _function(frame: FrameType) -> str:
    """The function around a line, also where it is in a comprehension or lambda there."""
    around: FrameType | None = frame
    while around is not None and around.f_code.co_filename == frame.f_code.co_filename:
        if not around.f_code.co_name.startswith("<"):
            return around.f_code.co_name
        around = around.f_back
    return frame.f_code.co_name


_LIBRARIES: Final = (get_paths()["stdlib"], str(Path(__file__).parents[1]), "<")
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_LOADERS: Final = "torch/utils/data/"


@cache
def _of_library(file: str) -> bool:
    """Whether a file is none of the program: Python's, an installed one, ours, or none at all."""
    return file.startswith(_LIBRARIES) or any(folder in file for folder in _INSTALLED)


def _installed(file: str) -> str:
    """An installed file by its path there, `torchvision/datasets/folder.py`; empty for others."""
    return next((file.partition(folder)[2] for folder in _INSTALLED if folder in file), "")


def counted(lines: bytes) -> Counter[Code]:
    """What lines of a worker's file have counted. A full disk may have cut one off."""
    counts: Counter[Code] = Counter()
    for line in lines.splitlines():
        with suppress(ValueError):
            for function, place, count in json.loads(line):
                counts[function, place] += count
    return counts


def row_of(loader: int, counts: Mapping[Code, int], *, streams: bool) -> WorkerRow:
    """What the workers of a loader run most often; there is one sample at least.

    Args:
        loader: its number in this process.
        counts: how often the workers were seen in each function and line.
        streams: whether each worker iterates over the dataset, an IterableDataset, by itself.
    """
    functions: Counter[Code] = Counter()
    for (function, line), count in counts.items():
        functions[function, _file(line)] += count
    (function, file), samples = functions.most_common(1)[0]
    lines = {
        line: n for (name, line), n in counts.items() if (name, _file(line)) == (function, file)
    }
    line = max(lines, key=lines.__getitem__)
    return function, line, loader, samples, sum(counts.values()), int(streams)


def _file(line: str) -> str:
    return line.rpartition(":")[0]
