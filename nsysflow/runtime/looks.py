"""Watching the module calls of a few early steps."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from nsysflow.runtime.calls import LETTERS, class_of, place_of, unwrapped, weights_of
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.recorders import nothing
from nsysflow.runtime.regions import note_seen

LOOKS: Final = (2, 10)
"""A look begins at these steps: soon after the start, and again later, as many programs start
differently from how they go on."""

_MOST_NOTED: Final = 8
"""We note at most so many rows."""


_MOST_LINES: Final = 3
"""We note at most so many lines of the program in a row."""

About = tuple[str, str, str]
"""A module's class, that of the outermost module around it, and the name of that one's range."""


class ModuleGroup:
    """The modules of one class within those of another one.

    Attributes:
        about: both classes, and the range.
        lines: how often each line of the program called them.
    """

    def __init__(self, about: About, module: Any) -> None:
        self.about = about
        self.lines: Counter[str] = Counter()
        self._place = place_of(type(unwrapped(module)))
        self._weights: dict[int, int] = {}

    def add(self, module: Any) -> None:
        """Add a module, perhaps one that is in the group already."""
        if id(module) not in self._weights:
            self._weights[id(module)] = weights_of(module)

    @property
    def weights(self) -> int:
        """The number of weights of all modules."""
        return sum(self._weights.values())

    def head(self, of: int) -> tuple[str, str, str, list[str], int, int]:
        """The first values of a row; `of` is the number of weights of all outermost modules."""
        name, outermost, phase = (word[:LETTERS] for word in self.about)
        places = [self._place] if self._place else []
        return name, outermost, phase, places, self.weights, of


Group = TypeVar("Group", bound=ModuleGroup)


def most_lines(lines: Counter[str]) -> list[str]:
    """The lines that occur most."""
    return [line for line, _ in lines.most_common(_MOST_LINES)]


class Look(ABC):
    """Watches module calls in a few early steps, and notes what it finds in a mark.

    The program never sees an error from here: after the first one the look stops for good.

    Attributes:
        looking: whether a look runs now. Only then does the program's wrapper call `enter`.
    """

    kind: str
    """The key of its rows in `SEEN`."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._step = self._begun = self._thread = 0
        self._noted: set[str] = set()
        self._end()

    def prepare(self, torch: Any) -> None:
        """Start in this process."""
        self._torch = torch

    def at_step(self) -> None:
        """A step of the program begins."""
        self._safely(self._at_step)

    def enter(self, module: Any, args: Any, kwargs: Any, phase: str = "") -> Callable[[], object]:
        """Watch a module call; the caller calls what this returns once the call has ended.

        Args:
            module: the module.
            args: its positional arguments.
            kwargs: its keyword arguments.
            phase: the name of the call's range; empty for a call within another one.
        """
        ended: Callable[[], object] | None = None
        if threading.get_ident() == self._thread:
            ended = self._safely(self._call, module, args, kwargs, phase)
        return nothing if ended is None else partial(self._safely, ended)

    def _call(self, module: Any, args: Any, kwargs: Any, phase: str) -> Callable[[], object] | None:
        if phase:
            self._outermost = class_of(module), phase
            known = self._weights.setdefault(phase, {})
            if id(module) not in known:
                known[id(module)] = weights_of(module)
        if not self._outermost[1]:
            return None  # the look began within a call
        with self._torch._C.DisableTorchFunction():
            ended = self._enter(module, args, kwargs, phase)
        return partial(self._outermost_ended, ended or nothing) if phase else ended

    def _outermost_ended(self, ended: Callable[[], object]) -> None:
        self._outermost = "", ""
        ended()

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
        """Call a method; stop for good if it fails."""
        try:
            return note(*args) if self._torch is not None else None
        except Exception:
            self._end()
            self._torch = None
            return None

    def _end(self) -> None:
        """End the look, and drop its state."""
        self.looking = False
        self._outermost = "", ""
        self._weights: dict[str, dict[int, int]] = {}

    @abstractmethod
    def _go_on(self, age: int) -> None:
        """A step begins, `age` steps after the first one of the last look."""

    @abstractmethod
    def _enter(
        self, module: Any, args: Any, kwargs: Any, phase: str
    ) -> Callable[[], object] | None:
        """As `enter`; None if nothing is to be called."""

    def _group_of(self, module: Any, groups: dict[About, Group], kind: type[Group]) -> Group:
        """The group of a module, a new one of this kind if there is none yet."""
        about = class_of(module), *self._outermost
        if about not in groups:
            groups[about] = kind(about, module)
        groups[about].add(module)
        return groups[about]

    def _weights_in(self, phase: str) -> int:
        """The number of weights of all outermost modules with ranges of that name."""
        return sum(self._weights[phase].values())

    def _note(self, rows: list[Any], kind: str = "") -> None:
        """Note these rows instead of earlier ones, perhaps of another kind."""
        kind = kind or self.kind
        if rows or kind in self._noted:
            note_seen(kind, rows[:_MOST_NOTED])
            (self._noted.add if rows else self._noted.discard)(kind)
