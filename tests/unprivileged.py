"""Tests of permissions that also work for root, who may read and write everything."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[Path]:
    """A folder that belongs to `nobody`; if we are root, the block runs as `nobody`."""
    folder = Path(mkdtemp(prefix="nsysflow-"))  # not pytest's, which only root may enter
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
