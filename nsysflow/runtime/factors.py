"""What the factors of products are: mostly zeros, or a weight that an adapter was merged into.

The GPU multiplies zeros as it does other numbers, such as those in the adjacency matrix of a graph.
It counts them for us, and we read the counts some steps later, so that nobody waits.

x (W + s B A) is x W + s (x B) A. The sum needs a matrix of the size of the weight, and in the
backward pass the gradient of that: as much arithmetic as the layer itself. The branch needs
neither.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import Key, Zeros, version_of, zeros_in
from nsysflow.runtime.looks import About
from nsysflow.runtime.operators import (
    Operator,
    Operators,
    Product,
    ProductGroup,
    Storage,
    number_of,
    storage_of,
)
from nsysflow.runtime.regions import SeenProducts, captures_graph

Heads = Mapping[About, Sequence[Any]]
"""The first values of a row, for each model."""

_SMALLEST: Final = 512
"""Matrices with fewer rows or columns are not counted."""

_LEAST: Final = 0.75
_LEAST_OF_DATA: Final = 0.95
"""A smaller share of zeros is not noted: of square matrices, and of others, of which many are rows
of data. A product with a sparse matrix is slow where more than a few numbers in a hundred are none.
"""

_MOST: Final = 32
"""We count in so many matrices of a step."""


class _Matrix(NamedTuple):
    """A matrix.

    Attributes:
        storage: its memory.
        sizes: the rows and columns.
        zeros: those in it.
    """

    storage: Storage
    sizes: tuple[int, int]
    zeros: Zeros

    def is_sparse(self) -> bool:
        """Whether it is mostly zeros."""
        rows, columns = self.sizes
        return self.zeros.share >= (_LEAST if rows == columns else _LEAST_OF_DATA)


class _Factor(NamedTuple):
    """A factor of a product.

    Attributes:
        matrix: which one.
        operations: the arithmetic operations of the product.
        learns: whether the product has gradients.
    """

    matrix: _Matrix
    operations: int
    learns: bool


class ZerosInProducts:
    """Counts zeros in factors that no network has computed: an activation has zeros, too.

    Whatever is computed from parameters or by products is of a network.
    """

    def __init__(self, torch: Any, operators: Operators) -> None:
        self._torch, self._operators = torch, operators
        self._computed: set[int] = set()
        self._counts: dict[Key, _Matrix] = {}
        self._factors: dict[tuple[About, str], dict[int, list[_Factor]]] = defaultdict(dict)

    def begin_step(self) -> None:
        """Count in each matrix anew."""
        self._counts.clear()

    def begin_call(self, parameters: frozenset[int]) -> None:
        """A call of a module with parameters in these places begins."""
        self._computed = set(parameters)

    def pass_on(self, of: Operator, args: Any, kwargs: Any, result: Any) -> None:
        """An operator has run that is no product."""
        if of.views and self._operators.shares_memory(args, result):
            return
        given = self._operators.dense_in((*args, *kwargs.values()))
        change = self._computed.add if any(map(self.is_computed, given)) else self._computed.discard
        for one in self._operators.dense_in((result,)):
            change(number_of(one))

    def multiply(self, product: Product, about: About, line: str, step: int) -> None:
        """A line of the program has computed a product."""
        factors = product.left, product.right
        learns = self._torch.is_grad_enabled() and any(one.requires_grad for one in factors)
        for one in factors:
            count = self._counted(one)
            if count is not None:
                steps = self._factors[about, line]
                steps.setdefault(step, []).append(_Factor(count, product.operations, learns))
        self._computed.add(number_of(product.result))

    def are_here(self) -> bool:
        """Whether all counts can be read."""
        return all(
            one.matrix.zeros.are_here()
            for steps in self._factors.values()
            for factors in steps.values()
            for one in factors
        )

    def rows(
        self, steps: int, heads: Heads, by_line: dict[str, Counter[str]]
    ) -> list[SeenProducts]:
        """Rows of the mark, those with most operations first.

        Args:
            steps: how many steps must have such a factor.
            heads: the first values of a row for each model.
            by_line: the operations of all products, by the name of the range and the line.
        """
        rows = []
        for (about, line), of_steps in self._factors.items():
            factors = [one for each in of_steps.values() for one in each]
            if len(of_steps) < steps or not all(one.matrix.is_sparse() for one in factors):
                continue
            largest = max(factors, key=lambda one: one.operations)
            of_zeros = int(sum(one.operations * one.matrix.zeros.share for one in factors))
            group = ProductGroup(
                steps=len(of_steps),
                learns=[one.learns for one in factors],
                operations=sum(one.operations for one in factors),
                lines=Counter([line]),
            )
            row = group.row(heads[about], by_line[about[2]])
            rows.append((of_zeros, (*row, of_zeros, [*largest.matrix.sizes])))
        return [row for _, row in sorted(rows, key=itemgetter(0), reverse=True)]

    def is_computed(self, tensor: Any) -> bool:
        """Whether a network has computed a tensor."""
        return (
            type(tensor) is not self._torch.Tensor
            or tensor.requires_grad
            or number_of(tensor) in self._computed
        )

    def _counted(self, factor: Any) -> _Matrix | None:
        """A factor with its zeros; None for one that is not counted."""
        if factor.ndim < 2 or min(factor.shape[-2:]) < _SMALLEST or self.is_computed(factor):
            return None
        key = number_of(factor), tuple(sorted(factor.shape)), version_of(factor)
        if key not in self._counts:
            if len(self._counts) >= _MOST or not self._can_count(factor):
                return None
            rows, columns = factor.shape[-2:]
            storage, zeros = storage_of(self._torch, factor), zeros_in(self._torch, factor)
            self._counts[key] = _Matrix(storage, (rows, columns), zeros)
        return self._counts[key]

    def _can_count(self, factor: Any) -> bool:
        known = factor.is_floating_point() and factor.element_size() > 1
        known = known and factor.device.type in ("cuda", "cpu")
        return known and not captures_graph()


_LOWER: Final = 8
"""The inner size is at most one of so many rows, and of so many columns."""

_LEAST_ADAPTER: Final = 1 << 12
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


class _AdapterGroup:
    """Adapters that one line of the program computes, in calls of one range."""

    def __init__(self) -> None:
        self.states: dict[int, set[Key]] = defaultdict(set)
        self.learns: list[bool] = []
        self.merging = self.used = self.branch = 0
        self.sizes = 0, 0, 0
        self.lines: Counter[str] = Counter()

    def add(self, adapter: _Adapter, product: Product, step: int) -> None:
        """Add a product with the weight that an adapter was merged into."""
        rows, inner, columns = adapter.sizes
        self.states[step].add(adapter.state)
        self.learns.append(adapter.learns)
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
        return all(self.learns) or (same and not any(self.learns))

    def row(self, head: Sequence[Any], by_line: Counter[str]) -> SeenProducts:
        """Their row in the mark."""
        group = ProductGroup(len(self.states), self.learns, self.merging, self.lines)
        return (*group.row(head, by_line), self.used, self.branch, [*self.sizes])


class MergedAdapters:
    """Finds adapters that are merged at each call: a product of two small parameters is added to a
    third one, and the sum is the second factor of another product."""

    def __init__(self, torch: Any, operators: Operators) -> None:
        self._torch, self._operators = torch, operators
        self._parameters: frozenset[int] = frozenset()
        self._casts: dict[int, tuple[Storage, Key]] = {}
        self._places: dict[int, tuple[Storage, _Adapter]] = {}
        self._groups: dict[tuple[About, str], _AdapterGroup] = defaultdict(_AdapterGroup)

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
        self, steps: int, heads: Heads, by_line: dict[str, Counter[str]]
    ) -> list[SeenProducts]:
        """Rows of the mark, as of `ZerosInProducts`."""
        sure = [(about, one) for (about, _), one in self._groups.items() if one.is_sure(steps)]
        sure.sort(key=lambda each: each[1].merging + each[1].used, reverse=True)
        return [group.row(heads[about], by_line[about[2]]) for about, group in sure]

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
    large = product.rows * product.columns >= _LEAST_ADAPTER
    return product.batch == 1 and large and _LOWER * product.inner <= smaller
