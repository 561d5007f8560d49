"""The status files that a run's processes left."""

import json
from contextlib import suppress
from pathlib import Path

from nsysflow.runs.decode import decode
from nsysflow.runtime.child_status import FILES, ChildStatus


def take_statuses(folder: Path) -> list[ChildStatus]:
    """The statuses in the run's folder, by rank and process id; their files are removed.

    A file that cannot be understood stays: the run is worth more than what one process says.

    Raises:
        OSError: a file cannot be read or removed.
    """
    found = []
    for file in folder.glob(FILES):
        with suppress(ValueError):
            found.append(decode(ChildStatus, json.loads(file.read_text(encoding="utf-8"))))
            file.unlink()
    return sorted(found, key=lambda status: (status.rank or 0, status.pid))
