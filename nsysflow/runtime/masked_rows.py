"""Rows that a module computes, and the program then multiplies by zero.

Stochastic depth drops a branch for some samples, x + branch(x) * kept, and a mixture of experts may
compute each expert for all tokens. The GPU counts the zeros of such factors for us, and we read the
counts some steps later, so that nobody waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import (
    LETTERS,
    Zeros,
    calling_line,
    place_of,
    unwrapped,
    weights_of,
    zeros_in,
)
from nsysflow.runtime.looks import About, most_lines
from nsysflow.runtime.operators import Operator, Operators, Product, Storage, number_of, storage_of
from nsysflow.runtime.regions import Masked, captures_graph

_LEAST: Final = 0.15
"""A smaller share of rows is not noted."""

_SHORTEST: Final = 16
"""Shorter rows are not worth it."""

_MOST: Final = 128
"""We count in so many factors of a step."""

_PRODUCTS: Final = ("aten::mul", "aten::mul_")

_MATRIX: Final = 2
_SEQUENCES: Final = 3
"""The dimensions of a matrix, and of a batch of sequences."""


class _Call(NamedTuple):
    """A call of a module within the outermost one.

    Attributes:
        module: whose it is.
        line: of the program, which makes it.
        begun: how many operators had run before.
        operations: the arithmetic operations of products, before it; once it has ended, in it.
    """

    module: Any
    line: str
    begun: int
    operations: int


class _Rows:
    """What a call has computed.

    Attributes:
        call: which one.
        is_masked: whether it was multiplied by a factor of rows.
        is_read: whether anything else has read it.
    """

    def __init__(self, call: _Call) -> None:
        self.call = call
        self.is_masked = self.is_read = False


class _Mask(NamedTuple):
    """A factor that is the same for all numbers of a row.

    Attributes:
        line: of the program, which calls what has computed the rows.
        operations: the arithmetic operations of products in that call.
        zeros: those in the factor.
    """

    line: str
    operations: int
    zeros: Zeros


class _Group:
    """Modules whose rows one line of the program multiplies by such factors.

    Attributes:
        masks: of each step.
        modules: the class and the number of weights of each, by its id.
    """

    def __init__(self) -> None:
        self.masks: defaultdict[int, list[_Mask]] = defaultdict(list)
        self.modules: dict[int, tuple[type, int]] = {}

    def add(self, step: int, module: Any, mask: _Mask) -> None:
        """Add a factor for the rows that a module has computed."""
        self.masks[step].append(mask)
        if id(module) not in self.modules:
            self.modules[id(module)] = type(unwrapped(module)), weights_of(module)

    def shares(self) -> list[float]:
        """The share of zeros in each step, by operations."""
        return [_of_zeros(one) / max(1, _operations(one)) for one in self.masks.values()]

    def row(self, about: About, of: int) -> Masked:
        """Their row in the mark; `of` is the number of weights of all outermost modules."""
        masks = [one for each in self.masks.values() for one in each]
        weights: Counter[type] = Counter()
        for kind, count in self.modules.values():
            weights[kind] += count
        classes = [kind for kind, _ in weights.most_common()]
        places = [*map(place_of, classes)]
        head = (
            ", ".join(kind.__name__ for kind in classes)[:LETTERS],
            *(word[:LETTERS] for word in about[1:]),
            places if all(places) else [],
            sum(weights.values()),
            of,
        )
        lines = Counter(one.line for one in masks)
        counts = len(self.masks), len(masks), _operations(masks), _of_zeros(masks)
        return (*head, *counts, most_lines(lines))


def _operations(masks: list[_Mask]) -> int:
    return sum(one.operations for one in masks)


def _of_zeros(masks: list[_Mask]) -> int:
    return int(sum(one.operations * one.zeros.share for one in masks))


class MaskedRows:
    """Finds results of modules that are multiplied by a factor which is zero for whole rows.

    The factor was there before the call, or no network has computed it: what is zero was known
    before the rows were computed. Nothing else reads these.
    """

    def __init__(
        self, torch: Any, operators: Operators, is_computed: Callable[[Any], bool]
    ) -> None:
        self._torch, self._operators, self._is_computed = torch, operators, is_computed
        self._groups: defaultdict[tuple[About, str], _Group] = defaultdict(_Group)
        self._counted = 0
        self.forget_call()

    def begin_step(self) -> None:
        """A step begins."""
        self._counted = 0

    def forget_call(self) -> None:
        """An outermost call begins, or has ended."""
        self._run = self._operations = 0
        self._calls: list[_Call] = []
        self._born: dict[int, tuple[Storage, int]] = {}
        self._results: dict[int, tuple[Storage, _Rows]] = {}
        self._masks: list[tuple[_Rows, _Mask, tuple[About, str], int]] = []

    def end_call(self, results: Iterable[Any]) -> None:
        """The outermost call has computed these, and ends."""
        for one in self._operators.dense_in(results):
            self._read(one)
        for rows, mask, place, step in self._masks:
            if not rows.is_read:
                self._groups[place].add(step, rows.call.module, mask)

    def enter(self, module: Any) -> None:
        """A call within the outermost one begins."""
        self._calls.append(_Call(module, calling_line(), self._run, self._operations))

    def returned(self, result: Any) -> None:
        """The innermost call has computed this."""
        if self._calls and self._operators.is_dense(result) and result.ndim >= _MATRIX:
            call = self._calls[-1]
            operations = self._operations - call.operations
            if operations:
                self._keep(_Rows(call._replace(operations=operations)), result)

    def leave(self) -> None:
        """The innermost call has ended."""
        if self._calls:
            self._calls.pop()

    def multiply(self, product: Product) -> None:
        """A product of matrices was computed."""
        for one in (product.left, product.right):
            self._read(one)
        self._operations += product.operations
        self._bear(product.result)

    def pass_on(
        self, of: Operator, args: Any, kwargs: Any, result: Any, about: About, step: int
    ) -> None:
        """An operator has run that is no product of matrices."""
        for one in self._operators.dense_in((result,)):
            self._bear(one)
        if of.name in _PRODUCTS and len(args) == 2 and all(map(self._operators.is_dense, args)):
            for tensor, factor in (args, args[::-1]):
                rows = self._rows_in(tensor)
                if rows is not None and tensor.shape == result.shape:
                    self._read(factor)
                    if not self._mask(rows, tensor, factor, about, step):
                        self._keep(rows, result)
                    elif number_of(result) == number_of(tensor):  # in place
                        del self._results[number_of(tensor)]
                    return
        source = self._operators.source_of(of, args, kwargs, result)
        rows = None if source is None else self._rows_in(source)
        if rows is not None:
            self._keep(rows, result)
            return
        for one in self._operators.dense_in((*args, *kwargs.values())):
            self._read(one)

    def are_here(self) -> bool:
        """Whether all counts can be read."""
        return all(
            one.zeros.are_here()
            for group in self._groups.values()
            for masks in group.masks.values()
            for one in masks
        )

    def rows(self, steps: int, weights_in: Callable[[str], int]) -> list[Masked]:
        """Rows of the mark, those with most operations first.

        Args:
            steps: how many steps must have such factors.
            weights_in: the number of weights of all outermost modules, by the name of the range.
        """
        rows = [
            group.row(about, weights_in(about[2]))
            for (about, _), group in self._groups.items()
            if len(group.masks) >= steps and min(group.shares()) >= _LEAST
        ]
        return sorted(rows, key=lambda row: -row[9])

    def _mask(self, rows: _Rows, tensor: Any, factor: Any, about: About, step: int) -> bool:
        """Count the zeros of a factor, if it is one of whole rows that was known before. Returns
        whether it is."""
        call = rows.call
        if not _is_of_rows(tensor.shape, factor.shape) or self._counted >= _MOST:
            return False
        _, born = self._born.get(number_of(factor), (None, 0))
        if (born > call.begun and self._is_computed(factor)) or captures_graph():
            return False
        self._counted += 1
        rows.is_read |= rows.is_masked
        rows.is_masked = True
        mask = _Mask(call.line, call.operations, zeros_in(self._torch, factor))
        self._masks.append((rows, mask, (about, calling_line()), step))
        return True

    def _bear(self, tensor: Any) -> None:
        """Note when a tensor's memory was written."""
        self._run += 1
        storage = storage_of(self._torch, tensor)
        self._born[storage.number] = storage, self._run

    def _rows_in(self, tensor: Any) -> _Rows | None:
        result = self._results.get(number_of(tensor))
        return None if result is None else result[1]

    def _read(self, tensor: Any) -> None:
        rows = self._rows_in(tensor)
        if rows is not None:
            rows.is_read = True

    def _keep(self, rows: _Rows, tensor: Any) -> None:
        storage = storage_of(self._torch, tensor)
        self._results[storage.number] = storage, rows


def _is_of_rows(rows: Sequence[int], factor: Sequence[int]) -> bool:
    """Whether a factor of one shape has one number for each row of another: of a matrix, of a
    sample, or of a position in a batch of sequences, whose channels come last or second."""
    sizes = (*[1] * (len(rows) - len(factor)), *factor)
    if len(sizes) != len(rows) or not 1 < prod(factor) <= prod(rows) // _SHORTEST:
        return False
    if len(rows) != _SEQUENCES:
        return all(size == 1 for size in sizes[1:])
    return sizes[2] == 1 or (sizes[1] == 1 < sizes[0])
