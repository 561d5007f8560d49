"""Running a program: its output passed on and kept, signals handed down to it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO, Final, cast

TAIL_LINES: Final = 20

_CHUNK_BYTES: Final = 1 << 16
_KILLED: Final = 128
"""What shells add to a signal's number when it ended a program; nsys does the same."""

_OF_NSYS: Final = ("Collecting data", "Generating '", "Generated:", "Processing events")
"""How the lines begin that nsys writes between the program's."""


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
    kept for the results. SIGINT and SIGTERM are handed down, and its end is waited for: nsys then
    saves what it has.

    Args:
        argv: the program and its arguments.
        environment: variables that it is given besides ours.
        log: the file that keeps its output.

    Raises:
        OSError: it cannot be started, or `log` not written.
    """
    begun_ns = time.monotonic_ns()
    with (
        log.open("wb") as kept,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if sys.stdin.isatty() else None,  # it may not read a terminal
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Python keeps output back when it writes to a pipe; on a terminal one sees it at once
            env={"PYTHONUNBUFFERED": "1", **os.environ, **environment},
            process_group=0,  # a terminal's Ctrl-C reaches us alone, and it gets one, not two
        ) as program,
        _handing_down(program) as handed,
    ):
        _pass_on(cast("BinaryIO", program.stdout), kept)
        code = program.wait()
    return Ended(
        exit_code=code if code >= 0 else _KILLED - code,
        interrupted=bool(handed),
        wall_ns=time.monotonic_ns() - begun_ns,
        tail=tail_of(log.read_bytes()),
    )


def tail_of(output: bytes) -> tuple[str, ...]:
    """The last lines of a program's output, without nsys's own and what a terminal overwrote."""
    lines = [line.rpartition("\r")[2] for line in output.decode(errors="replace").split("\n")]
    own = [line.rstrip() for line in lines if line.strip() and not line.startswith(_OF_NSYS)]
    return tuple(line for line in own if not _is_progress(line))[-TAIL_LINES:]


def _is_progress(line: str) -> bool:
    """Whether it is one of nsys's bars, `[1/1] [====100%] report.nsys-rep`, or a file it made."""
    return (line.lstrip().startswith("[") and "%" in line) or line.strip().endswith(".nsys-rep")


def _pass_on(output: BinaryIO, kept: BinaryIO) -> None:
    screen = sys.stderr.buffer if hasattr(sys.stderr, "buffer") else None
    while chunk := os.read(output.fileno(), _CHUNK_BYTES):
        kept.write(chunk)
        kept.flush()
        if screen is not None:
            screen.write(chunk)
            screen.flush()


@contextmanager
def _handing_down(program: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Hand SIGINT and SIGTERM to the program's group meanwhile; yields the ones that were."""
    handed: list[int] = []

    def hand_down(number: int, _frame: FrameType | None) -> None:
        handed.append(number)
        if program.poll() is None:
            os.killpg(program.pid, number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, hand_down)
    try:
        yield handed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
