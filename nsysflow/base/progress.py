"""How far some work is: shown on stderr after a second, on a terminal that wants it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress as Display

_PATIENCE_S: Final = 1.0


class Progress:
    """What work tells of itself while it runs. This one shows nothing."""

    def expect(self, pieces: int) -> None:
        """So many more pieces of work are to come."""

    def done(self, pieces: int = 1) -> None:
        """So many pieces are done; any thread may say so."""

    def stage(self, label: str) -> None:
        """What is being done from now on."""


SILENT: Final = Progress()


class _Bar(Progress):
    """A bar that fills; one that goes to and fro until it is known how many pieces come."""

    def __init__(self, display: "Display", label: str) -> None:
        self._display = display
        self._task = display.add_task(label, total=None)
        self._expected = 0

    def expect(self, pieces: int) -> None:
        self._expected += pieces
        self._display.update(self._task, total=self._expected)

    def done(self, pieces: int = 1) -> None:
        self._display.advance(self._task, pieces)

    def stage(self, label: str) -> None:
        self._display.update(self._task, description=label)


@contextmanager
def progress(label: str) -> Iterator[Progress]:
    """Show `label` on stderr while the block runs, from its second second on, with a bar.

    Only on a terminal, and not with NO_COLOR: a bar is made of escape codes.
    """
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Display

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
    display = Display(*columns, console=Console(stderr=True), transient=True)
    timer = Timer(_PATIENCE_S, display.start)
    timer.daemon = True
    timer.start()
    try:
        yield _Bar(display, label)
    finally:
        timer.cancel()
        timer.join()
        display.stop()
