"""Modules that compute in each step what they computed in the step before.

As where a decoder projects the same encoded input again for each token, or a sampling loop the same
prompt. Three steps are looked at. In the second one, calls without gradients are sought that have
the very input of a call of the first; these are judged in the third.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import (
    CallInput,
    Key,
    copied_to_host,
    drawn_numbers,
    modes_of,
    state_of,
    weights_of,
)
from nsysflow.runtime.looks import Look
from nsysflow.runtime.places import LETTERS, calling_line, class_of, place_of, unwrapped
from nsysflow.runtime.protocol import UNCHANGED_CALLS
from nsysflow.runtime.recorders import nothing
from nsysflow.runtime.regions import Unchanged, captures_graph

_SOUGHT: Final = 1
_JUDGED: Final = 2
_OVER: Final = 3
"""So many steps after the first one of a look."""

_PATIENCE: Final = 50
"""So many steps later all sums have arrived, or nothing is noted."""

_MOST_LINES: Final = 3

_About = tuple[str, str, str]


class _Call(NamedTuple):
    """A call.

    Attributes:
        given: its input.
        state: what the module held before it; empty where that is not compared.
    """

    given: CallInput
    state: Key


class _Sums:
    """Sums of tensors, which tell whether one was written to: in inference mode tensors have no
    versions, and CUDA graphs and kernels that torch does not know of change none.

    They are computed on the GPU, and read once it is past them.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._copies: dict[Key, list[tuple[Any, Any]]] = {}
        self._taken: set[Key] = set()

    def next_step(self) -> None:
        """From now on a tensor's sum is taken again."""
        self._taken.clear()

    def take(self, given: CallInput) -> tuple[Key, ...]:
        """Sum up the tensors of a call; what is returned are their keys."""
        keys = []
        for tensor in (one for ref in given.tensors if (one := ref()) is not None):
            key = (tensor.data_ptr(), tuple(tensor.shape), tensor.dtype)
            keys.append(key)
            if key not in self._taken:
                self._taken.add(key)
                total = tensor.sum(dtype=self._torch.float64)
                self._copies.setdefault(key, []).append(copied_to_host(self._torch, total))
        return tuple(keys)

    def are_here(self) -> bool:
        """Whether all can be read."""
        events = [event for copies in self._copies.values() for _, event in copies]
        return all(event is None or event.query() for event in events)

    def are_equal(self, key: Key) -> bool:
        """Whether a tensor had the same sum in two steps."""
        sums = [copy.item() for copy, _ in self._copies[key]]
        return len(sums) > 1 and len(set(sums)) == 1


class _Group:
    """The modules of a class in those of another one, with calls that are judged.

    Attributes:
        place: the lines of their `forward`.
        weights: how many each has, by its id.
        calls: so many.
        products: multiplications in these.
        lines: those that make the calls.
        sums: keys of sums that have to be equal.
        wrong: whether a call of them drew random numbers, or the module changed in it.
    """

    def __init__(self, module: Any) -> None:
        self.place = place_of(type(unwrapped(module)))
        self.weights: dict[int, int] = {}
        self.calls = self.products = 0
        self.lines: Counter[str] = Counter()
        self.sums: set[Key] = set()
        self.wrong = False

    def row(self, about: _About, of: int, of_products: int) -> Unchanged:
        """What is noted of them; `of` is how many weights all modules with such ranges have, and
        `of_products` how many multiplications their calls."""
        name, outermost, phase = (word[:LETTERS] for word in about)
        places = [self.place] if self.place else []
        lines = [line for line, _ in self.lines.most_common(_MOST_LINES)]
        about_them = name, outermost, phase, places, sum(self.weights.values()), of
        return (*about_them, _JUDGED, self.calls, self.products, of_products, lines)


