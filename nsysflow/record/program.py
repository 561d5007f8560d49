"""Run a program: show and keep its output, pass signals on, end it once all is recorded."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final, cast

from nsysflow.base.progress import progress
from nsysflow.nsys.progress_lines import SAVES, ProgramOutput
from nsysflow.record.bound import Bound
from nsysflow.runs.manifest import read_statuses
from nsysflow.runtime.protocol import RUN_FOLDER, Collector

_PROC: Final = Path("/proc")
_STARTED_BY_NSYS: Final = b"NSYS_PROFILING_SESSION_ID="
"""In the environment of the program, but not of nsys, which must live to write its report."""


class Processes:
    """The processes of a program, which have inherited the run's folder as a variable."""

    def __init__(self, folder: Path, *, by_nsys: bool) -> None:
        """Which processes.

        Args:
            folder: the run's folder, as the program's environment names it.
            by_nsys: whether nsys has started them.
        """
        self._ours = f"{RUN_FOLDER}={folder}".encode()
        self._by_nsys = by_nsys

    def runs(self) -> bool:
        """Whether one of them is alive."""
        return next(self._alive(), None) is not None

    def send(self, number: int) -> None:
        """Send a signal to their process groups."""
        groups = set()
        for process in self._alive():
            with suppress(ProcessLookupError):
                groups.add(os.getpgid(process))
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, number)

    def _alive(self) -> Iterator[int]:
        for folder in _PROC.iterdir():
            if not folder.name.isdecimal():
                continue
            with suppress(OSError):  # it has ended, or is another user's
                variables = (folder / "environ").read_bytes().split(b"\0")
                by_nsys = any(name.startswith(_STARTED_BY_NSYS) for name in variables)
                if self._ours in variables and by_nsys == self._by_nsys:
                    yield int(folder.name)


class Ending(Processes):
    """Sends the program SIGTERM once what was asked for is recorded, and knows when it has ended.

    nsys prints a report's path when the report is complete. torch.profiler has written its trace
    when the process says that its window is closed. A process whose window is still open (nsys
    delays it until the report is complete) gets time to say so.

    Attributes:
        begun: whether SIGTERM was sent.
    """

    def __init__(
        self,
        folder: Path,
        collector: Collector,
        reports: Sequence[Path],
        bound: Bound | None = None,
    ) -> None:
        """What the program leaves.

        Args:
            folder: the run's folder, as the program's environment names it.
            collector: who records.
            reports: the reports that nsys will write.
            bound: what ends the recording; None if it ends with its window.
        """
        super().__init__(folder, by_nsys=collector == "nsys")
        self.begun = False
        self._bound = bound
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

    def _is_over(self, *, nsys_ended: bool) -> bool:
        if self._bound is not None:
            return self._bound.has_timed()
        if self._missing and not nsys_ended:
            return False
        windows = {status.window for status in read_statuses(self._folder).values()}
        closed = self._collector == "nsys" or "closed" in windows
        return closed and "open" not in windows


LAST_LINES: Final = 20
LAST_COLUMNS: Final = 500

_OF_NSYS: Final = (
    "Collecting data",
    "Capture range started in the application",
    "Capture range ended in the application",
    "Generating '",
    "Generated:",
    "Processing events",
)
"""How lines begin that nsys writes between those of the program."""

_OF_TORCHRUN: Final = re.compile(
    r"^(?:[IWE]\d{4} |\[\d{4}-|(?:WARNING|ERROR):).*torch[./]distributed"
)
"""torchrun's log lines; the format depends on its version. torch 2.13 writes
`E1120 13:07:35.127000 25651 torch/distributed/…`."""

_FAILURE: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?: [^\n]*\n)+"
    r"torch\.distributed\.elastic\.\S*ChildFailedError: *\n=+\n(?P<table>.*?)\n=+$",
    re.DOTALL | re.MULTILINE,
)
"""torchrun's own traceback and table of failures, which end the output: 30 lines and more."""

_FIRST: Final = re.compile(
    r"Root Cause .*? rank +: (?P<rank>\d+) .*? exitcode +: (?P<code>-?\d+) \(pid: \d+\)"
    r"(?: +\((?P<signal>\w+)\))?",
    re.DOTALL,
)

_BAR: Final = re.compile(r"\[\d+/\d+\] \[[=\d% ]*\]")

_TRACEBACK: Final = "Traceback (most recent call last)"


