"""The folder that an nsys runs from, and what is in it."""

import re
from pathlib import Path
from typing import Final

_CUPTI: Final = re.compile(r"libcupti\.so\.(\d+)\.(\d+)$")
_NAMED_IN_SCRIPT: Final = re.compile(r"(/[^\s\"']+/nsys)\b")
_SCRIPT_CHARACTERS: Final = 1 << 16


def target_folder(path: Path) -> Path | None:
    """The folder that the nsys at `path` runs from, `…/target-linux-x64`; None if unknown.

    Links and launcher scripts are followed.
    """
    real = path.resolve()
    if is_script(real):
        with real.open(encoding="utf-8", errors="replace") as file:
            named = map(Path, _NAMED_IN_SCRIPT.findall(file.read(_SCRIPT_CHARACTERS)))
        real = next((program.resolve() for program in named if program.is_file()), real)
    if real.parent.name.startswith("target-linux"):
        return real.parent
    return next(real.parent.parent.glob("target-linux-*"), None)  # for …/bin/nsys


def newest_cupti(target: Path) -> tuple[int, int] | None:
    """The newest CUDA version of a target folder's CUPTI libraries, as (major, minor)."""
    found = (_CUPTI.search(file.name) for file in target.glob("libcupti.so.*"))
    return max(((int(at[1]), int(at[2])) for at in found if at is not None), default=None)


def is_script(path: Path) -> bool:
    """Whether a file begins like a script."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def by_version(path: Path) -> list[int]:
    """A key that sorts 2025.10.1 after 2025.3.1."""
    return [int(number) for number in re.findall(r"\d+", str(path))]
