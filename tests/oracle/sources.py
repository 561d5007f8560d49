"""The source line of a call, and the framework's line behind it (spec §11)."""

import re
from bisect import bisect_left
from collections import defaultdict
from functools import cache, cached_property
from itertools import pairwise

from tests.oracle.calls import STALLS, Calls
from tests.oracle.model import Backtrace, Frame, PlainTrace
from tests.oracle.once import grouped_by

INSIDE = (
    *("capturing.py", "handshake.py", "recorders.py", "regions.py"),
    *("stepping.py", "telling.py", "windowing.py", "wrapping.py"),
)
"""The modules of nsysflow's runtime before 2026-11-22, when it became a folder."""


ENGINES = (
    *("torch", "torchgen", "functorch", "triton", "jax", "jaxlib", "nvtx", "tqdm"),
    "nsysflow",
)
"""§11.3: the packages that are no frameworks."""

SOON_NS = 50_000


@cache
def is_own(file: str) -> bool:
    """§11.3: whether a file is the program's own."""
    if file.startswith("<"):
        typed = ("<string>", "<stdin>", "<console>")
        return file in typed or (file.startswith("<ipython-input-") and file.endswith(">"))
    *folders, name = file.replace("\\", "/").split("/")
    if ("nsysflow", "workloads") in pairwise(folders) and name.endswith(".py"):
        return True
    if ("nsysflow", "runtime") in pairwise(folders) and name.endswith(".py"):
        return False
    if folders[-1:] == ["nsysflow"] and name in INSIDE:
        return False
    if "site-packages" in folders or "dist-packages" in folders:
        return False
    if any(re.fullmatch(r"torchinductor(_.*)?", folder) for folder in folders):
        return False
    if any(re.fullmatch(r"(python|pypy)3\d*\.zip", folder) for folder in folders):
        return False
    return not any(
        lib in ("lib", "lib64") and re.match(r"(python|pypy)3", python)
        for lib, python in pairwise(folders)
    )


def folders_of(path: str) -> list[str]:
    """§11.3: the folders and the name, without `.` and `..`."""
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]


def absolute(path: str) -> bool:
    return path[:1] in ("/", "\\") or path[1:2] == ":"


def packaged(file: str) -> list[str]:
    """§11.3: the part of a path behind the last `site-packages` or `dist-packages`."""
    *folders, name = file.replace("\\", "/").split("/")
    for at in range(len(folders), 0, -1):
        if folders[at - 1] in ("site-packages", "dist-packages"):
            return [*folders[at:], name]
    return []


def package_of(file: str) -> str | None:
    """§11.3: the package that a file is part of, by its folder or by its own name."""
    behind = packaged(file)
    return behind[0].partition(".")[0] if behind and behind[0].partition(".")[0] else None


def is_named(file: str, name: str) -> bool:
    """§11.3: whether `--own NAME` says that a file is the program's own."""
    if not re.search(r"[/\\]", name) and not name.startswith(".") and not name.endswith(".py"):
        return package_of(file) == name.replace("-", "_")
    path, wanted = folders_of(file), folders_of(name)
    if not wanted:
        return False
    if not absolute(name):
        return any(path[at : at + len(wanted)] == wanted for at in range(len(path)))
    if absolute(file):
        return path[: len(wanted)] == wanted
    ends = [wanted[at:] for at in range(len(wanted) - 1)]
    return any(path[: len(end)] == end for end in ends)


def parts_of(file: str) -> list[str]:
    """Folders and name, without the user's home folder or the root."""
    if file.startswith("<"):
        return [file]
    folders = file.replace("\\", "/").split("/")
    absolute = len(folders) > 1 and (folders[0] == "" or folders[0][1:] == ":")
    parts = [part for part in folders if part not in ("", ".")]
    if absolute and parts[0][1:] == ":":
        parts = parts[1:]
    if absolute and len(parts) > 2 and parts[0] in ("home", "Users"):
        return parts[2:]
    return parts[1:] if absolute and len(parts) > 1 and parts[0] == "root" else parts


