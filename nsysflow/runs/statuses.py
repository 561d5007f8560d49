"""What a run's processes left in its folder: their statuses, and word of the annotation."""

import json
from contextlib import suppress
from pathlib import Path

from nsysflow.runs.decode import decode
from nsysflow.runs.manifest import Annotation
from nsysflow.runtime.child_status import FILES, ChildStatus
from nsysflow.runtime.inject.nsysflow_hook import ANNOTATED, HOOKED, NOT_ANNOTATED


def read_statuses(folder: Path) -> dict[Path, ChildStatus]:
    """The statuses that now lie in the run's folder, by file.

    A file that cannot be understood is left out: the run is worth more than what one process says.

    Raises:
        OSError: a file cannot be read.
    """
    found = {}
    for file in folder.glob(FILES):
        with suppress(ValueError):
            found[file] = decode(ChildStatus, json.loads(file.read_text(encoding="utf-8")))
    return found


def take_statuses(folder: Path) -> list[ChildStatus]:
    """The statuses in the run's folder, by rank and process id; their files are removed.

    Raises:
        OSError: a file cannot be read or removed.
    """
    found = read_statuses(folder)
    for file in found:
        file.unlink()
    return sorted(found.values(), key=lambda status: (status.rank or 0, status.pid))


def take_annotation(folder: Path) -> Annotation:
    """What became of the annotation; the files that say so are removed.

    Raises:
        OSError: a file cannot be read or removed.
    """
    hooked, torch, problem = (_taken(folder / name) for name in (HOOKED, ANNOTATED, NOT_ANNOTATED))
    return Annotation(hooked=hooked is not None, torch=torch is not None, problem=problem)


def _taken(file: Path) -> str | None:
    """The text of a file, which is then removed; None if it does not exist."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    file.unlink()
    return text
