"""Low-rank adapters that are merged into a weight at each call.

x (W + s B A) is x W + s (x B) A. The sum needs a matrix of the size of the weight, and in the
backward pass the gradient of that: as much arithmetic as the layer itself. The branch needs
neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final

from nsysflow.runtime.calls import Key, version_of
from nsysflow.runtime.looks import About, most_lines
from nsysflow.runtime.operators import (
    Operator,
    Operators,
    Product,
    Storage,
    number_of,
    storage_of,
)
from nsysflow.runtime.regions import Merged

_LOWER: Final = 8
"""The inner size is at most one of so many rows, and of so many columns."""

_SMALLEST: Final = 1 << 12
"""Smaller products are no adapters."""

_SUMS: Final = ("aten::add", "aten::add_")


class _Adapter:
    """A product of two small matrices, perhaps scaled and added to a weight.

    Attributes:
        sizes: its rows, its inner size and its columns.
        operations: the arithmetic operations that it takes.
        lines: of the program, which compute it and use it.
        learns: whether it has gradients.
        state: its factors and the weight, with their versions.
        is_merged: whether it is added to the weight.
        is_counted: whether it was used.
    """

    def __init__(self, product: Product, line: str, state: Key, *, learns: bool) -> None:
        self.sizes = product.rows, product.inner, product.columns
        self.operations, self.lines = product.operations, (line,)
        self.learns, self.state = learns, state
        self.is_merged = self.is_counted = False


class _Group:
    """Adapters that one line of the program computes, in calls of one range."""

    def __init__(self) -> None:
        self.states: dict[int, set[Key]] = defaultdict(set)
        self.calls = self.learning = self.merging = self.used = self.branch = 0
        self.sizes = 0, 0, 0
        self.lines: Counter[str] = Counter()

    def add(self, adapter: _Adapter, product: Product, step: int) -> None:
        """Add a product with the weight that an adapter was merged into."""
        rows, inner, columns = adapter.sizes
        self.states[step].add(adapter.state)
        self.calls += 1
        self.learning += adapter.learns
        self.merging += 0 if adapter.is_counted else adapter.operations
        self.used += product.operations
        vectors = product.operations // (2 * rows * columns)
        self.branch += 2 * vectors * inner * (rows + columns)
        self.sizes = max(self.sizes, adapter.sizes)
        self.lines.update(adapter.lines)
        adapter.is_counted = True

    def is_sure(self, steps: int) -> bool:
        """Whether each of so many steps has some, all with gradients, or all unchanged."""
        if len(self.states) < steps:
            return False
        states = [*self.states.values()]
        same = all(one == states[0] for one in states)
        return self.learning == self.calls or (not self.learning and same)

    def row(self, head: tuple[Any, ...], by_line: Counter[str]) -> Merged:
        """Their row in the mark."""
        counts = len(self.states), self.calls, self.learning, [*self.sizes]
        of_lines, of = sum(by_line[line] for line in self.lines), sum(by_line.values())
        operations = self.merging, self.used, self.branch, of_lines, of
        return (*head, *counts, *operations, most_lines(self.lines))


class MergedAdapters:
    """Finds adapters that are merged at each call: a product of two small parameters is added to a
    third one, and the sum is the second factor of another product."""

    def __init__(self, torch: Any, operators: Operators) -> None:
        self._torch, self._operators = torch, operators
        self._parameters: frozenset[int] = frozenset()
        self._casts: dict[int, tuple[Storage, Key]] = {}
        self._places: dict[int, tuple[Storage, _Adapter]] = {}
        self._groups: dict[tuple[About, str], _Group] = defaultdict(_Group)

    def begin_call(self, parameters: frozenset[int]) -> None:
        """A call of a module with parameters in these places begins."""
        self._parameters = parameters
        self._casts.clear()
        self._places.clear()

    def pass_on(self, of: Operator, args: Any, kwargs: Any, result: Any) -> None:
        """An operator has run that is no product."""
        if of.copies:
            self._cast(args, result)
        if not self._places:
            return
        if of.name in _SUMS and len(args) == 2 and self._operators.is_dense(result):
            for weight, other in (args, args[::-1]):
                self._merge(weight, other, result)
            return
        source = self._operators.source_of(of, args, kwargs, result)
        adapter = None if source is None else self._at(source)
        if adapter is not None and number_of(result) != number_of(source):
            self._keep(adapter, result)

    def multiply(self, product: Product, args: Any, about: About, line: str, step: int) -> None:
        """A line of the program has computed a product."""
        adapter = self._at(product.right)
        if adapter is not None and adapter.is_merged:
            self._groups[about, adapter.lines[0]].add(adapter, product, step)
        factors = product.left, product.right
        states = [*map(self._state_of, factors)]
        if not (_is_low(product) and all(states)):
            return
        learns = self._torch.is_grad_enabled() and any(one.requires_grad for one in factors)
        state = tuple(states)
        adapter = _Adapter(product, line, state, learns=learns)
        self._keep(adapter, product.result)
        if not product.is_pure and args[0] is not product.left:
            self._merge(args[0], product.result, product.result)

    def rows(
        self, steps: int, heads: dict[About, tuple[Any, ...]], by_line: dict[str, Counter[str]]
    ) -> list[Merged]:
        """Rows of the mark, those with most operations first; each of so many steps has them."""
        rows = [
            group.row(heads[about], by_line[about[2]])
            for (about, _), group in self._groups.items()
            if group.is_sure(steps)
        ]
        return sorted(rows, key=lambda row: -(row[10] + row[11]))

    def _merge(self, weight: Any, other: Any, result: Any) -> None:
        """Note that an adapter is added to a weight."""
        if not (self._operators.is_dense(weight) and self._operators.is_dense(other)):
            return
        adapter, state = self._at(other), self._state_of(weight)
        if adapter is None or not state or weight.shape != other.shape:
            return
        learns = self._torch.is_grad_enabled()
        if learns and (weight.requires_grad or not adapter.learns):
            return
        adapter.is_merged = True
        adapter.state = (*adapter.state, state)
        self._keep(adapter, result)

    def _cast(self, args: Any, result: Any) -> None:
        """Note what autocast makes of parameters."""
        if self._operators.is_dense(args[0]) and self._operators.is_dense(result):
            state = self._state_of(args[0])
            if state:
                storage = storage_of(self._torch, result)
                self._casts[storage.number] = storage, state

    def _state_of(self, tensor: Any) -> Key:
        """The place and version of a parameter; empty for other tensors."""
        number = number_of(tensor)
        if number in self._casts:
            return self._casts[number][1]
        if number in self._parameters or type(tensor) is self._torch.nn.Parameter:
            return number, version_of(tensor)
        return ()

    def _at(self, tensor: Any) -> _Adapter | None:
        place = self._places.get(number_of(tensor))
        return None if place is None else place[1]

    def _keep(self, adapter: _Adapter, tensor: Any) -> None:
        storage = storage_of(self._torch, tensor)
        self._places[storage.number] = storage, adapter


def _is_low(product: Product) -> bool:
    """Whether a product may be an adapter."""
    smaller = min(product.rows, product.columns)
    large = product.rows * product.columns >= _SMALLEST
    return product.batch == 1 and large and _LOWER * product.inner <= smaller
