"""Stop a recording that holds enough, and let the program go on without the profiler."""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

from nsysflow.nsys.program import Nsys
from nsysflow.nsys.progress_lines import ProgramOutput
from nsysflow.runtime.protocol import BEGUN, ENOUGH, TIMED, WRITTEN

MOST_S: Final = 60
"""The longest that steps are recorded, or a program that reports none."""

START_UP_S: Final = 600
"""A program that may still report a step gets so long to load its model and data."""


TIMING_S: Final = 10
"""How long a program may time plain steps before it is ended. It needs 2 s, or 30 steps where these
take longer."""

EVERY_S: Final = 0.1
"""How often to look: a program may write many lines."""


class Quota:
    """Whether each process that has steps has enough of them, or has had its time."""

    def __init__(self, folder: Path, ranks: int, *, reports_steps: bool) -> None:
        """Which processes.

        Args:
            folder: the run's folder, in which processes say how far they are.
            ranks: so many have steps at least.
            reports_steps: whether the program may report steps.
        """
        self._folder = folder
        self._ranks = ranks
        self._most_s = START_UP_S if reports_steps else MOST_S
        self._begun_s = time.monotonic()
        self._steps_since_s: float | None = None

    def is_met(self) -> bool:
        """Whether all of them have by now."""
        now_s = time.monotonic()
        begun = self._processes(BEGUN)
        if not begun:
            return now_s - self._begun_s >= self._most_s
        self._steps_since_s = self._steps_since_s or now_s
        enough = len(begun) >= self._ranks and begun <= self._processes(ENOUGH)
        return enough or now_s - self._steps_since_s >= MOST_S

    def have_timed(self) -> bool:
        """Whether all of them have timed plain steps by now."""
        return self._processes(BEGUN) <= self._processes(TIMED)

    def end(self) -> None:
        """Remove what was said."""
        for what in (BEGUN, ENOUGH, WRITTEN, TIMED):
            for file in self._folder.glob(f"{what}*"):
                file.unlink(missing_ok=True)

    def _processes(self, what: str) -> set[str]:
        return {file.name.rpartition("-")[2] for file in self._folder.glob(f"{what}-*")}


class Bound:
    """Ends the recording of all ranks together: once each process that has steps has enough of
    them, or has had its time.

    Attributes:
        done: whether all reports are written, and nsys does nothing more.
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
        self._quota = Quota(folder, len(sessions), reports_steps=reports_steps)
        self._looked_s = 0.0
        self._stopping: list[_Stop] = []
        self._written_s = 0.0

    def look(self) -> None:
        """Stop the recording if it holds enough; called again and again while the program runs."""
        now_s = time.monotonic()
        if self.done or now_s - self._looked_s < EVERY_S:
            return
        self._looked_s = now_s
        if not self._stopping:
            if self._quota.is_met():
                self._stop()
            return
        for stop in self._stopping:
            stop.listen()
        self.done = all(stop.has_ended for stop in self._stopping)
        if self.done:
            self._written_s = now_s
            with suppress(OSError):
                (self._folder / WRITTEN).touch()

    def has_timed(self) -> bool:
        """Whether plain steps are timed too, or the time for that is over."""
        timed = self._quota.have_timed() or time.monotonic() - self._written_s >= TIMING_S
        return self.done and timed

    def end(self) -> tuple[str, ...]:
        """The program has ended; remove what its processes said.

        Returns:
            What nsys said when it was stopped, besides its progress: what went wrong.
        """
        said = tuple(line for stop in self._stopping for line in stop.complaints())
        self._stopping.clear()
        self._quota.end()
        return said

    def _stop(self) -> None:
        """Stop all sessions at once. A session may have ended by itself."""
        with suppress(OSError):  # a closed terminal must not end the run
            os.write(2, b"nsysflow: enough is recorded; the program goes on without the profiler\n")
        self._stopping = [_Stop(self._nsys, session) for session in self._sessions]


class _Stop:
    """`nsys stop` of a session, which ends once the report is written.

    Attributes:
        has_ended: whether the report is written.
    """

    def __init__(self, nsys: Nsys, session: str) -> None:
        self.has_ended = False
        self._said = b""
        self._process = subprocess.Popen(
            [str(nsys.path), "stop", f"--session={session}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **nsys.environment()},
            process_group=0,  # Ctrl-C must not keep it from writing the report
        )
        self._pipe = cast("BinaryIO", self._process.stdout)
        os.set_blocking(self._pipe.fileno(), False)

    def listen(self) -> None:
        """Take what nsys has said; it would wait for room in a full pipe."""
        self._said += self._pipe.read() or b""
        self.has_ended = self._process.poll() is not None

    def complaints(self) -> list[str]:
        """The lines that nsys has printed besides its progress, once the report is written."""
        os.set_blocking(self._pipe.fileno(), True)
        with self._process:
            self._said += self._pipe.read()
        lines = ProgramOutput()
        said = lines.feed(self._said) + lines.end()
        return [line for line in said.decode(errors="replace").splitlines() if line.strip()]
