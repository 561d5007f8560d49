"""A line of a program, as reports spell it: `train.py:42 in step`."""

import re
from dataclasses import dataclass
from typing import Final, Self

_SPELLED: Final = re.compile(r"(?P<file>.+?):(?P<number>\d+)(?: in (?P<function>.*))?")


@dataclass(frozen=True)
class SourceLine:
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
        found = _SPELLED.fullmatch(text)
        if found is None:
            return None
        return cls(found["file"], int(found["number"]), found["function"] or "")
