"""Modules that are called again with the very same input within a step.

As where an actor and a critic each run the encoder that they share. A few steps are looked at:
in the first one all calls are compared by their input, in those after it the ones that repeat, with
all that may change a result. Only addresses and versions are read, and no tensor lives longer.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, Final

from nsysflow.runtime.calls import (
    CallInput,
    Key,
    drawn_numbers,
    modes_of,
    state_of,
    weights_of,
)
from nsysflow.runtime.looks import Look
from nsysflow.runtime.places import LETTERS, calling_lines, class_of, place_of, unwrapped
from nsysflow.runtime.protocol import REPEATED_CALLS
from nsysflow.runtime.recorders import nothing
from nsysflow.runtime.regions import Repeated

_JUDGED: Final = 2
"""So many steps are looked at after the first one of a look, if calls repeat in that."""

_MOST_LINES: Final = 3
"""A row has so many lines."""

_MOST_FRAMES: Final = 12
"""So far up the stack it is seen where the ways to two calls part."""

_WRAPPERS: Final = ("torch.nn.parallel.", "torch.distributed.")
"""Modules that count their calls, around one that does not."""

_NOT_RUNNING: Final = -1


class _Call:
    """A call in a step that is judged.

    Attributes:
        given: its input.
        state: what the module held before it.
        lines: those of the program that made it, innermost first.
    """

    def __init__(self, given: CallInput, state: Key = (), lines: tuple[str, ...] = ()) -> None:
        self.given, self.state, self.lines = given, state, lines


class _Group:
    """The modules of a class in those of another one, and their calls in the steps judged.

    Attributes:
        about: the class, the one around it, and the range of its calls.
        calls: how many.
        repeated: those that repeat another one, …
        learning: … and have gradients.
    """

    def __init__(self, about: tuple[str, str, str], module: Any) -> None:
        self.about = about
        self.calls, self.repeated, self.learning = 0, 0, 0
        self._place = place_of(type(unwrapped(module)))
        self._weights: dict[int, int] = {}
        self._steps: set[int] = set()
        self._lines: Counter[str] = Counter()
        self._ways: Counter[str] = Counter()

    def called(self, module: Any) -> None:
        """Count a call."""
        self.calls += 1
        if id(module) not in self._weights:
            self._weights[id(module)] = weights_of(module)

    def repeats(self, step: int, first: _Call, lines: tuple[str, ...], *, learns: bool) -> None:
        """Count a call, which these lines made, that repeats a first one."""
        self.repeated += 1
        self.learning += learns
        self._steps.add(step)
        self._lines.update({*first.lines[:1], *lines[:1]})
        pairs = zip(first.lines, lines)
        self._ways.update(next((pair for pair in pairs if pair[0] != pair[1]), ()))

    @property
    def weights(self) -> int:
        """How many all of them have."""
        return sum(self._weights.values())

    def is_sure(self) -> bool:
        """Whether calls repeat in each step that was judged."""
        return len(self._steps) >= _JUDGED

    def row(self, of: int) -> Repeated:
        """What is noted of them; `of` is how many weights all modules with such ranges have."""
        name, outermost, phase = (word[:LETTERS] for word in self.about)
        places = [self._place] if self._place else []
        counts = self.weights, of, _JUDGED, self.calls, self.repeated, self.learning
        ways = [line for line, _ in self._ways.most_common(_MOST_LINES)]
        lines = [line for line, _ in self._lines.most_common(_MOST_LINES)]
        return (name, outermost, phase, places, *counts, lines, ways)


class Repeats(Look):
    """Looks for calls that repeat others, in a few steps.

    A call repeats another one of its step if it has the same input, which was there all the time,
    in the same modes, what the module holds does not change, and it draws no random numbers.
    Where gradients are on, no backward pass lies between the two.

    Attributes:
        passes: how many backward passes have ended while it looked.
        replays: how many CUDA graphs were launched, which write to memory unnoticed.
    """

    kind = REPEATED_CALLS

    def __init__(self) -> None:
        super().__init__()
        self.passes = self.replays = 0

    def _end(self) -> None:
        super()._end()
        self._judging = self._inside = self._repeating = False
        self._around = "", ""
        self._seen: dict[Key, _Call] = {}
        self._found: dict[int, weakref.ref[Any]] = {}
        self._groups: dict[tuple[str, str, str], _Group] = {}

    def _go_on(self, age: int) -> None:
        self._seen = {}
        if self.looking and (age > _JUDGED or not self._found):
            groups = [one for one in self._groups.values() if one.is_sure()]
            groups.sort(key=lambda one: -one.weights * one.repeated)
            self._note([one.row(self._weights_in(one.about[2])) for one in groups])
            self._end()
        elif self.looking:
            self._judging = True

    def _enter(
        self, module: Any, args: Any, kwargs: Any, phase: str
    ) -> Callable[[], object] | None:
        """What to call after a call: only where it is outermost or repeats another one."""
        core = self._torch._C
        if core._current_graph_task_id() != _NOT_RUNNING:
            return None  # checkpoints call modules again in a backward pass
        outermost = not self._inside
        if outermost:
            self._inside, self._around = True, (class_of(module), phase)
            self._know(module, phase)
        again = None
        if not self._repeating and core._get_tracing_state() is None and self._compares(module):
            with core.DisableTorchFunction():
                again = self._compared(module, (args, kwargs))
        if not outermost and again is None:
            return None
        return partial(self._safely, self._left, outermost, again)

    def _left(self, outermost: bool, again: Callable[[], None] | None) -> None:
        if outermost:
            self._inside = False
        if again is not None:
            self._repeating = False
            again()

    def _compares(self, module: Any) -> bool:
        if self._judging:
            found = self._found.get(id(module))
            return found is not None and found() is module
        if type(module).__module__.startswith(_WRAPPERS):
            return False
        return next(module.parameters(), None) is not None

    def _compared(self, module: Any, given: Any) -> Callable[[], None] | None:
        """What to call after a call that repeats another one; None for any other."""
        group = self._group_of(module) if self._judging else None
        try:
            read = CallInput(self._torch, given)
            if not read.have_versions:
                return None
            passes = self.passes if self._torch.is_grad_enabled() else None
            modes = modes_of(self._torch, module)
            key = id(module), read.key, self.replays, passes, *modes
            first = self._seen.get(key)
            repeats = first is not None and first.given.is_unchanged()
            state = state_of(module) if group else ()
            drawn = drawn_numbers(self._torch) if group and repeats else ()
        except Exception:  # tensors of other kinds
            return None
        lines = tuple(islice(calling_lines(), _MOST_FRAMES)) if group else ()
        if first is None or not repeats or first.state != state:
            self._seen[key] = _Call(read, state, lines)
            return None
        self._repeating = True
        if group is None:
            self._found[id(module)] = weakref.ref(module)
            return nothing
        return partial(self._judge, group, module, first, lines, drawn)

    def _group_of(self, module: Any) -> _Group:
        about = class_of(module), *self._around
        group = self._groups.get(about)
        if group is None:
            group = self._groups[about] = _Group(about, module)
        group.called(module)
        return group

    def _judge(
        self, group: _Group, module: Any, first: _Call, lines: tuple[str, ...], drawn: Key
    ) -> None:
        """A call has ended that seemed to repeat a first one."""
        if drawn_numbers(self._torch) == drawn and state_of(module) == first.state:
            learns = self._torch.is_grad_enabled() and any(
                one.requires_grad for one in module.parameters()
            )
            group.repeats(self._step, first, lines, learns=learns)


REPEATS: Final = Repeats()
