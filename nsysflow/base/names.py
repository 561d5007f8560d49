"""Names as people see them: of reports, of ranks, of source lines."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

NAMELESS: Final = "(nameless)"
"""What is shown of a range, call or function that a report does not name."""

OUTSIDE: Final = "(outside ranges)"
"""The name of the place where no range is open."""

NOT_RECORDED: Final = "(not recorded)"
"""The place of idle time with the cause `unknown`."""

FOLDER_ENDING: Final = ".nsysflow"
"""`analyze` adds it to a report's file name, for the folder that it writes."""

HTML_FILE: Final = "report.html"
"""The page in that folder, where it was asked for."""

CAPTURES: Final = "capture_traces"
"""The folder with traces of the captures of CUDA graphs, beside those of their replays."""

SLURM: Final = "slurm"
"""What is typed instead of the address of a scheduler, for workers that Slurm starts."""

_SUFFIXES: Final = re.compile(
    r"(\.sqlite3?|\.db|\.pftrace|\.perfetto-trace|(\.pt)?(\.trace)?\.json|\.nsys-rep|\.qdrep|\.pickle|\.pkl)?(\.xz|\.gz|\.zst)?$"
)
_RANK: Final = re.compile(r"(?i)[-_.]?rank\D?\d+")


def report_name(path: Path) -> str:
    """A report's name in tables: the file name without known suffixes."""
    name = path.name or path.resolve().name
    return _SUFFIXES.sub("", name, count=1) or name


def capture_files(folder: Path) -> list[Path]:
    """The files of captures that lie beside the traces in a folder."""
    captures = folder / CAPTURES
    files = captures.glob("*.json*") if captures.is_dir() else ()
    return sorted(file for file in files if file.is_file())


def distinct_names(names: Sequence[str], files: Sequence[Path]) -> list[str]:
    """The names, each with as many of its file's folders as it takes to make them differ."""
    distinct = list(names)
    for depth in range(1, max((len(file.parts) for file in files), default=0)):
        if len(set(distinct)) == len(distinct):
            break
        folders = ["/".join(file.parent.parts[-depth:]) for file in files]
        distinct = [f"{folder}/{name}" for folder, name in zip(folders, names, strict=True)]
    return distinct


def has_rank(name: str) -> bool:
    """Whether a name says which rank of a run a report is of."""
    return _RANK.search(name) is not None


def are_named_as_ranks(names: Sequence[str]) -> bool:
    """Whether all names have a `rank` with a number, or differ only in one number that counts up
    from 0: `report.0`, `report.1`, … as a launcher numbers them, but not nsys's own `report1`,
    `report2`, which are one run each."""
    if all(has_rank(name) for name in names):
        return True
    parts = [re.split(r"(\d+)", name) for name in names]
    if len({len(each) for each in parts}) > 1:
        return False
    differing = [each for each in zip(*parts, strict=True) if len({*each}) > 1]
    if len(differing) != 1 or not all(each.isdecimal() for each in differing[0]):
        return False
    return sorted(map(int, differing[0])) == list(range(len(names)))


def without_rank(name: str) -> str:
    """The name that all ranks of a run have in common."""
    return _RANK.sub("", name)


def some_of(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are: `rank3, rank7 and 12 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


IN_FUNCTION: Final = r"(:\d+) in .*$"
"""How a line's function is spelled behind it. That of a notebook's cell is `<cell line: 3>`."""

_SPELLED: Final = re.compile(r"(?P<file>.+?):(?P<number>\d+)(?: in (?P<function>.*))?")


class SourceLine(NamedTuple):
    """A line of a program.

    Attributes:
        file: with as many folders as tell it from the program's other files.
        number: from 1.
        function: around it; empty where a report does not say.
    """

    file: str
    number: int
    function: str

    @classmethod
    def of(cls, text: str) -> Self | None:
        """The line that a report spells so; None for any other text."""
        match = _SPELLED.fullmatch(text)
        if match is None:
            return None
        return cls(match["file"], int(match["number"]), match["function"] or "")


_LINE: Final = 100
"""So many letters of a name fit into a line of a page."""


def one_line(name: str) -> str:
    """A name as sentences and headings show it: some are whole dictionaries, and are cut in the
    middle."""
    return name if len(name) <= _LINE else f"{name[: _LINE // 2 - 1]}…{name[-_LINE // 2 :]}"


def printable(text: str) -> str:
    """The text without line breaks and escapes: names come from the profiled program, and must not
    control a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "·" for letter in text)


CONTROLS: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
"""Letters that control a terminal; tabs and line breaks do not."""


def uncontrolled(text: str) -> str:
    """The text without letters that control a terminal, each replaced by one; lines stay lines."""
    return re.sub(CONTROLS, "·", text)


CSV_FORMULA: Final = r"^('*[=+\-@\t])"
"""How a text begins that a spreadsheet takes for a formula, or one that is marked as text."""


def csv_text(text: str) -> str:
    """A text as a cell of CSV: with an apostrophe before what a spreadsheet would take for a
    formula, and without letters that control a terminal."""
    return re.sub(CSV_FORMULA, r"'\1", uncontrolled(text))


def from_csv(cell: str) -> str:
    """The text of such a cell."""
    return re.sub(r"^'(?='*[=+\-@\t])", "", cell)


def printable_json(text: str) -> str:
    """JSON with the letters that control a terminal as `\\u009b`, which reads the same. JSON itself
    demands that only of those below a space."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_CONTROLS: Final = re.compile(r"[\x7f-\x9f]")