@cache
def behind_libraries(file: str) -> str:
    """§17.8: what comes after the last `site-packages`, `dist-packages` or `lib/python3…`."""
    parts = file.replace("\\", "/").split("/")
    for at in range(len(parts) - 1, 0, -1):
        python = re.match(r"(python|pypy)3", parts[at - 1]) and parts[at - 2] in ("lib", "lib64")
        if parts[at - 1] in ("site-packages", "dist-packages") or (at > 1 and python):
            return "/".join(parts[at:])
    return file


Lines = tuple[str | None, str | None]
"""§11.2: source and via."""


class Sources:
    """Finds the source line of a call."""

    def __init__(self, trace: PlainTrace, calls: Calls, own: tuple[str, ...] = ()) -> None:
        self.trace = trace
        self.calls = calls
        self.own_too = own
        self.at: dict[tuple[int, int], Backtrace] = {}
        for backtrace in trace.backtraces:
            self.at.setdefault((backtrace.thread, backtrace.start_ns), backtrace)

    @cached_property
    def own_files(self) -> set[tuple[str, ...]]:
        """§11.4: every file in a frame that is the program's own, without those of packages."""
        frames = {frame for stack in self.trace.stacks for frame in stack}
        return {
            tuple(parts_of(file))
            for frame in frames
            if (file := frame.file) is not None and self.counts(frame)
            if is_own(file) or package_of(file) is None
        }

    def shown(self, file: str) -> str:
        """§11.4: its name, with as many parent folders as tell it from the other files."""
        if not is_own(file) and package_of(file) is not None:
            return "/".join(packaged(file))
        parts = parts_of(file)
        for count in range(1, len(parts) + 1):
            end = tuple(parts[-count:])
            others = [other for other in self.own_files if other != tuple(parts)]
            if all(other[-count:] != end for other in others):
                return "/".join(end)
        return "/".join(parts)

    def own(self, call: int) -> Backtrace | None:
        """§11.1: the backtrace with the call's start time and thread."""
        row = self.calls.calls[call]
        return self.at.get((row.thread, row.start_ns))

    def backtrace(self, call: int) -> Backtrace | None:
        """§11.5: its own or a twin's; else that of the copy before a wait or the wait behind it."""
        if (found := self._recorded(call)) is not None:
            return found
        if self.calls.classes[call] == "blocking_copy":
            wait = self._waits_behind[call]
            return None if wait is None else self._recorded(wait)
        if self.calls.classes[call] != "sync":
            return None
        recorded = (self._recorded(copy) for copy in self._copies_before[call])
        return next((backtrace for backtrace in recorded if backtrace is not None), None)

    @cached_property
    def _waits_behind(self) -> dict[int, int | None]:
        """Of each blocking copy, looked up once: a wait asks all copies of its thread."""
        copies = (call for call, kind in enumerate(self.calls.classes) if kind == "blocking_copy")
        return {copy: self._wait_behind(copy) for copy in copies}

    @cached_property
    def _copies_before(self) -> dict[int | None, list[int]]:
        """The blocking copies before each wait."""
        return grouped_by(self._waits_behind.__getitem__, self._waits_behind)

    def _wait_behind(self, copy: int) -> int | None:
        """§11.5: the sync that the thread calls right after a copy that takes time."""
        row = self.calls.calls[copy]
        if row.start_ns == row.end_ns:
            return None
        rows, calls = self.calls.by_thread[row.thread], self.calls.calls
        for index in rows[bisect_left(rows, row.end_ns, key=lambda at: calls[at].start_ns) :]:
            other = calls[index]
            if self.calls.classes[index] != "api":
                soon = other.start_ns - row.end_ns <= SOON_NS
                return index if soon and self.calls.classes[index] == "sync" else None
        return None

    def _recorded(self, call: int) -> Backtrace | None:
        """§11.5: its own, else that of a call that contains it, or has its correlation id."""
        if (own := self.own(call)) is not None:
            return own
        row = self.calls.calls[call]
        first = self._around.get(call)
        if first is None and row.correlation is not None:
            first = self._same.get((row.thread, row.correlation))
        return None if first is None else self.own(first)

    @cached_property
    def _around(self) -> dict[int, int]:
        """Of a call without a backtrace, the first one that has one and contains it."""
        found = {}
        for rows in self.calls.by_thread.values():
            running: list[int] = []
            for index in rows:
                call = self.calls.calls[index]
                running = [i for i in running if self.calls.calls[i].end_ns >= call.start_ns]
                if self.own(index) is not None:
                    running.append(index)
                    continue
                around = (i for i in running if self.calls.calls[i].end_ns >= call.end_ns)
                first = next(around, None)
                if first is not None:
                    found[index] = first
        return found

    @cached_property
    def _same(self) -> dict[tuple[int, int], int]:
        """The first call with a backtrace, by thread and correlation id."""
        found: dict[tuple[int, int], int] = {}
        for index, call in enumerate(self.calls.calls):
            if call.correlation is not None and self.own(index) is not None:
                found.setdefault((call.thread, call.correlation), index)
        return found

    def of(self, call: int | None) -> Lines:
        """§11.2: source and via of a call."""
        if call is None:
            return None, None
        backtrace = self.backtrace(call)
        return self.lines(self._sampled_in(call) if backtrace is None else backtrace.frames)

    def lines(self, frames: tuple[Frame, ...]) -> Lines:
        """§11.2: source and via of a stack."""
        via = None
        callers = [*frames[1:], None]
        for frame, caller in zip(frames, callers, strict=False):
            if self.counts(frame) and not self._generated(frame, caller):
                return self._written(frame), via
            if via is None and self._is_framework(frame):
                via = self._written(frame)
        return None, via

    def _sampled_in(self, call: int) -> tuple[Frame, ...]:
        """§11.5: the stack of the first sample, or stretch, in a stall."""
        if self.calls.classes[call] not in STALLS:
            return ()
        row = self.calls.calls[call]
        inside = [
            (at, frames)
            for at, end, frames in self.stacks_of[row.thread]
            if max(at, row.start_ns) < min(end, row.end_ns)
        ]
        return min(inside, key=lambda found: found[0])[1] if inside else ()

    @cached_property
    def stacks_of(self) -> dict[int, list[tuple[int, int, tuple[Frame, ...]]]]:
        """Per thread, when each sample or stretch began and ended, and its frames."""
        found: dict[int, list[tuple[int, int, tuple[Frame, ...]]]] = defaultdict(list)
        for sample in () if self.trace.running else self.trace.samples:
            found[sample.thread].append((sample.time_ns, sample.time_ns + 1, sample.frames))
        for stretch in self.trace.running:
            found[stretch.thread].append((stretch.start_ns, stretch.end_ns, stretch.frames))
        return found

    def frame(self, frame: Frame) -> str:
        """§17.8: `step (train.py:42)`; an operator's name alone."""
        name, place = frame.function or "(nameless)", self._place(frame)
        return f"{name} ({place})" if place else name

    def function(self, frame: Frame) -> str:
        """§22.9: `step (train.py)`; an operator's name alone."""
        name = frame.function or "(nameless)"
        return name if frame.file is None else f"{name} ({self._file(frame.file)})"

    def line(self, frame: Frame) -> str:
        """§22.7: `train.py:42 in step`; an operator's name alone."""
        name, place = frame.function or "(nameless)", self._place(frame)
        return f"{place} in {name}" if place else name

    def _place(self, frame: Frame) -> str | None:
        if frame.file is None or frame.line is None:
            return None
        return f"{self._file(frame.file)}:{frame.line}"

    def _file(self, file: str) -> str:
        return self.shown(file) if is_own(file) else behind_libraries(file)

    def _written(self, frame: Frame) -> str:
        return f"{self.shown(frame.file or '')}:{frame.line} in {frame.function or '(nameless)'}"

    @staticmethod
    def _generated(frame: Frame, caller: Frame | None) -> bool:
        """§11.3: whether it is a frame of `<string>` that a file called."""
        return frame.file == "<string>" and caller is not None and caller.file != "<string>"

    def counts(self, frame: Frame) -> bool:
        """§11.3: whether it is the program's own, by its place or because it was named."""
        file = frame.file
        if file is None:
            return False
        return is_own(file) or any(is_named(file, name) for name in self.own_too)

    def _is_framework(self, frame: Frame) -> bool:
        """§11.3: whether a frame that is not the program's own is a framework's."""
        package = None if frame.file is None else package_of(frame.file)
        return package is not None and package not in ENGINES
