"""Files and folders that appear whole or not at all: written beside, then renamed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_PREFIX = ".nsysflow-"


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A free path, on the same disk, for the block to make; afterwards it is renamed to `path`.

    A file or a link at `path` is replaced, a folder only if it is empty. If the block fails,
    nothing of it is left and `path` stays as it was.

    Raises:
        OSError: something cannot be written or renamed.
    """
    with _scratch_folder(path.parent) as folder:
        scratch = folder / path.name
        yield scratch
        scratch.replace(path)


@contextmanager
def staged_file(file: Path) -> Iterator[Path]:
    """The same for a file. A link stays a link: the file that it points to is replaced.

    Anything else than a regular file (a pipe, /dev/stdout, /dev/null) is itself yielded: a rename
    would put a file in its place.

    Raises:
        OSError: the file cannot be written.
    """
    if file.exists() and not file.is_file():
        yield file
        return
    with staged(file.resolve()) as scratch:
        yield scratch


@contextmanager
def staged_folder(folder: Path, *, last: str = "", stale: Sequence[str] = ()) -> Iterator[Path]:
    """A scratch folder whose files become those of `folder`.

    A new folder appears by one rename. In a folder that exists, each file replaces the one of its
    name and others stay; so `folder` may be a link or a mount point.

    Args:
        folder: where the files go.
        last: the file that is moved last, so that it is there only when all others are.
        stale: files that are removed from a folder that exists, unless they were written anew.

    Raises:
        OSError: the files cannot be written; then `folder` is as it was.
    """
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with staged(folder) as scratch:
            scratch.mkdir()
            yield scratch
        return
    with _scratch_folder(folder) as scratch:
        yield scratch
        made = sorted(scratch.iterdir(), key=lambda file: (file.name == last, file.name))
        for file in made:
            if (folder / file.name).is_dir():
                raise IsADirectoryError(None, f"{file.name} there is a folder")
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        for file in made:
            file.replace(folder / file.name)


@contextmanager
def _scratch_folder(parent: Path) -> Iterator[Path]:
    with TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
