"""The last lines of a program's output, without what nsys and torchrun add to them."""

import re
from typing import Final

TAIL_LINES: Final = 20
TAIL_COLUMNS: Final = 500

_OF_NSYS: Final = (
    "Collecting data",
    "Capture range started in the application",
    "Capture range ended in the application",
    "Generating '",
    "Generated:",
    "Processing events",
)
"""How the lines begin that nsys writes between the program's."""

_OF_TORCHRUN: Final = re.compile(
    r"^(?:[IWE]\d{4} |\[\d{4}-|(?:WARNING|ERROR):).*torch[./]distributed"
)
"""How torchrun logs, by its version: `E1120 13:07:35.127000 25651 torch/distributed/…`."""

_FAILURE: Final = re.compile(
    r"^Traceback \(most recent call last\):\n(?: [^\n]*\n)+"
    r"torch\.distributed\.elastic\.\S*ChildFailedError: *\n=+\n(?P<table>.*?)\n=+$",
    re.DOTALL | re.MULTILINE,
)
"""torchrun's own traceback and its table of failures: 30 lines and more, and the last ones."""

_FIRST: Final = re.compile(
    r"Root Cause .*? rank +: (?P<rank>\d+) .*? exitcode +: (?P<code>-?\d+) \(pid: \d+\)"
    r"(?: +\((?P<signal>\w+)\))?",
    re.DOTALL,
)

_BAR: Final = re.compile(r"\[\d+/\d+\] \[[=\d% ]*\]")

_TRACEBACK: Final = "Traceback (most recent call last)"


def tail_of(output: bytes) -> tuple[str, ...]:
    """The last lines that a program wrote, its ranks under torchrun taken together.

    What nsys and torchrun write and what a terminal overwrote are left out; of torchrun's table of
    failures one line stays: which rank was first. A traceback stays in sight although other ranks
    wrote more after it.
    """
    lines = [
        line.rpartition("\r")[2].rstrip() for line in output.decode(errors="replace").split("\n")
    ]
    text = "\n".join(lines)
    failure = _FAILURE.search(text)
    own = [line[:TAIL_COLUMNS] for line in _FAILURE.sub("", text).split("\n") if _is_own(line)]
    first = _FIRST.search(failure["table"]) if failure else None
    if first is None:
        return tuple(own[-TAIL_LINES:])
    signal = f", {first['signal']}" if first["signal"] else ""
    verdict = f"torchrun: rank {first['rank']} failed first (exit code {first['code']}{signal})"
    shown = own if signal else _with_error_in_sight(own)
    return (*shown[1 - TAIL_LINES :], verdict)


def _with_error_in_sight(lines: list[str]) -> list[str]:
    """The lines, cut off behind the last traceback where it would be out of sight: the other ranks
    go on until torchrun hears of it, which under nsys is once a report has been saved."""
    begins = max((at for at, line in enumerate(lines) if _TRACEBACK in line), default=None)
    if begins is None:
        return lines
    later = range(begins + 1, len(lines))
    error = next((at for at in later if not lines[at].startswith(" ")), len(lines) - 1)
    return lines if len(lines) - error < TAIL_LINES else lines[: error + 1]


def _is_own(line: str) -> bool:
    """Whether the program wrote it: no line of nsys's or torchrun's, and no empty one."""
    ours = line.strip() and not line.startswith(_OF_NSYS) and not _OF_TORCHRUN.match(line)
    return bool(ours) and not _is_progress(line)


def _is_progress(line: str) -> bool:
    """Whether it is one of nsys's bars, `[1/1] [====100%] report.nsys-rep`, or a file it made."""
    return bool(_BAR.match(line.lstrip())) or line.strip().endswith(".nsys-rep")
