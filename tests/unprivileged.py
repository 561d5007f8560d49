"""Tests of permissions, for root too: root may read and write anything."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder of nobody's, and for the time of the block nobody's rights if we are root."""
    folder = Path(mkdtemp(prefix="nsysflow-"))  # not pytest's, which is root's alone
    root = os.geteuid() == 0
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)
        rmtree(folder)
