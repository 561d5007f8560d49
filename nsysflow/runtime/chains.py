"""Products of three matrices in the costly order.

(A B) C and A (B C) are the same, and may differ much in their arithmetic. Attention without a
softmax is such a case. We follow the first product to the second one, through views, copies and
multiplication by a number. If anything else reads it, the order cannot be changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import DEEPEST, values_in
from nsysflow.runtime.operators import (
    Operator,
    Operators,
    Product,
    ProductGroup,
    Storage,
    number_of,
    storage_of,
)
from nsysflow.runtime.regions import SeenProducts

_LESS: Final = 2
"""The other order takes at most one of so many operations."""

_SMALLEST: Final = 1 << 12
"""Smaller products are not followed."""

_ONE: Final = 1

Layout = tuple[tuple[int, int], tuple[int, int]]
"""The size and stride of a matrix's rows, and those of its columns."""


class _Made:
    """A product that may be a factor of another one.

    Attributes:
        sizes: those of its rows, of the columns of its first factor, and of its own columns.
        batch: the number of matrices.
        line: of the program, which computes it.
        learns: whether it has gradients.
        is_read: whether it is needed as it is.
        chain: what the product of it would be in the other order.
    """

    def __init__(self, product: Product, line: str, *, learns: bool) -> None:
        self.sizes = product.rows, product.inner, product.columns
        self.batch, self.line, self.learns = product.batch, line, learns
        self.is_read = False
        self.chain: Chain | None = None


class _Place:
    """Memory that holds a product, perhaps scaled.

    Attributes:
        made: the product.
        storage: the memory.
        count: the number of its elements.
        layout: that of its matrices.
        is_used: whether another operator has had it.
    """

    def __init__(self, made: _Made, storage: Storage, tensor: Any, *, turned: bool) -> None:
        self.made, self.storage, self.count = made, storage, tensor.numel()
        layout = _layout_of(tensor)
        self.layout = layout[::-1] if turned else layout
        self.is_used = False

    def turned_in(self, tensor: Any) -> bool | None:
        """Whether a view has the matrices transposed; None if it has other matrices."""
        if tensor.numel() != self.count or tensor.ndim < 2:
            return None
        layout = _layout_of(tensor)
        if layout == self.layout:
            return False
        return True if layout[::-1] == self.layout else None


class Chain(NamedTuple):
    """A product of three matrices in the costly order.

    Attributes:
        batch: the number of products.
        sizes: of the matrices: the rows of each, and the columns of the last one.
        left_first: whether the first two are multiplied first.
        operations: the arithmetic operations that it takes.
        otherwise: those in the other order.
        learns: whether it has gradients.
        lines: of the program, which compute it.
    """

    batch: int
    sizes: tuple[int, int, int, int]
    left_first: bool
    operations: int
    otherwise: int
    learns: bool
    lines: tuple[str, ...]


