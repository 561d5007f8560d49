"""A spinner for work that takes more than a second."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

_PATIENCE_S = 1.0


@contextmanager
def progress(label: str) -> Iterator[None]:
    """Show `label` on stderr while the block runs, from its second second on.

    Only on a terminal, and not with NO_COLOR: a spinner is made of escape codes.
    """
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(label)
    timer = Timer(_PATIENCE_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()
