"""Files and folders that appear whole or not at all: written beside, then renamed.

What is written lies in a scratch folder that its process keeps locked. A process that is killed
leaves its folder, and the next one that writes there removes it: on disks without locks (some on
the network) once the process that the folder's name tells is gone. Folders of other machines, and
of other containers on disks without locks, stay for a week.
"""

import fcntl
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

_SCRATCH: Final = re.compile(r"\.nsysflow-scratch-([0-9a-f]{8})-(\d+)-(\d{1,9})-\w+")
"""Its parts are the machine, the namespace of process ids in it, and the id of the process."""

_ABANDONED_S: Final = 7 * 24 * 3600
"""No process of ours lives so long. Decides where neither a lock nor the process can be seen."""


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A free path, on the same disk, for the block to make; afterwards it is renamed to `path`.

    A file or a link at `path` is replaced, a folder only if it is empty. If the block fails,
    nothing of it is left and `path` stays as it was.

    Raises:
        OSError: something cannot be written or renamed.
    """
    with scratch_folder(path.parent) as folder:
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
    with scratch_folder(folder) as scratch:
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
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A private folder in `parent`, or where temporary files go; it is removed afterwards.

    Those that killed processes left there are removed, too.

    Raises:
        OSError: it cannot be made.
    """
    where = parent or Path(gettempdir())
    remove_leftovers(where)
    with ExitStack() as held:
        yield _make_scratch(where, held)


def remove_leftovers(parent: Path) -> None:
    """Remove the scratch folders in `parent` whose processes are gone."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if (made := _SCRATCH.fullmatch(entry.name)) is not None:
                with suppress(OSError):  # another process removes it too
                    _remove_leftover(Path(entry), made)


def _make_scratch(where: Path, held: ExitStack) -> Path:
    prefix = f".nsysflow-scratch-{_machine()}-{_namespace()}-{os.getpid()}-"
    while True:
        made = TemporaryDirectory(prefix=prefix, dir=where, ignore_cleanup_errors=True)
        folder = Path(held.enter_context(made))
        with suppress(OSError):  # a disk without locks
            held.callback(os.close, _locked(folder, fcntl.LOCK_SH))
        if folder.exists():  # else another process took it for a leftover before it was locked
            return folder


def _remove_leftover(folder: Path, name: re.Match[str]) -> None:
    """Remove a scratch folder, unless its process may still be there.

    Raises:
        OSError: the folder is gone.
    """
    seen = folder.lstat()
    if seen.st_uid != os.geteuid():
        return
    with ExitStack() as held:
        gone = _is_gone(folder, name, held)
        if gone is None:
            gone = time.time() - seen.st_mtime > _ABANDONED_S
        if gone:
            shutil.rmtree(folder, ignore_errors=True)


def _is_gone(folder: Path, name: re.Match[str], held: ExitStack) -> bool | None:
    """Whether the process of a scratch folder is gone; None where that cannot be seen. If it is,
    nobody else locks the folder until `held` ends."""
    here = name[1] == _machine()
    try:
        held.callback(os.close, _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        comparable = here and int(name[2]) == _namespace()
        return not _is_running(int(name[3])) if comparable else None
    return here or None  # of locks on a shared disk, only this machine's are seen


def _locked(folder: Path, how: int) -> int:
    """Lock a folder until what is returned is closed.

    Raises:
        BlockingIOError: another process has locked it.
        OSError: the folder is gone, or its disk has no locks.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, how)
    except OSError:
        os.close(opened)
        raise
    return opened


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


@cache
def _namespace() -> int:
    """What a process id means: in each container, another process."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:  # another system than Linux
        return 0


@cache
def _machine() -> str:
    """This machine since it was started."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        name = platform.node()
    return blake2b(name.encode(), digest_size=4).hexdigest()
