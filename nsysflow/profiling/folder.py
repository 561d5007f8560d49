"""A run's directory: what is in it, and when it may be written."""

from pathlib import Path
from typing import Final

from nsysflow.errors import OutputError

LOG: Final = "output.log"
MANIFEST: Final = "manifest.json"

_OURS: Final = (
    LOG,
    MANIFEST,
    "*.nsys-rep",
    "*.qdstrm",
    "*.sqlite",
    "*.pt.trace.json.gz",
    "told-*.json",
)
"""What a run leaves besides the files of the analysis, which replaces its own."""


def make_run_folder(folder: Path, *, force: bool) -> None:
    """Make the directory, or empty it of an earlier run's files.

    Raises:
        OutputError: something is there and `force` is not given, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not force:
            msg = (
                f"{folder} exists and is not empty; nothing was run. Name another directory with"
                " -o DIR, or replace an earlier run with --force"
            )
            raise OutputError(msg)
        for pattern in _OURS:
            for file in folder.glob(pattern):
                file.unlink()
        (folder / LOG).touch()
    except FileExistsError:
        msg = f"{folder} is a file, not a directory; nothing was run. Name another with -o DIR"
        raise OutputError(msg) from None
    except OSError as error:
        msg = (
            f"{folder} cannot be written: {error.strerror}; nothing was run. Name another"
            " directory with -o DIR"
        )
        raise OutputError(msg) from error
