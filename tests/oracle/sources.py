"""The source line of a call (spec §11)."""

import re
from collections import defaultdict
from functools import cached_property
from itertools import chain, pairwise

from tests.oracle.calls import Calls
from tests.oracle.model import Backtrace, Frame, PlainTrace

INSIDE = (
    *("capturing.py", "handshake.py", "recorders.py", "regions.py"),
    *("stepping.py", "telling.py", "windowing.py", "wrapping.py"),
)
"""The modules of nsysflow's runtime before 2026-11-22, when it became a folder."""


def is_own(file: str) -> bool:
    """§11.3: whether a file is the program's own.

    The workloads that come with nsysflow are, wherever they are installed.
    """
    if file.startswith("<"):
        typed = ("<string>", "<stdin>", "<console>")
        return file in typed or (file.startswith("<ipython-input-") and file.endswith(">"))
    *folders, name = file.replace("\\", "/").split("/")
    if ("nsysflow", "workloads") in pairwise(folders) and name.endswith(".py"):
        return True
    if folders[-2:] == ["nsysflow", "runtime"] and name.endswith(".py"):
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


class Sources:
    """Finds the source line of a call."""

    def __init__(self, trace: PlainTrace, calls: Calls) -> None:
        self.trace = trace
        self.calls = calls
        self.at: dict[tuple[int, int], Backtrace] = {}
        for backtrace in trace.backtraces:
            self.at.setdefault((backtrace.thread, backtrace.start_ns), backtrace)
        self.sampled: dict[int, list[int]] = defaultdict(list)
        """Per thread, the calls with a backtrace at their start."""
        for index, call in enumerate(calls.calls):
            if self.own(index) is not None:
                self.sampled[call.thread].append(index)

    @cached_property
    def own_files(self) -> set[tuple[str, ...]]:
        """§11.4: every file in a frame that is the program's own."""
        frames = {frame for backtrace in self.trace.backtraces for frame in backtrace.frames}
        return {tuple(parts_of(f.file)) for f in frames if f.file is not None and is_own(f.file)}

    def shown(self, file: str) -> str:
        """§11.4: its name, with as many parent folders as tell it from the other files."""
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
        """§11.5: its own, else that of the first call of its thread that contains it.

        Else that of the first call of its thread with the same correlation id.
        """
        if (own := self.own(call)) is not None:
            return own
        row = self.calls.calls[call]
        sampled = self.sampled[row.thread]
        around = (
            i
            for i in sampled
            if self.calls.calls[i].start_ns <= row.start_ns
            and self.calls.calls[i].end_ns >= row.end_ns
        )
        same = (
            i
            for i in sampled
            if row.correlation is not None and self.calls.calls[i].correlation == row.correlation
        )
        first = next(chain(around, same), None)
        return None if first is None else self.own(first)

    def of(self, call: int | None) -> str | None:
        """§11.2: `train.py:42 in step`, the innermost frame that is the program's own, or None."""
        backtrace = None if call is None else self.backtrace(call)
        if backtrace is None:
            return None
        callers = [*backtrace.frames[1:], None]
        return next(
            (
                self._written(frame)
                for frame, caller in zip(backtrace.frames, callers, strict=True)
                if self._counts(frame) and not self._generated(frame, caller)
            ),
            None,
        )

    def _written(self, frame: Frame) -> str:
        return f"{self.shown(frame.file or '')}:{frame.line} in {frame.function or '(nameless)'}"

    def _generated(self, frame: Frame, caller: Frame | None) -> bool:
        """§11.3: whether it is a frame of `<string>` that a library called."""
        return frame.file == "<string>" and caller is not None and not self._counts(caller)

    @staticmethod
    def _counts(frame: Frame) -> bool:
        return frame.file is not None and is_own(frame.file)
