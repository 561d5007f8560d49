"""A look at the modules that a program calls in a few of its first steps."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from nsysflow.runtime.calls import weights_of
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.recorders import nothing
from nsysflow.runtime.regions import note_modules

LOOKS: Final = (2, 10)
"""With so many steps a look begins: in start-up, and once more, as programs may begin otherwise
than they go on."""

_MOST_NOTED: Final = 8
"""So many rows are noted."""


class Look(ABC):
    """What is told of calls of modules, and notes some of them.

    No error of it reaches the program: after one it looks no more.

    Attributes:
        looking: whether calls are to be told.
    """

    kind: str
    """What it notes, a key of `SEEN`."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._step = self._begun = self._thread = 0
        self._noted = False
        self._end()

    def prepare(self, torch: Any) -> None:
        """Look at this process from now on."""
        self._torch = torch

    def at_step(self) -> None:
        """A step of the program begins."""
        self._safely(self._at_step)

    def enter(self, module: Any, args: Any, kwargs: Any, phase: str = "") -> Callable[[], object]:
        """A module is called, in a look; what is returned is to be called after it.

        Args:
            module: which one.
            args: its arguments, …
            kwargs: … and those with names.
            phase: the range of the call, where it is in no other one.
        """
        left: Callable[[], object] | None = None
        if threading.get_ident() == self._thread:
            left = self._safely(self._enter, module, args, kwargs, phase)
        return left or nothing

    def _at_step(self) -> None:
        self._step += 1
        if THIS_PROCESS.recorded:
            self._end()
        elif self._step in LOOKS and THIS_PROCESS.window != "open":
            self._end()
            self.looking, self._begun, self._thread = True, self._step, threading.get_ident()
        else:
            self._go_on(self._step - self._begun)

    def _safely(self, note: Callable[..., Any], *args: Any) -> Any:
        """Call a function of ours, and none any more once one failed."""
        try:
            return note(*args) if self._torch is not None else None
        except Exception:
            self._end()
            self._torch = None
            return None

    def _end(self) -> None:
        """Forget what was seen, and look no more for now."""
        self.looking = False
        self._weights: dict[str, dict[int, int]] = {}

    @abstractmethod
    def _go_on(self, age: int) -> None:
        """Another step begins, so many after the first one of the last look."""

    @abstractmethod
    def _enter(
        self, module: Any, args: Any, kwargs: Any, phase: str
    ) -> Callable[[], object] | None:
        """A module is called; what is returned is called after it."""

    def _know(self, module: Any, phase: str) -> None:
        """Note how many weights a module has that is in no other call."""
        known = self._weights.setdefault(phase, {})
        if id(module) not in known:
            known[id(module)] = weights_of(module)

    def _weights_in(self, phase: str) -> int:
        """How many weights all modules with such ranges have."""
        return sum(self._weights[phase].values())

    def _note(self, rows: list[Any]) -> None:
        """Note the first of these rows, instead of those that were noted before."""
        if rows or self._noted:
            note_modules(self.kind, rows[:_MOST_NOTED])
            self._noted = bool(rows)
