"""Temporary folders for what is unpacked, exported or packed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nsysflow.base.atomic import scratch_folder
from nsysflow.base.errors import OutputError


@contextmanager
def temporary_folder(shown: str, done: str) -> Iterator[Path]:
    """A folder in which a report is worked on; it is removed afterwards.

    Args:
        shown: the report's name in messages.
        done: what is done with it, e.g. `unpacked`.

    Raises:
        OutputError: there is no place for it.
    """
    with ExitStack() as held:
        try:
            folder = held.enter_context(scratch_folder())
        except OSError as error:
            raise no_temporary(shown, done, f"cannot be written ({error.strerror})") from error
        yield folder


def no_temporary(shown: str, done: str, why: str) -> OutputError:
    """The error where temporary files find no place."""
    return OutputError(
        f"{shown} cannot be {done}: the folder for temporary files {why}",
        "Name another with room",
        "export TMPDIR=FOLDER",
    )
