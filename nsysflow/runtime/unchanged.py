"""Modules that compute in each step what they computed in the step before.

A decoder that projects the same encoded input again for each token is such a case, or a sampling
loop that embeds the same prompt. A look takes three steps. In the second one we find the calls
without gradients that have the input of a call of the first one. In the third we judge them.
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
    calling_line,
    copied_to_host,
    drawn_numbers,
    modes_of,
    state_of,
)
from nsysflow.runtime.looks import About, Look, ModuleGroup, most_lines
from nsysflow.runtime.protocol import UNCHANGED_CALLS
from nsysflow.runtime.recorders import nothing
from nsysflow.runtime.regions import Unchanged, captures_graph

_SOUGHT: Final = 1
_JUDGED: Final = 2
_OVER: Final = 3
"""The age of a look, in steps, when calls are found and judged, and when it is over."""

_PATIENCE: Final = 50
"""After so many steps we drop sums that have not arrived."""


class _Call(NamedTuple):
    """A call.

    Attributes:
        given: its input.
        state: the module's state before it; empty where that is not compared.
    """

    given: CallInput
    state: Key


class _Sums:
    """Sums of tensors, to see whether their content changes.

    Tensors of inference mode have no versions, and writes by CUDA graphs and other libraries change
    none. The GPU computes the sums, and we read them some steps later.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._copies: dict[Key, list[tuple[Any, Any]]] = {}
        self._taken: set[Key] = set()

    def next_step(self) -> None:
        """Take each tensor's sum anew from now on."""
        self._taken.clear()

    def take(self, given: CallInput) -> tuple[Key, ...]:
        """Sum up the tensors of a call. Returns the keys of the sums."""
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
        """Whether all sums can be read."""
        events = [event for copies in self._copies.values() for _, event in copies]
        return all(event is None or event.query() for event in events)

    def are_equal(self, key: Key) -> bool:
        """Whether a tensor had the same sum in two steps."""
        sums = [copy.item() for copy, _ in self._copies[key]]
        return len(sums) > 1 and len(set(sums)) == 1


class _Group(ModuleGroup):
    """Modules with unchanged calls.

    Attributes:
        calls: the number of unchanged calls.
        products: the multiplications in these calls.
        sums: keys of the sums that must be equal.
        wrong: whether a call drew random numbers, or changed the module.
    """

    def __init__(self, about: About, module: Any) -> None:
        super().__init__(about, module)
        self.calls = self.products = 0
        self.sums: set[Key] = set()
        self.wrong = False

    def row(self, of: int, of_products: int) -> Unchanged:
        """Their row in the mark; `of` is the number of weights of all outermost modules, and
        `of_products` that of multiplications in their calls."""
        counts = _JUDGED, self.calls, self.products, of_products
        return (*self.head(of), *counts, most_lines(self.lines))


class UnchangedCalls(Look):
    """Finds calls that compute what they computed in the step before.

    Such a call has no gradients and draws no random numbers. Its input, its modes and the module's
    state are those of the step before. If the whole input of a step is unchanged, as in a
    benchmark, nothing is noted.
    """

    kind = UNCHANGED_CALLS

    def _end(self) -> None:
        super()._end()
        self._age = 0
        self._within: _Group | None = None
        self._before: dict[Key, _Call] = {}
        self._now: dict[Key, _Call] = {}
        self._found: dict[int, weakref.ref[Any]] = {}
        self._groups: dict[About, _Group] = {}
        self._products: Counter[str] = Counter()
        self._of_step = self._same = 0
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
        if self._same == self._of_step:
            return []
        rows = [
            group.row(self._weights_in(about[2]), self._products[about[2]])
            for about, group in self._groups.items()
            if not group.wrong and all(self._sums.are_equal(key) for key in group.sums)
        ]
        return sorted(rows, key=lambda row: -row[8])

    def _enter(
        self, module: Any, args: Any, kwargs: Any, phase: str
    ) -> Callable[[], object] | None:
        if captures_graph():
            return None
        ended = None
        if self._within is None and not self._torch.is_grad_enabled():
            ended = self._compared(module, (args, kwargs))
        if self._age == _JUDGED:
            if phase:
                self._of_step += 1
                self._same += ended is not None
            products = _products_of(self._torch, module, args)
            self._products[self._outermost[1]] += products
            if self._within is not None:
                self._within.products += products
        return ended and partial(self._unchanged, ended)

    def _unchanged(self, ended: Callable[[], object]) -> None:
        self._within = None
        ended()

    def _compared(self, module: Any, given: Any) -> Callable[[], object] | None:
        """What to call at the end of a call that had the same input before; None for others."""
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
            self._within = self._group_of(module, {}, _Group)
            return nothing
        if last.state != state:
            return None
        self._within = group = self._group_of(module, self._groups, _Group)
        group.calls += 1
        group.lines[calling_line()] += 1
        group.sums.update(sums)
        return partial(self._judge, group, module, state, drawn)

    def _judge(self, group: _Group, module: Any, state: Key, drawn: Key) -> None:
        """Check a call that has ended and seemed unchanged."""
        if drawn_numbers(self._torch) != drawn or state_of(module) != state:
            group.wrong = True


def _products_of(torch: Any, module: Any, args: Any) -> int:
    """The number of multiplications in a call of a linear layer or a convolution; 0 for others."""
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
"""Finds unchanged calls in this process."""
