"""Standard output as people see it: how wide it is, and whether it takes colours."""

import os
import shutil
from typing import Final

from rich.console import Console

PIPED_WIDTH: Final = 110
"""How wide a line is where neither a terminal nor COLUMNS says so."""

_NARROWEST: Final = 40
"""A page does not fit into less; its lines run over instead."""


class _Screen(Console):
    """A console that leaves it to the caller what happens when its reader leaves."""

    def on_broken_pipe(self) -> None:
        raise  # it is called while the BrokenPipeError is handled


def console(width: int | None = None, *, markup: bool = False, soft_wrap: bool = True) -> Console:
    """Standard output: without any escape codes in a pipe, or with NO_COLOR.

    Args:
        width: how wide lines are; `line_width()` when None.
        markup: whether texts hold rich's markup.
        soft_wrap: whether longer lines stay whole.
    """
    plain = bool(os.environ.get("NO_COLOR"))
    return _Screen(
        highlight=False,
        markup=markup,
        emoji=False,
        soft_wrap=soft_wrap,
        width=width or line_width(),
        color_system=None if plain else "auto",
    )


def line_width(piped: int = PIPED_WIDTH) -> int:
    """How wide lines may be: COLUMNS, else the terminal, else `piped`."""
    return max(_NARROWEST, shutil.get_terminal_size((piped, 0)).columns)
