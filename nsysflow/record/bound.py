"""Stop a recording that holds enough, and let the program go on without the profiler."""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nsysflow.nsys.program import Nsys
from nsysflow.runtime.protocol import BEGUN, ENOUGH, RECORDED

MOST_S: Final = 60
"""So long the steps are recorded at most, or a program that reports none."""

START_UP_S: Final = 600
"""A program that may still report a step gets so long to load its model and data."""


EVERY_S: Final = 0.1
"""How often to look: a program may write many lines."""


class Bound:
    """Ends the recording of all ranks together: once each process that has steps has enough of
    them, or has had its time.

    Attributes:
        done: whether nothing more is recorded, and all reports are written.
    """

    def __init__(
        self, folder: Path, nsys: Nsys, sessions: Sequence[str], *, reports_steps: bool
    ) -> None:
        """What is recorded.

        Args:
            folder: the run's folder, in which processes say how far they are.
            nsys: the nsys that records.
            sessions: its sessions, one per rank.
            reports_steps: whether the program may report steps.
        """
        self.done = False
        self._folder = folder
        self._nsys = nsys
        self._sessions = tuple(sessions)
        self._most_s = START_UP_S if reports_steps else MOST_S
        self._begun_s = time.monotonic()
        self._steps_since_s: float | None = None
        self._looked_s = 0.0
        self._stopping: list[subprocess.Popen[bytes]] = []

    def look(self) -> None:
        """Stop the recording if it holds enough; called again and again while the program runs."""
        now_s = time.monotonic()
        if self.done or now_s - self._looked_s < EVERY_S:
            return
        self._looked_s = now_s
        if not self._stopping:
            if self._is_over():
                self._stop()
        elif all(stop.poll() is not None for stop in self._stopping):
            self.done = True
            with suppress(OSError):
                (self._folder / RECORDED).touch()

    def end(self) -> None:
        """The program has ended; remove what its processes said."""
        for stop in self._stopping:
            stop.wait()
        for what in (BEGUN, ENOUGH, RECORDED):
            for file in self._folder.glob(f"{what}*"):
                file.unlink(missing_ok=True)

    def _is_over(self) -> bool:
        now_s = time.monotonic()
        begun = self._processes(BEGUN)
        if not begun:
            return now_s - self._begun_s >= self._most_s
        self._steps_since_s = self._steps_since_s or now_s
        enough = len(begun) >= len(self._sessions) and begun <= self._processes(ENOUGH)
        return enough or now_s - self._steps_since_s >= MOST_S

    def _processes(self, what: str) -> set[str]:
        return {file.name.rpartition("-")[2] for file in self._folder.glob(f"{what}-*")}

    def _stop(self) -> None:
        """Stop all sessions at once. A session may have ended by itself."""
        environment = {**os.environ, **self._nsys.environment()}
        with suppress(OSError):  # a closed terminal must not end the run
            os.write(2, b"nsysflow: enough is recorded; the program goes on without the profiler\n")
        for session in self._sessions:
            self._stopping.append(
                subprocess.Popen(
                    [str(self._nsys.path), "stop", f"--session={session}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                )
            )
