"""Weights that get gradients which no optimizer uses.

A frozen network whose weights still require gradients takes the time of its backward pass for
nothing, as in a perceptual loss. A few steps are looked at.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from nsysflow.runtime.auto.owners import SHARED, UNUSED, Owners
from nsysflow.runtime.calls import LETTERS, calling_line, class_of, place_of, unwrapped
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import UNUSED_GRADIENTS
from nsysflow.runtime.regions import Unused, note_seen

_LOOKS: Final = (2, 10)
"""Before so many steps of the optimizer that stepped first a look begins: in start-up, and once
more, as programs may begin otherwise than they go on."""

_FEWEST_STEPS: Final = 2
"""So long a look takes at least, …"""

_FEWEST_OF_SEVERAL: Final = 4
"""… with several optimizers so long, …"""

_MOST_STEPS: Final = 12
"""… and so long at most, while it waits for optimizers that step more seldom."""

_SAMPLES: Final = 8
"""So many parameters of an optimizer tell which backward passes reach it, …"""

_MOST_NOTED: Final = 8
"""… and so many modules are noted, those with most weights."""

_MOST_LINES: Final = 3
"""So many lines that call such a module are noted."""


class _Calls:
    """Calls whose backward pass is for nothing.

    Attributes:
        whole: those of which all of it is.
        part: those of which only the gradients of the weights are.
        lines: where each was made, as `train.py:12`.
    """

    def __init__(self) -> None:
        self.whole, self.part = 0, 0
        self.lines: list[str] = []

    def add(self, other: _Calls) -> None:
        """Count others, too."""
        self.whole += other.whole
        self.part += other.part
        self.lines += other.lines

    def most_lines(self) -> list[str]:
        """The lines with most calls."""
        return [line for line, _ in Counter(self.lines).most_common(_MOST_LINES)]


class _Group:
    """Modules within one that is in no other call, all of whose gradients have the same owner.

    Attributes:
        owner: the id of the optimizer that has their parameters; `UNUSED` if none has.
        outermost: the class of the module that they are in.
        phase: the range of its calls.
        classes: theirs, those with most weights first.
        places: the file and lines of the `forward` of each such class.
        weights: how many they have.
        of: how many weights all modules with such a range have.
        states: of each parameter itself, its version, and that of its gradient.
        single: whether it is one module. Several count once for a call that they are in.
        calls: how many.
        for_nothing: those whose backward pass is for nothing, if all gradients are, …
        since: … those since the last backward pass that reached them, …
        thrown_calls: … and those whose gradients were thrown away.
        thrown: backward passes whose gradients were.
        judged: how often gradients were seen to be added to, and nothing else.
        wrong: whether something else was seen.
    """

    def __init__(self, owner: int, outermost: Any, phase: str, modules: list[Any]) -> None:
        self.owner, self.phase = owner, phase
        self.outermost = class_of(outermost)
        weights: dict[type, int] = {}
        parameters: dict[int, Any] = {}
        for module in modules:
            kind = type(unwrapped(module))
            for parameter in module.parameters():
                parameters[id(parameter)] = parameter
                weights[kind] = weights.get(kind, 0) + parameter.numel()
        classes = sorted(weights, key=lambda kind: -weights[kind])
        self.classes = [kind.__name__ for kind in classes]
        self.places = [place for kind in classes[:3] if (place := place_of(kind))]
        self.weights, self.of = sum(weights.values()), 0
        self.states = {
            key: (weakref.ref(one), one._version, _gradient(one))
            for key, one in parameters.items()
            if one.requires_grad
        }
        self.single = len(modules) == 1
        self.calls, self.thrown = 0, 0
        self.for_nothing, self.since, self.thrown_calls = _Calls(), _Calls(), _Calls()
        self.judged, self.wrong = 0, False
        self._said, self._line = 0, ""

    def called(self, *, judged: bool, needed: bool) -> None:
        """Count a call.

        Args:
            judged: whether a backward pass may follow it.
            needed: whether its input needs a gradient, so that only those of weights may go.
        """
        self.calls += 1
        self._said, self._line = 0, calling_line()
        if judged:
            self.within(needed=needed)

    def within(self, *, needed: bool) -> None:
        """Note a call of one of several: one that needs a gradient decides."""
        if self._said >= 1 + needed:
            return
        for calls in (self.for_nothing, self.since):
            if self._said:
                calls.whole -= 1
            else:
                calls.lines.append(self._line)
            calls.whole += not needed
            calls.part += needed
        self._said = 1 + needed

    def judge(self, runs: int) -> None:
        """See whether gradients were only added to, at most once in each of these backward passes.
        What an own optimizer uses it clears, and what it changes has another version."""
        added = False
        for key, (ref, version, (gradient, before)) in self.states.items():
            parameter = ref()
            if parameter is None or parameter._version != version:
                self.wrong = True
                return
            now, after = _gradient(parameter)
            if now != gradient or not before <= after <= before + runs:
                self.wrong = True
                return
            added = added or after > before
            self.states[key] = (ref, version, (now, after))
        self.judged += added

    def row(self, steps: int) -> Unused:
        """What is noted of them."""
        calls = self.for_nothing if self.owner == UNUSED else self.thrown_calls
        whole, part, thrown = calls.whole, calls.part, 0
        if self.owner != UNUSED:
            # the first pass of a look, or the last, may not be seen to be thrown away
            thrown = round(self.thrown / steps) * steps or self.thrown
            whole, part = (round(one / self.thrown * thrown) for one in (whole, part))
        words = ", ".join(self.classes[:3]), self.outermost, self.phase
        name, outermost, phase = (word[:LETTERS] for word in words)
        about = name, outermost, phase, self.places, self.weights, self.of
        return (*about, steps, self.calls, whole, part, thrown, calls.most_lines())


def _gradient(parameter: Any) -> tuple[int, int]:
    """Which gradient a parameter has, and its version: no reference to it is kept."""
    gradient = parameter.grad
    return (0, 0) if gradient is None else (id(gradient), gradient._version)


def _wants_gradient(values: Any, depth: int = 3) -> bool:
    """Whether a tensor among the arguments of a call requires a gradient."""
    if isinstance(values, dict):
        values = tuple(values.values())
    if isinstance(values, (list, tuple)):
        return depth > 0 and any(_wants_gradient(value, depth - 1) for value in values)
    return bool(getattr(values, "requires_grad", False))


class _Pass:
    """A backward pass: which optimizers stepped with it, and calls before it of the groups that it
    reached."""

    def __init__(self) -> None:
        self.read_by: set[int] = set()
        self.calls: dict[int, _Calls] = {}


class _Reached:
    """The backward passes whose gradients an optimizer has and did not step with."""

    def __init__(self, optimizer: Any) -> None:
        own = [p for p in _parameters(optimizer) if p.requires_grad and p.is_leaf]
        every = max(1, len(own) // _SAMPLES)
        self._samples = [weakref.ref(one) for one in own[::every]]
        self.states = self.now()
        self.passes: list[_Pass] = []
        self.steps = 0
        self.doubtful = False

    def now(self) -> list[tuple[int, int, int]]:
        """The versions of the samples, and their gradients."""
        found = [ref() for ref in self._samples]
        return [(-1, 0, 0) if one is None else (one._version, *_gradient(one)) for one in found]

    def gets_gradients(self) -> bool:
        """Whether gradients changed since the last event."""
        before, self.states = self.states, self.now()
        return [one[1:] for one in before] != [one[1:] for one in self.states]


def _parameters(optimizer: Any) -> list[Any]:
    return [one for group in optimizer.param_groups for one in group["params"]]


class Gradients:
    """Looks for gradients that no optimizer uses, in a few steps.

    Nothing is launched, and no tensor lives longer. Nothing is said of gradients that are cleared
    by others than optimizers and modules, and of parameters that change: an optimizer that is none
    of torch's may use them.

    Attributes:
        noting: whether modules that are in no other call are noted.
        watched: by id what calls of a module count for, and how; empty between looks.
        is_grad_enabled: torch's.
    """

    def __init__(self) -> None:
        self.noting = False
        self.is_grad_enabled: Callable[[], bool] = bool
        self.watched: dict[int, list[tuple[_Group | None, int]]] = {}
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._leader: weakref.ref[Any] | None = None
        self._called: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._groups: list[_Group] = []
        self._reached: dict[int, _Reached] = {}
        self._steps = self._begun = self._runs = 0
        self._noted: list[_Group] = []
        self._needed = self._over = False

    def safely(self, note: Callable[..., None], *args: Any) -> None:
        """Call a function of ours, and none any more once one failed: no error of it may reach the
        program."""
        try:
            if not self._over:
                note(*args)
        except Exception:
            self._end()
            self._over = True

    def made(self, optimizer: Any) -> None:
        """An optimizer was made: it may use gradients of which the opposite was noted."""
        self._optimizers.add(optimizer)
        self.noting = self.noting or not self._steps
        own = {id(one) for one in _parameters(optimizer)}
        kept = [one for one in self._noted if own.isdisjoint(one.states)]
        if len(kept) < len(self._noted):
            self._note(kept, _FEWEST_STEPS)

    def outermost(self, module: Any, phase: str, args: Any, kwargs: Any) -> None:
        """A module that is in no other call is called."""
        if self.noting:
            self._called[module] = phase
        if self.watched:
            self._needed = _wants_gradient((args, kwargs))
            self.called(module, args, kwargs)

    def called(self, module: Any, args: Any, kwargs: Any) -> None:
        """A module is called, in a look."""
        judged = self.is_grad_enabled()
        for group, level in self.watched.get(id(module), ()):
            if group is None:
                self._needed = True
            elif level != _WITHIN:
                needed = level == _ITSELF and judged and _wants_gradient((args, kwargs))
                group.called(judged=judged and level == _ITSELF, needed=needed)
            elif judged:
                group.within(needed=self._needed and _wants_gradient((args, kwargs)))

    def after_backward(self) -> None:
        """A backward pass has ended, perhaps within another one."""
        self._runs += 1
        if not self._reached:
            return
        own = _Pass()
        for key, reached in self._reached.items():
            if reached.gets_gradients():
                reached.passes.append(own)
                for at, group in enumerate(self._groups):
                    if group.owner == key:
                        own.calls[at], group.since = group.since, _Calls()

    def zeroing(self, cleared: Any) -> None:
        """The gradients of an optimizer or a module are about to be cleared."""
        for key, reached in self._reached.items():
            if not self._clears(cleared, key):
                continue
            unread = [one for one in reached.passes if key not in one.read_by]
            reached.passes = []
            if unread and reached.states != reached.now():
                reached.doubtful = True
            for one in unread:
                if not one.read_by:
                    reached.doubtful = True
                for at, calls in one.calls.items():
                    if self._groups[at].owner == key:
                        group = self._groups[at]
                        group.thrown += 1
                        group.thrown_calls.add(calls)

    def refresh(self) -> None:
        """An optimizer has stepped, or gradients are cleared: what changed has a reason."""
        for reached in self._reached.values():
            reached.states = reached.now()

    def _clears(self, cleared: Any, key: int) -> bool:
        return id(cleared) == key or (
            hasattr(cleared, "_modules")
            and {id(p) for p in cleared.parameters()}.issuperset(
                one for group in self._groups if group.owner == key for one in group.states
            )
        )

    def before_step(self, optimizer: Any) -> None:
        """An optimizer is about to step: a look begins, goes on or ends."""
        self._optimizers.add(optimizer)
        reached = self._reached.get(id(optimizer))
        if reached is not None:
            reached.steps += 1
            for one in reached.passes:
                one.read_by.add(id(optimizer))
        leader = self._leader and self._leader()
        if leader is None:
            leader = optimizer
            self._leader = weakref.ref(optimizer)
        if leader is optimizer:
            self._at_step()

    def _at_step(self) -> None:
        self._steps += 1
        runs, self._runs = self._runs, 0
        if THIS_PROCESS.recorded:
            self._end()
        elif self._steps in _LOOKS:
            self._begin()
        elif self.watched:
            for group in self._groups:
                if group.owner == UNUSED and not group.wrong:
                    group.judge(runs)
            looked = self._steps - self._begun
            fewest = _FEWEST_OF_SEVERAL if self._reached else _FEWEST_STEPS
            waited_for = any(one.steps < _FEWEST_STEPS for one in self._reached.values())
            if looked >= fewest and (looked >= _MOST_STEPS or not waited_for):
                self._judge(looked)
        self.noting = self.noting or self._steps + 1 in _LOOKS

    def _begin(self) -> None:
        self._end()
        self._begun = self._steps
        owners: dict[int, int] = {}
        for one in self._optimizers:
            for parameter in _parameters(one):
                owners[id(parameter)] = SHARED if id(parameter) in owners else id(one)
        stepped = len(self._optimizers) > 1
        weights: dict[str, int] = {}
        for outermost, phase in self._called.items():
            parameters = [*outermost.parameters()]
            weights[phase] = weights.get(phase, 0) + sum(one.numel() for one in parameters)
            self._watch(outermost, phase, owners, all_owners=stepped)
        for group in self._groups:
            group.of = weights[group.phase]
        self._called.clear()
        if stepped:
            of_groups = {group.owner for group in self._groups}
            self._reached = {
                id(one): _Reached(one) for one in self._optimizers if id(one) in of_groups
            }

    def _watch(
        self, outermost: Any, phase: str, owners: dict[int, int], *, all_owners: bool
    ) -> None:
        """Watch the modules of one that is in no other call which have one owner."""
        found = Owners(owners)
        own = found.of(outermost)
        for owner in own - {SHARED} if all_owners else own & {UNUSED}:
            modules = [*found.modules_of(outermost, owner)]
            if not modules:
                continue
            group = _Group(owner, outermost, phase, modules)
            self._groups.append(group)
            if group.single:
                inner = found.innermost(modules[0])
                group.classes = [class_of(inner)]
                place = place_of(type(unwrapped(inner)))
                group.places = [place] if place else []
                self._count(inner, group, _ITSELF)
                continue
            self._count(outermost, group, _AROUND)
            for module in modules:
                self._count(module, group, _WITHIN)
            if owner == UNUSED:
                for module in outermost.modules():
                    if any(id(one) in owners for one in module._parameters.values()):
                        self._count(module, None, _ITSELF)

    def _count(self, module: Any, group: _Group | None, level: int) -> None:
        self.watched.setdefault(id(module), []).append((group, level))

    def _judge(self, steps: int) -> None:
        """End a look, and note what it has shown."""
        owned = {id(p) for one in self._optimizers for p in _parameters(one)}
        found = []
        for group in self._groups:
            if group.owner == UNUSED:
                added = group.judged >= _FEWEST_STEPS and not group.wrong
                if added and owned.isdisjoint(group.states):
                    found.append(group)
            elif group.thrown >= _FEWEST_STEPS and not self._reached[group.owner].doubtful:
                found.append(group)
        self._end()
        if found or self._noted:
            self._note(found, steps)

    def _note(self, found: list[_Group], steps: int) -> None:
        self._noted = sorted(found, key=lambda one: -one.weights)[:_MOST_NOTED]
        note_seen(UNUSED_GRADIENTS, [one.row(steps) for one in self._noted])

    def _end(self) -> None:
        self.noting = False
        self.watched, self._groups, self._reached = {}, [], {}


_ITSELF, _WITHIN, _AROUND = range(3)
"""What a watched module is: one whose own calls count, one of several, and what these are in."""

GRADIENTS: Final = Gradients()
