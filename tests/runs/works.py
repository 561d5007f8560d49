"""Functions that workers import by name."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from nsysflow.base.errors import Damaged


@dataclass(frozen=True)
class Once:
    """An item whose first worker dies.

    Attributes:
        number: the item's.
        mark: a file that the first worker leaves.
    """

    number: int
    mark: Path


def named(number: int) -> str:
    """The number as text; an odd hundred cannot be read."""
    if number >= 100 and number % 2:
        raise Damaged(f"{number} is damaged")
    return f"{number},"


def bug(number: int) -> str:
    return str([][number])


def killed_once(item: Once) -> str:
    """The number, unless nobody has died of the item yet."""
    if item.number == 3 and not item.mark.exists():
        item.mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return named(item.number)


def killed(number: int) -> str:
    """The number; 3 kills its worker every time."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return named(number)
