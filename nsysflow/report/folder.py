"""An output folder that is there whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nsysflow.errors import OutputError

MARK = "report.json"
"""A folder that holds this file is one of ours, to be replaced without asking."""


def check_folder(folder: Path, *, force: bool) -> None:
    """Refuse a folder that is not ours or cannot be written, before any work is done for it.

    Raises:
        OutputError: something else is there, or the folder in which it would be is not writable.
    """
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if _seen(each))
    exists = there == folder.absolute()
    if exists and not folder.is_dir():
        msg = f"{folder} is a file; name another folder with -o DIR"
        raise OutputError(msg)
    effective = os.access in os.supports_effective_ids
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=effective):
        raise _unwritten(folder, f"{there} is no folder that one may write into")
    if exists and not (folder / MARK).is_file() and not force:
        msg = (
            f"{folder} exists and holds no {MARK}, so nsysflow did not write it; nothing was"
            " written. Name another folder with -o DIR, or write into this one with --force"
        )
        raise OutputError(msg)


def _seen(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # what lies in a folder that one may not enter
        return False


@contextmanager
def staged(folder: Path, *, optional: Sequence[str] = ()) -> Iterator[Path]:
    """A scratch folder whose files become `folder`'s when the block ends well.

    A new folder appears by one rename. Into one that exists each file is moved over its older
    self: what is not ours in it stays (a run's folder holds its report too), and a folder that is a
    link or a mount point can be written to.

    Args:
        folder: where the files go.
        optional: files that we do not always write: of a folder of ours an older one goes too, or
            it would stand beside what it does not belong to.

    Raises:
        OutputError: the files cannot be written; nothing of them is left.
    """
    exists = folder.is_dir()
    name = f".{folder.name}.tmp-{secrets.token_hex(4)}"
    scratch = folder / name if exists else folder.parent / name
    try:
        scratch.mkdir(parents=True)
        yield scratch
        if exists:
            older = optional if (folder / MARK).is_file() else ()
            made = sorted(scratch.iterdir(), key=lambda file: (file.name == MARK, file.name))
            for file in made:
                if (folder / file.name).is_dir():
                    raise IsADirectoryError(None, f"{file.name} there is a folder")
            for name in older:
                (folder / name).unlink(missing_ok=True)
            for file in made:
                file.replace(folder / file.name)
        else:
            scratch.rename(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def staged_file(file: Path) -> Iterator[Path]:
    """A scratch file that becomes `file` when the block ends well, or what `file` links to.

    What is no regular file (a pipe, /dev/stdout, /dev/null) is yielded itself: a rename would put a
    file in its place.

    Raises:
        OutputError: the file cannot be written; nothing of it is left.
    """
    in_place = file.exists() and not file.is_file()
    real = file if in_place else file.resolve()
    scratch = file if in_place else real.with_name(f".{real.name}.tmp-{secrets.token_hex(4)}")
    try:
        yield scratch
        if not in_place:
            scratch.replace(real)
    except OSError as error:
        raise cannot_write(file, error) from error
    finally:
        if not in_place:
            scratch.unlink(missing_ok=True)


def cannot_write(target: Path, error: OSError) -> OutputError:
    """The system's reason with what to do; polars words it without an errno."""
    return _unwritten(target, error.strerror or str(error))


def _unwritten(target: Path, reason: str) -> OutputError:
    return OutputError(
        f"cannot write {target}: {reason}; nothing was written. Make room, or choose another place"
        " with -o DIR, or look without writing with --no-files"
    )