def last_lines(output: bytes) -> tuple[str, ...]:
    """The last lines that a program wrote; with torchrun, those of all its ranks together.

    Left out are lines of nsys and torchrun, and what a terminal would have overwritten. Instead of
    torchrun's table of failures there is one line, on the rank that failed first. That rank's
    traceback is kept in sight although other ranks wrote more after it.
    """
    lines = [
        line.rpartition("\r")[2].rstrip() for line in output.decode(errors="replace").split("\n")
    ]
    text = "\n".join(lines)
    failure = _FAILURE.search(text)
    own = [line[:LAST_COLUMNS] for line in _FAILURE.sub("", text).split("\n") if _is_programs(line)]
    first = _FIRST.search(failure["table"]) if failure else None
    if first is None:
        return tuple(own[-LAST_LINES:])
    signal = f", {first['signal']}" if first["signal"] else ""
    summary = f"torchrun: rank {first['rank']} failed first (exit code {first['code']}{signal})"
    shown = own if signal else _with_error_in_sight(own)
    return (*shown[1 - LAST_LINES :], summary)


def _with_error_in_sight(lines: list[str]) -> list[str]:
    """The lines, cut after the last traceback if it would be out of sight otherwise. Other ranks go
    on until torchrun notices the failure, which under nsys is after a report has been saved."""
    begins = max((at for at, line in enumerate(lines) if _TRACEBACK in line), default=None)
    if begins is None:
        return lines
    later = range(begins + 1, len(lines))
    error = next((at for at in later if not lines[at].startswith(" ")), len(lines) - 1)
    return lines if len(lines) - error < LAST_LINES else lines[: error + 1]


def _is_programs(line: str) -> bool:
    """Whether the program wrote the line, and it is not empty."""
    others = line.startswith(_OF_NSYS) or _OF_TORCHRUN.match(line) or _is_progress(line)
    return bool(line.strip()) and not others


def _is_progress(line: str) -> bool:
    """Whether the line is a bar of nsys, `[1/1] [====100%] report.nsys-rep`, or names a report."""
    return bool(_BAR.match(line.lstrip())) or line.strip().endswith(".nsys-rep")


_CHUNK_BYTES: Final = 1 << 16
_KEPT_BYTES: Final = 1 << 18
"""How much of the end of the output is kept: nsys's bars follow the program's last lines."""
_PATH_BYTES: Final = 1 << 13
_LOOK_S: Final = 0.2
_LINGER_S: Final = 1.0
"""How long to wait for output after the program has ended. A process that it started, a server for
example, may still hold its output open."""

_KILLED: Final = 128
"""A program that a signal ended has exit code 128 + the signal's number, in shells and in nsys."""


@dataclass(frozen=True, kw_only=True)
class ProgramEnd:
    """How a program ended.

    Attributes:
        exit_code: its exit code; 128 + the signal's number if a signal ended it.
        interrupted: whether we passed SIGINT or SIGTERM on to it.
        stopped: whether we ended it, because what was asked for was recorded.
        wall_ns: how long it ran, including nsys's import.
        last_lines: the last lines of its output.
        nsys_said: what nsys printed when the recording was stopped before the program's end,
            besides its progress.
    """

    exit_code: int
    interrupted: bool
    wall_ns: int
    last_lines: tuple[str, ...]
    stopped: bool = False
    nsys_said: tuple[str, ...] = ()


_WRITES: Final = "nsys writes its report"


def run_program(
    argv: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    ending: Ending | None = None,
    bound: Bound | None = None,
) -> ProgramEnd:
    """Run a program to its end.

    Its stdout and stderr go to our stderr as they come, without nsys's progress, and to `log` with
    it; our stdout is for results.
    The first SIGINT or SIGTERM is passed on, and then we wait: nsys saves what it has. The third
    ends the program at once.

    Args:
        argv: the program and its arguments.
        environment: variables to set for it besides ours.
        log: the file that keeps its output.
        ending: ends the program, perhaps after nsys has ended; None if it ends by itself.
        bound: ends the recording once it holds enough; None if the program's end does.

    Raises:
        OSError: it cannot be started, or `log` cannot be opened.
    """
    begun_ns = time.monotonic_ns()
    terminal = sys.stdin is None or sys.stdin.isatty()
    with (
        log.open("wb", buffering=0) as kept,  # unbuffered: a full disk shows once, not at close
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if terminal else None,  # a background group may not read it
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Python buffers output to a pipe; the user wants to see it at once
            env={"PYTHONUNBUFFERED": "1", **os.environ, **environment},
            process_group=0,  # a terminal's Ctrl-C comes to us alone: the program gets one, not two
        ) as program,
    ):
        output = _Output(program, kept, ending, bound)
        with _Signals(output) as signals:
            output.pass_on()
            code = program.wait()
            output.await_end()
    nsys_said: tuple[str, ...] = ()
    if bound is not None:
        with progress(_WRITES):
            nsys_said = bound.end()
    return ProgramEnd(
        exit_code=code if code >= 0 else _KILLED - code,
        interrupted=signals.count > 0,
        wall_ns=time.monotonic_ns() - begun_ns,
        last_lines=last_lines(output.last),
        stopped=ending is not None and ending.begun,
        nsys_said=nsys_said,
    )


