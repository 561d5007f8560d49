"""Modules that are called again with the very same input within a step.

An actor and a critic that each run the encoder they share are such a case. A look takes three
steps. In the first one we compare all calls by their input. In the other two we compare the calls
that repeat, by everything that may change a result. We read only addresses and versions, and keep
no tensor alive.
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
    calling_lines,
    drawn_numbers,
    modes_of,
    state_of,
)
from nsysflow.runtime.looks import About, Look, ModuleGroup, most_lines
from nsysflow.runtime.protocol import REPEATED_CALLS
from nsysflow.runtime.recorders import nothing
from nsysflow.runtime.regions import Repeated

_JUDGED: Final = 2
"""We judge so many steps after the first one of a look, if calls repeat in that."""

_MOST_FRAMES: Final = 12
"""We compare so many frames of two calls to see where their ways part."""

_WRAPPERS: Final = ("torch.nn.parallel.", "torch.distributed.")
"""Wrappers that count their calls, so that these never repeat."""

_NOT_RUNNING: Final = -1


class _Call:
    """A call.

    Attributes:
        given: its input.
        state: the module's state before it.
        lines: the program's lines that made it, innermost first.
    """

    def __init__(self, given: CallInput, state: Key = (), lines: tuple[str, ...] = ()) -> None:
        self.given, self.state, self.lines = given, state, lines


class _Group(ModuleGroup):
    """Modules whose calls are judged.

    Attributes:
        calls: the number of calls.
        repeated: the calls that repeat another one.
        learning: the repeated calls that have gradients.
    """

    def __init__(self, about: About, module: Any) -> None:
        super().__init__(about, module)
        self.calls, self.repeated, self.learning = 0, 0, 0
        self._steps: set[int] = set()
        self._ways: Counter[str] = Counter()

    def repeats(self, step: int, first: _Call, lines: tuple[str, ...], *, learns: bool) -> None:
        """Count a call that repeats the first one; these lines made it."""
        self.repeated += 1
        self.learning += learns
        self._steps.add(step)
        self.lines.update({*first.lines[:1], *lines[:1]})
        pairs = zip(first.lines, lines)
        self._ways.update(next((pair for pair in pairs if pair[0] != pair[1]), ()))

    def is_sure(self) -> bool:
        """Whether calls repeat in each judged step."""
        return len(self._steps) >= _JUDGED

    def row(self, of: int) -> Repeated:
        """Their row in the mark; `of` is the number of weights of all outermost modules."""
        counts = _JUDGED, self.calls, self.repeated, self.learning
        return (*self.head(of), *counts, most_lines(self.lines), most_lines(self._ways))


class Repeats(Look):
    """Finds calls that repeat another one of their step.

    Both calls have the same input and modes. The input is there all the time, the module's state
    does not change, and the later call draws no random numbers. With gradients on, no backward pass
    ends between the two.

    Attributes:
        passes: the number of backward passes that ended during looks.
        replays: the number of CUDA graphs launched. They write to memory, and change no version.
    """

    kind = REPEATED_CALLS

    def __init__(self) -> None:
        super().__init__()
        self.passes = self.replays = 0

    def _end(self) -> None:
        super()._end()
        self._judging = self._repeating = False
        self._seen: dict[Key, _Call] = {}
        self._found: dict[int, weakref.ref[Any]] = {}
        self._groups: dict[About, _Group] = {}

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
        core = self._torch._C
        if core._current_graph_task_id() != _NOT_RUNNING:
            return None  # checkpoints call modules again in a backward pass
        if self._repeating or core._get_tracing_state() is not None or not self._compares(module):
            return None
        again = self._compared(module, (args, kwargs))
        return again and partial(self._repeated, again)

    def _repeated(self, again: Callable[[], None]) -> None:
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
        """What to call at the end of a call that repeats another one; None for others."""
        group = None
        if self._judging:
            group = self._group_of(module, self._groups, _Group)
            group.calls += 1
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

    def _judge(
        self, group: _Group, module: Any, first: _Call, lines: tuple[str, ...], drawn: Key
    ) -> None:
        """Count a call that has ended and seemed to repeat the first one."""
        if drawn_numbers(self._torch) == drawn and state_of(module) == first.state:
            learns = self._torch.is_grad_enabled() and any(
                one.requires_grad for one in module.parameters()
            )
            group.repeats(self._step, first, lines, learns=learns)


REPEATS: Final = Repeats()