class ChainsOfCall:
    """Finds such products in a module's call, while it runs."""

    def __init__(self, torch: Any, operators: Operators) -> None:
        self._torch, self._operators = torch, operators
        self._places: dict[int, _Place] = {}
        self._found: list[_Made] = []

    def multiply(self, product: Product, line: str, args: Any, kwargs: Any) -> None:
        """A line of the program has computed a product."""
        learns = self._torch.is_grad_enabled() and any(
            one.requires_grad for one in (product.left, product.right)
        )
        chain = None
        if self._places:
            self._read_all(args, kwargs, but=(product.left, product.right))
            chain = self._joined(product, line, learns=learns)
        sizes = product.rows, product.columns
        if product.is_pure and min(sizes) > _ONE and product.result.numel() >= _SMALLEST:
            made = _Made(product, line, learns=learns)
            made.is_read = chain is not None  # a product belongs to one chain
            self._keep(made, product.result, turned=False)

    def pass_on(self, of: Operator, args: Any, kwargs: Any, result: Any) -> None:
        """Follow products through an operator that is no product itself."""
        if not self._places:
            return
        source = self._operators.source_of(of, args, kwargs, result)
        place = None if source is None else self._place_of(source)
        if place is not None:
            self._follow(place, source, result, views=of.views)
        elif not of.views or not self._operators.shares_memory(args, result):
            self._read_all(args, kwargs)

    def _follow(self, place: _Place, source: Any, result: Any, *, views: bool) -> None:
        """Follow a product to a copy, or to a view of the same memory."""
        turned = place.turned_in(source)
        if number_of(result) != place.storage.number:
            self._used(place, source)
            if turned is None:
                place.made.is_read = True
            else:
                self._keep(place.made, result, turned=turned)
        elif not views:  # it is scaled where it is
            place.made.is_read |= turned is None or place.is_used

    def end(self, result: Any) -> list[Chain]:
        """What was found in the call, which returned `result`."""
        for tensor in self._operators.dense_in(values_in(result, DEEPEST)):
            self._read(tensor)
        return [made.chain for made in self._found if made.chain and not made.is_read]

    def _joined(self, product: Product, line: str, *, learns: bool) -> Chain | None:
        """The costly product that this one ends; None if it ends none."""
        left, right = self._place_of(product.left), self._place_of(product.right)
        if left is not None and right is not None:
            left.made.is_read = right.made.is_read = True
            return None
        place, factor = (left, product.left) if left is not None else (right, product.right)
        if place is None:
            return None
        turned = self._used(place, factor)
        if turned is None or place.made.batch != product.batch:
            place.made.is_read = True
            return None
        turned ^= place is right and product.right_turned
        rows, inner, columns = place.made.sizes
        if turned:
            rows, columns = columns, rows
        chain = _chain(
            product,
            (rows, inner, columns),
            left_first=place is left,
            learns=learns or place.made.learns,
            lines=tuple(dict.fromkeys((place.made.line, line))),
        )
        place.made.chain = chain
        if chain is not None:
            self._found.append(place.made)
        return chain

    def _place_of(self, tensor: Any) -> _Place | None:
        return self._places.get(number_of(tensor))

    def _used(self, place: _Place, tensor: Any) -> bool | None:
        """Note that an operator has this; returns whether the matrices are transposed in it."""
        place.made.is_read |= place.is_used
        place.is_used = True
        return place.turned_in(tensor)

    def _read_all(self, args: Any, kwargs: Any, but: tuple[Any, ...] = ()) -> None:
        """Note that an operator has read its arguments, but for these."""
        for tensor in self._operators.dense_in((*args, *kwargs.values())):
            if all(tensor is not one for one in but):
                self._read(tensor)

    def _read(self, tensor: Any) -> None:
        place = self._place_of(tensor)
        if place is not None:
            place.made.is_read = True

    def _keep(self, made: _Made, tensor: Any, *, turned: bool) -> None:
        storage = storage_of(self._torch, tensor)
        self._places[storage.number] = _Place(made, storage, tensor, turned=turned)


def _chain(
    product: Product,
    first: tuple[int, int, int],
    *,
    left_first: bool,
    learns: bool,
    lines: tuple[str, ...],
) -> Chain | None:
    """The product of three matrices that a product ends, if the other order takes far less.

    Args:
        product: the last product.
        first: the rows, inner size and columns of the product that is one of its factors.
        left_first: whether that is its first factor.
        learns: whether it has gradients.
        lines: those that compute both products.
    """
    rows, inner, columns = first
    if left_first:
        sizes = rows, inner, columns, product.columns
    else:
        sizes = product.rows, rows, inner, columns
    a, b, c, d = sizes
    costs = a * b * c + a * c * d, b * c * d + a * b * d
    now, otherwise = (2 * product.batch * cost for cost in (costs if left_first else costs[::-1]))
    if now < _LESS * otherwise:
        return None
    return Chain(product.batch, sizes, left_first, now, otherwise, learns, lines)


def _layout_of(tensor: Any) -> Layout:
    rows, columns = zip(tensor.shape[-2:], tensor.stride()[-2:])
    return rows, columns


class ChainGroup:
    """Costly products that the same lines of the program compute, in calls of one range.

    Attributes:
        steps: the steps that have them.
    """

    def __init__(self) -> None:
        self.steps: set[int] = set()
        self._chains: list[Chain] = []

    def add(self, step: int, chain: Chain) -> None:
        """Add a product."""
        self.steps.add(step)
        self._chains.append(chain)

    @property
    def spared(self) -> int:
        """The operations that the other order spares."""
        return sum(one.operations - one.otherwise for one in self._chains)

    def row(self, head: Sequence[Any], by_line: Counter[str]) -> SeenProducts:
        """Their row in the mark; `by_line` has the operations of all products by line."""
        chains = self._chains
        largest = max(chains, key=lambda one: one.operations)
        group = ProductGroup(
            steps=len(self.steps),
            learns=[one.learns for one in chains],
            operations=sum(one.operations for one in chains),
            lines=Counter(largest.lines),
        )
        otherwise = sum(one.otherwise for one in chains)
        about = largest.batch, [*largest.sizes], largest.left_first
        return (*group.row(head, by_line), otherwise, *about)
