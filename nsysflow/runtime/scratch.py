"""Files that appear whole: written under a scratch name, then renamed."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_file(folder: Path, suffix: str) -> Iterator[Path]:
    """A free path in `folder` for the block to write and rename; removed if it is still there."""
    path = folder / f".nsysflow-{os.getpid()}-{threading.get_ident()}{suffix}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
