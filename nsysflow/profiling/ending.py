"""Ending a program once what was asked for is recorded."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nsysflow.runs.statuses import read_statuses
from nsysflow.runtime.collectors import Collector
from nsysflow.runtime.protocol import RUN_FOLDER

_PROC: Final = Path("/proc")
_STARTED_BY_NSYS: Final = b"NSYS_PROFILING_SESSION_ID="
"""In the environment of the program, but not of nsys, which must live to write its report."""


class Ending:
    """Sends the program SIGTERM once what was asked for is recorded, and knows when it has ended.

    nsys prints a report's path when the report is complete. torch.profiler has written its trace
    when the process says that its window is closed. A process whose window is still open (nsys
    delays it until the report is complete) gets time to say so.

    Attributes:
        begun: whether SIGTERM was sent.
    """

    def __init__(self, folder: Path, collector: Collector, reports: Sequence[Path]) -> None:
        """What the program leaves.

        Args:
            folder: the run's folder, as the program's environment names it.
            collector: who records.
            reports: the reports that nsys will write.
        """
        self.begun = False
        self._folder = folder
        self._collector = collector
        self._missing = {os.fsencode(report) for report in reports}

    def hear(self, output: bytes) -> None:
        """Look for reports that nsys names in this output."""
        self._missing = {path for path in self._missing if path not in output}

    def look(self, *, nsys_ended: bool) -> None:
        """Send SIGTERM if nothing more will be recorded and the program still runs."""
        if not self.begun and self._is_over(nsys_ended=nsys_ended) and self.runs():
            self.begun = True
            with suppress(OSError):  # a closed terminal must not end the run
                os.write(2, b"nsysflow: recorded; sent SIGTERM to the program, awaiting its end\n")
            self.send(signal.SIGTERM)

    def runs(self) -> bool:
        """Whether a process of the program is alive."""
        return next(self._processes(), None) is not None

    def send(self, number: int) -> None:
        """Send a signal to the program's process groups."""
        groups = set()
        for process in self._processes():
            with suppress(ProcessLookupError):
                groups.add(os.getpgid(process))
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, number)

    def _is_over(self, *, nsys_ended: bool) -> bool:
        if self._missing and not nsys_ended:
            return False
        windows = {status.window for status in read_statuses(self._folder).values()}
        closed = self._collector == "nsys" or "closed" in windows
        return closed and "open" not in windows

    def _processes(self) -> Iterator[int]:
        """The program's processes, which have inherited its environment."""
        ours = f"{RUN_FOLDER}={self._folder}".encode()
        for folder in _PROC.iterdir():
            if not folder.name.isdecimal():
                continue
            with suppress(OSError):  # it has ended, or is another user's
                variables = (folder / "environ").read_bytes().split(b"\0")
                by_nsys = any(each.startswith(_STARTED_BY_NSYS) for each in variables)
                if ours in variables and by_nsys == (self._collector == "nsys"):
                    yield int(folder.name)
