"""A spinner for work that takes long enough to wonder."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

_PATIENCE_S = 1.0


@contextmanager
def progress(label: str) -> Iterator[None]:
    """Show `label` on stderr while the block runs: on a terminal, and only after a second."""
    if not sys.stderr.isatty():
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
