"""What nsys prints of its progress between the lines of a program, and the output without it."""

import re
from typing import Final

SAVES: Final = re.compile(rb"Generating '[^'\n]*\.qdstrm'")
"""What nsys prints when it has all that it recorded, and begins to write the report."""

_LINES: Final = (
    b"Collecting data...",
    b"Capture range started in the application.",
    b"Capture range ended in the application.",
    b"Processing events...",
)
_SAVES_FROM: Final = b"Generating '"
_GENERATED: Final = b"Generated:"
"""The paths of the reports follow, each in an indented line."""

_BAR: Final = re.compile(rb"\[\d+/\d+\] \[[=\d% ]*\][^\n]*")
_BEGINS_BAR: Final = re.compile(rb"\[(\d+(/(\d+(\]( (\[[=\d% ]*)?)?)?)?)?)?")
_PIECE: Final = re.compile(rb"(?<=\n)|(?=\r)")
"""Where a line ends, or what a terminal overwrites; a bar is written as `\\r[1/1] [==50%] …`."""


class ProgramOutput:
    """What a program prints, without nsys's progress, as it comes.

    A piece of a line is held back only while it may become a line of nsys.
    """

    def __init__(self) -> None:
        self._held = b""
        self._lists_reports = False

    def feed(self, chunk: bytes) -> bytes:
        """What is to be shown by now, once this chunk has come."""
        *whole, last = _PIECE.split(self._held + chunk)
        # behind an unfinished line of the program
        shown = b"".join(SAVES.sub(b"", piece) for piece in whole if not self._is_progress(piece))
        if self._may_become_progress(last):
            self._held = last
            return shown
        self._held = b""
        return shown + last

    def end(self) -> bytes:
        """What was held back and is the program's: nothing more comes."""
        held, self._held = self._held, b""
        return b"" if self._is_progress(held) else held

    def _is_progress(self, piece: bytes) -> bool:
        """Whether a piece is all nsys's."""
        line = piece.strip(b"\r\n")
        if self._lists_reports and _is_path(line):
            return True
        self._lists_reports = line == _GENERATED
        return (
            self._lists_reports
            or line in _LINES
            or SAVES.fullmatch(line) is not None
            or _BAR.fullmatch(line) is not None
        )

    def _may_become_progress(self, piece: bytes) -> bool:
        begun = piece.lstrip(b"\r")
        return (
            any(line.startswith(begun) for line in (*_LINES, _SAVES_FROM, _GENERATED))
            or begun.startswith(_SAVES_FROM)
            or _BEGINS_BAR.fullmatch(begun) is not None
            or _BAR.fullmatch(begun) is not None
            or (self._lists_reports and begun[:1].isspace())
        )


def _is_path(line: bytes) -> bool:
    return line[:1].isspace() and line.endswith((b".nsys-rep", b".sqlite", b".qdstrm"))
