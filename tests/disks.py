"""Small disks that are full or cannot be written, not even by root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A disk of 256 kB of its own at `folder`; where none can be mounted, the test is skipped."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "nsysflow", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program here")
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """A disk without room, which holds the file `filler`."""
    with mounted(folder) as disk:
        with pytest.raises(OSError, match="No space left"):
            (disk / "filler").write_bytes(bytes(1 << 20))
        yield disk


@contextmanager
def read_only_disk(folder: Path) -> Iterator[Path]:
    """An empty disk that cannot be written."""
    with mounted(folder) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        yield disk


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(each.name for each in folder.iterdir())