class _Output:
    """A program's output, passed on to the screen and the log.

    Attributes:
        last: the end of the output.
        saving: whether nsys has begun to write the report; a signal after that would lose it.
        given_up: whether to stop waiting for more.
    """

    def __init__(
        self,
        program: "subprocess.Popen[bytes]",
        kept: BinaryIO,
        ending: Ending | None,
        bound: Bound | None,
    ) -> None:
        self._program = program
        self._bound = bound
        self._ending = ending
        self._log: BinaryIO | None = kept
        self._screen: BinaryIO | None = getattr(sys.stderr, "buffer", None)
        self._shown = ProgramOutput()
        self._bar = ExitStack()
        self.last = b""
        self.saving = False
        self.given_up = False

    def pass_on(self) -> None:
        """Pass it on until it ends, or until the program has ended and no more comes."""
        with self._bar:
            self._pass_on()
            self._show(self._shown.end())

    def _pass_on(self) -> None:
        pipe = cast("BinaryIO", self._program.stdout)
        silent_since = time.monotonic()
        while not self.given_up:
            if select.select([pipe], [], [], _LOOK_S)[0]:
                chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
                if not chunk:
                    return
                self._take(chunk)
                silent_since = time.monotonic()
            elif self._program.poll() is None or self.outlives_nsys():
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > _LINGER_S:
                return
            self._look()

    def outlives_nsys(self) -> bool:
        """Whether the program that we are to end still runs."""
        return self._ending is not None and not self.given_up and self._ending.runs()

    def await_end(self) -> None:
        """Wait for the end of the program that we are to end: it may have closed its output."""
        while self.outlives_nsys():
            self._look()
            time.sleep(_LOOK_S)

    def send(self, number: int) -> None:
        """Send a signal to the program and to nsys around it."""
        if self._program.poll() is None:
            os.killpg(self._program.pid, number)
        elif self._ending is not None:
            self._ending.send(number)

    def _look(self) -> None:
        if self._bound is not None and self._program.poll() is None:
            self._bound.look()
        if self._ending is not None:
            self._ending.look(nsys_ended=self._program.poll() is not None)

    def _take(self, chunk: bytes) -> None:
        self.last = (self.last + chunk)[-_KEPT_BYTES:]
        if self._ending is not None:
            self._ending.hear(self.last[-len(chunk) - _PATH_BYTES :])
        was_saving = self.saving
        # nsys's line may come in two pieces, but is not longer than a path. It may stand behind an
        # unfinished line of the program
        self.saving |= bool(SAVES.search(self.last[-len(chunk) - _PATH_BYTES :]))
        self._log = _written(self._log, chunk)
        self._show(self._shown.feed(chunk))
        if self.saving and not was_saving:
            self._bar.enter_context(progress(_WRITES))

    def _show(self, output: bytes) -> None:
        """Show what the program printed, in place of the bar."""
        if output:
            self._bar.close()
            self._screen = _written(self._screen, output)


def _written(sink: BinaryIO | None, output: bytes) -> BinaryIO | None:
    """The sink, after the output was written to it; None once it takes no more: a closed terminal
    or a full disk must not end the run."""
    if sink is None:
        return None
    try:
        sink.write(output)
        sink.flush()
    except OSError:
        return None
    return sink


class _Signals(AbstractContextManager["_Signals"]):
    """Handles SIGINT and SIGTERM while a program runs: the first is passed on to its group.

    Attributes:
        count: how many have come.
    """

    def __init__(self, output: _Output) -> None:
        self._output = output
        self._before: dict[signal.Signals, Any] = {}
        self.count = 0

    def __enter__(self) -> "_Signals":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1 and not self._output.saving:
            self._output.send(number)
        elif self.count < 3:
            said = b"nsysflow: saving what was captured; interrupt once more to lose it\n"
            with suppress(OSError):
                os.write(2, said)  # Python's sys.stderr may be in use: we are in a signal handler
        else:
            self._output.given_up = True
            self._output.send(signal.SIGKILL)
