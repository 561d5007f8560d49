"""Running a program: its output passed on and kept, signals handed down to it."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final, cast

from nsysflow.profiling.tail import tail_of

_CHUNK_BYTES: Final = 1 << 16
_KEPT_BYTES: Final = 1 << 18
"""Of the end of the output, for the tail: nsys's progress bars come after the program's lines."""
_PATH_BYTES: Final = 1 << 13
_LOOK_S: Final = 0.2
_LINGER_S: Final = 1.0
"""How long output may be silent, once the program has ended, before it is left to whatever process
still holds it: a server that the program started, say."""

_KILLED: Final = 128
"""What shells add to a signal's number when it ended a program; nsys does the same."""

_SAVES: Final = re.compile(rb"^Generating '[^'\n]*\.qdstrm'", re.MULTILINE)
"""What nsys says when it begins to write the report. A signal from then on would lose it."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        exit_code: its exit code; 128 + the signal's number if one ended it.
        interrupted: it was sent SIGINT or SIGTERM from here.
        wall_ns: how long it ran, nsys's import with it.
        tail: its last lines of output.
    """

    exit_code: int
    interrupted: bool
    wall_ns: int
    tail: tuple[str, ...]


def run(argv: Sequence[str], environment: Mapping[str, str], log: Path) -> Ended:
    """Run a program to its end.

    Its output, and what it says on stderr, goes to our stderr as it comes, and to `log`: stdout is
    kept for the results. The first SIGINT or SIGTERM is handed down, and the program's end waited
    for, since nsys then saves what it has; the third one ends it at once.

    Args:
        argv: the program and its arguments.
        environment: variables that it is given besides ours.
        log: the file that keeps its output.

    Raises:
        OSError: it cannot be started, or `log` not opened.
    """
    begun_ns = time.monotonic_ns()
    terminal = sys.stdin is None or sys.stdin.isatty()
    with (
        log.open(
            "wb", buffering=0
        ) as kept,  # a full disk shows at once, and not again when it closes
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if terminal else None,  # it may not read a terminal
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Python keeps output back when it writes to a pipe; on a terminal one sees it at once
            env={"PYTHONUNBUFFERED": "1", **os.environ, **environment},
            process_group=0,  # a terminal's Ctrl-C reaches us alone, and it gets one, not two
        ) as program,
    ):
        output = _Output(program, kept)
        with _Signals(program, output) as signals:
            output.pass_on()
            code = program.wait()
    return Ended(
        exit_code=code if code >= 0 else _KILLED - code,
        interrupted=signals.count > 0,
        wall_ns=time.monotonic_ns() - begun_ns,
        tail=tail_of(output.last),
    )


class _Output:
    """A program's output, on its way to the screen and to the log.

    Attributes:
        last: the end of it.
        saving: nsys has begun to write the report.
        given_up: nobody waits for it any more.
    """

    def __init__(self, program: "subprocess.Popen[bytes]", kept: BinaryIO) -> None:
        self._program = program
        screen = getattr(sys.stderr, "buffer", None)
        self._sinks: list[BinaryIO] = [kept, *([screen] if screen is not None else [])]
        self.last = b""
        self.saving = False
        self.given_up = False

    def pass_on(self) -> None:
        """Pass it on until it ends, or the program has and what still holds it is silent."""
        pipe = cast("BinaryIO", self._program.stdout)
        silent_since = time.monotonic()
        while not self.given_up:
            if select.select([pipe], [], [], _LOOK_S)[0]:
                chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
                if not chunk:
                    return
                self._take(chunk)
                silent_since = time.monotonic()
            elif self._program.poll() is None:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > _LINGER_S:
                return

    def _take(self, chunk: bytes) -> None:
        self.last = (self.last + chunk)[-_KEPT_BYTES:]
        if not self.saving:
            # what nsys says may come in two pieces, but is no longer than a path may be
            self.saving = bool(_SAVES.search(self.last[-len(chunk) - _PATH_BYTES :]))
        for sink in [*self._sinks]:
            try:
                sink.write(chunk)
                sink.flush()
            except OSError:  # a closed terminal, a full disk: the run is worth more than its output
                self._sinks.remove(sink)


class _Signals(AbstractContextManager["_Signals"]):
    """SIGINT and SIGTERM while a program runs: the first is handed to its group.

    Attributes:
        count: how many came.
    """

    def __init__(self, program: "subprocess.Popen[bytes]", output: _Output) -> None:
        self._program = program
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
            self._hand_down(number)
        elif self.count < 3:
            said = b"nsysflow: what was captured is being saved; stop once more to lose it\n"
            with suppress(OSError):
                os.write(2, said)  # Python's own stderr may be in the middle of a line
        else:
            self._output.given_up = True
            self._hand_down(signal.SIGKILL)

    def _hand_down(self, number: int) -> None:
        if self._program.poll() is None:
            os.killpg(self._program.pid, number)