class UnchangedCalls(Look):
    """Looks for calls that compute what they computed in the step before.

    They have no gradients and draw no random numbers, and the module, its modes and its input are
    the same. Nothing is noted where the whole input of a step is the same, as in a benchmark.
    """

    kind = UNCHANGED_CALLS

    def _end(self) -> None:
        super()._end()
        self._inside = False
        self._age = 0
        self._around = "", ""
        self._within: _Group | None = None
        self._before: dict[Key, _Call] = {}
        self._now: dict[Key, _Call] = {}
        self._found: dict[int, weakref.ref[Any]] = {}
        self._groups: dict[_About, _Group] = {}
        self._products: Counter[str] = Counter()
        self._outermost = self._same = 0
        self._sums = _Sums(self._torch)

    def prepare(self, torch: Any) -> None:
        """Look at this process from now on."""
        super().prepare(torch)
        self._end()

    def _go_on(self, age: int) -> None:
        self._age = age
        if self.looking and age < _OVER and (self._found or age == _SOUGHT):
            self._before, self._now = self._now, {}
            self._sums.next_step()
        elif self.looking or self._groups:
            self.looking = False
            if self._sums.are_here():
                self._note(self._rows())
                self._end()
            elif age > _PATIENCE:
                self._end()

    def _rows(self) -> list[Unchanged]:
        if self._same == self._outermost:
            return []
        rows = [
            group.row(about, self._weights_in(about[2]), self._products[about[2]])
            for about, group in self._groups.items()
            if not group.wrong and all(self._sums.are_equal(key) for key in group.sums)
        ]
        return sorted(rows, key=lambda row: -row[8])

    def _enter(
        self, module: Any, args: Any, kwargs: Any, phase: str
    ) -> Callable[[], object] | None:
        """What to call after a call: only where it is outermost or unchanged."""
        if captures_graph():
            return None
        outermost = not self._inside
        if outermost:
            self._inside, self._around = True, (class_of(module), phase)
            self._outermost += self._age == _JUDGED
            self._know(module, phase)
        ended = None
        if self._within is None and not self._torch.is_grad_enabled():
            with self._torch._C.DisableTorchFunction():
                ended = self._compared(module, (args, kwargs))
        if self._age == _JUDGED:
            self._same += outermost and ended is not None
            products = _products_of(self._torch, module, args)
            self._products[self._around[1]] += products
            if self._within is not None:
                self._within.products += products
        if not outermost and ended is None:
            return None
        return partial(self._safely, self._left, outermost, ended)

    def _left(self, outermost: bool, ended: Callable[[], object] | None) -> None:
        if outermost:
            self._inside = False
        if ended is not None:
            self._within = None
            ended()

    def _compared(self, module: Any, given: Any) -> Callable[[], object] | None:
        """What to call after a call whose input was there in the step before; None for others."""
        found = self._found.get(id(module))
        if self._age == _JUDGED and (found is None or found() is not module):
            return None
        try:
            read = CallInput(self._torch, given)
            key = id(module), read.key, *modes_of(self._torch, module)
            last = self._before.get(key)
            same = last is not None and last.given.is_unchanged()
            same = same and next(module.parameters(), None) is not None
            state = state_of(module) if same else ()
            drawn = drawn_numbers(self._torch) if same and self._age == _JUDGED else ()
            sums = self._sums.take(read) if same else ()
        except Exception:  # tensors of other kinds
            return None
        self._now[key] = _Call(read, state)
        if last is None or not same:
            return None
        if self._age == _SOUGHT:
            self._found[id(module)] = weakref.ref(module)
            self._within = _Group(module)
            return nothing
        if last.state != state:
            return None
        self._within = group = self._group_of(module)
        group.calls += 1
        group.weights[id(module)] = weights_of(module)
        group.lines[calling_line()] += 1
        group.sums.update(sums)
        return partial(self._judge, group, module, state, drawn)

    def _group_of(self, module: Any) -> _Group:
        about = class_of(module), *self._around
        if about not in self._groups:
            self._groups[about] = _Group(module)
        return self._groups[about]

    def _judge(self, group: _Group, module: Any, state: Key, drawn: Key) -> None:
        """A call has ended that seemed to compute what it did in the step before."""
        if drawn_numbers(self._torch) != drawn or state_of(module) != state:
            group.wrong = True


def _products_of(torch: Any, module: Any, args: Any) -> int:
    """How many multiplications a call of a linear layer or a convolution does; 0 for others."""
    if not args or not isinstance(args[0], torch.Tensor):
        return 0
    x = args[0]
    if isinstance(module, torch.nn.Linear):
        return int(x.numel() // max(1, module.in_features) * module.weight.numel())
    if isinstance(module, torch.nn.modules.conv._ConvNd):
        places = x.numel() // max(1, module.in_channels)
        return int(places // max(1, math.prod(module.stride)) * module.weight.numel())
    return 0


UNCHANGED: Final = UnchangedCalls()
"""What looks for unchanged calls in this process."""
