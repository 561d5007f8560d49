"""What a program does with products of matrices: their sizes and order are in no recording.

(A B) C and A (B C) are the same, and may differ much in their arithmetic. Attention without a
softmax is such a case. We follow the first product to the second one, through views, copies and
multiplication by a number. If anything else reads it, the order cannot be changed.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import DEEPEST, calling_line, values_in
from nsysflow.runtime.factors import MergedAdapters, ZerosInProducts
from nsysflow.runtime.looks import About, Look, ModuleGroup
from nsysflow.runtime.masked_rows import MaskedRows
from nsysflow.runtime.operators import (
    Operator,
    Operators,
    Product,
    ProductGroup,
    Storage,
    is_plain,
    may_watch,
    new_watch,
    number_of,
    storage_of,
)
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import (
    MASKED_ROWS,
    MERGED_ADAPTERS,
    PRODUCT_ORDER,
    ZEROS_IN_PRODUCTS,
)
from nsysflow.runtime.recorders import nothing
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


_STEPS: Final = 2
"""A look takes so many steps, and a fault occurs in each of them."""

_PATIENCE: Final = 50
"""After so many steps we drop counts that have not arrived."""


class Products(Look):
    """Watches the operators in outermost module calls.

    It does not once the program has called torch.compile, as that runs other code while operators
    are watched.
    """

    kind = PRODUCT_ORDER

    def __init__(self) -> None:
        self._watch: Any = None
        self._operators = Operators(None)
        super().__init__()

    def prepare(self, torch: Any) -> None:
        """Start in this process."""
        super().prepare(torch)
        self._operators = Operators(torch)
        self._end()

    def _end(self) -> None:
        super()._end()
        self._chains: ChainsOfCall | None = None
        self._models: dict[About, ModuleGroup] = {}
        self._plain: dict[int, bool] = {}
        self._costly: dict[tuple[About, tuple[str, ...]], ChainGroup] = defaultdict(ChainGroup)
        self._by_line: dict[str, Counter[str]] = defaultdict(Counter)
        self._about: About = "", "", ""
        self._adapters = MergedAdapters(self._torch, self._operators)
        self._zeros = ZerosInProducts(self._torch, self._operators)
        self._masked = MaskedRows(self._torch, self._operators, self._zeros.is_computed)

    def stop(self) -> None:
        """Never watch again."""
        self._torch = None
        self._end()
        if self._watch is not None:
            self._watch.leave()

    def enter(self, module: Any, args: Any, kwargs: Any, phase: str = "") -> Callable[[], object]:
        """As other looks do; operators are watched in outermost calls."""
        if threading.get_ident() != self._thread:
            return nothing
        if phase and self._watch is None:
            ended = super().enter(module, args, kwargs, phase)
            return partial(self._leave, ended)
        if not phase and self._watch is not None:
            self._safely(self._masked.enter, module)
            return partial(self._safely, self._masked.leave)
        return nothing

    def returned(self, result: Any) -> None:
        """The outermost call has computed this, and ends."""
        if threading.get_ident() == self._thread:
            self._safely(self._returned, result)

    def returned_within(self, result: Any) -> None:
        """A call within the outermost one has computed this, and ends."""
        if self._watch is not None and threading.get_ident() == self._thread:
            self._safely(self._masked.returned, result)

    def _returned(self, result: Any) -> None:
        chains, self._chains = self._chains, None
        if chains is not None and self._watch is not None:
            about, parts = self._about, _parts_of(self._torch, result)
            self._masked.end_call(values_in(parts, DEEPEST))
            for chain in chains.end(parts):
                self._costly[about, chain.lines].add(self._step, chain)

    def _enter(
        self, module: Any, args: Any, kwargs: Any, phase: str
    ) -> Callable[[], object] | None:
        if THIS_PROCESS.window == "open":  # it would slow down what is recorded
            return None
        if id(module) not in self._plain:
            self._plain[id(module)] = is_plain(self._torch, module)
        if not self._plain[id(module)] or not may_watch(self._torch, (args, kwargs)):
            return None
        self._about = self._group_of(module, self._models, ModuleGroup).about
        self._chains = ChainsOfCall(self._torch, self._operators)
        weights = filter(self._operators.is_dense, module.parameters())
        parameters = frozenset(map(number_of, weights))
        self._adapters.begin_call(parameters)
        self._zeros.begin_call(parameters)
        self._masked.forget_call()
        self._watch = new_watch(self._torch, self._see)
        self._watch.__enter__()
        return None

    def _leave(self, ended: Callable[[], object]) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.leave()
            self._masked.forget_call()
        self._chains = None
        ended()

    def _see(self, *operator: Any) -> None:
        """An operator has run; never raises."""
        if self._chains is not None:
            self._safely(self._operator, *operator)

    def _operator(self, func: Any, types: Any, args: Any, kwargs: Any, result: Any) -> None:
        if self._chains is None or (types and not self._operators.are_plain(types)):
            raise TypeError
        of = self._operators.of(func)
        if of.always:
            return
        product = self._operators.product_of(of, args, kwargs, result)
        if product is None:
            self._chains.pass_on(of, args, kwargs, result)
            self._adapters.pass_on(of, args, kwargs, result)
            self._zeros.pass_on(of, args, kwargs, result)
            self._masked.pass_on(of, args, kwargs, result, self._about, self._step)
            return
        line = calling_line()
        self._by_line[self._about[2]][line] += product.operations
        self._chains.multiply(product, line, args, kwargs)
        self._adapters.multiply(product, args, self._about, line, self._step)
        self._zeros.multiply(product, self._about, line, self._step)
        self._masked.multiply(product)

    def _go_on(self, age: int) -> None:
        if self.looking and age < _STEPS:
            self._zeros.begin_step()
            self._masked.begin_step()
            return
        if self.looking:
            self.looking = False
            heads = {about: self._head(about) for about in self._models}
            self._note(self._ordered())
            self._note(self._adapters.rows(_STEPS, heads, self._by_line), MERGED_ADAPTERS)
        if not self._models or age > _PATIENCE:
            self._end()
        elif self._zeros.are_here() and self._masked.are_here():
            heads = {about: self._head(about) for about in self._models}
            self._note(self._zeros.rows(_STEPS, heads, self._by_line), ZEROS_IN_PRODUCTS)
            self._note(self._masked.rows(_STEPS, self._weights_in), MASKED_ROWS)
            self._end()

    def _ordered(self) -> list[SeenProducts]:
        groups = [(about, one) for (about, _), one in self._costly.items()]
        sure = [each for each in groups if len(each[1].steps) >= _STEPS]
        sure.sort(key=lambda each: each[1].spared, reverse=True)
        return [one.row(self._head(about), self._by_line[about[2]]) for about, one in sure]

    def _head(self, about: About) -> tuple[Any, ...]:
        """The first values of a row. The lines of a model's `forward` are not among them: those
        that compute the products are known."""
        name, outermost, phase, _, weights, of = self._models[about].head(
            self._weights_in(about[2])
        )
        return name, outermost, phase, [], weights, of


def _parts_of(torch: Any, result: Any) -> Any:
    """The attributes of an object that is neither a tensor nor a list or dict."""
    known = torch.Tensor, Mapping, tuple, list
    return result if isinstance(result, known) else getattr(result, "__dict__", None)


PRODUCTS: Final = Products()
"""Watches products in this process."""
