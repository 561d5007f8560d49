"""The last lines of a program's output, without those of nsys and torchrun."""

import re
from typing import Final

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
