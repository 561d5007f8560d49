"""What a program does with products of matrices: their sizes and order are in no recording."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from nsysflow.runtime.chains import ChainGroup, ChainsOfCall
from nsysflow.runtime.factors import MergedAdapters, ZerosInProducts
from nsysflow.runtime.looks import About, Look, ModuleGroup
from nsysflow.runtime.operators import Operators, is_plain, may_watch, new_watch, number_of
from nsysflow.runtime.places import calling_line
from nsysflow.runtime.process import THIS_PROCESS
from nsysflow.runtime.protocol import MERGED_ADAPTERS, PRODUCT_ORDER, ZEROS_IN_PRODUCTS
from nsysflow.runtime.recorders import nothing
from nsysflow.runtime.regions import SeenProducts

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

    def stop(self) -> None:
        """Never watch again."""
        self._torch = None
        self._end()
        if self._watch is not None:
            self._watch.leave()

    def enter(self, module: Any, args: Any, kwargs: Any, phase: str = "") -> Callable[[], object]:
        """As other looks do; only outermost calls are watched."""
        if not phase or threading.get_ident() != self._thread or self._watch is not None:
            return nothing
        ended = super().enter(module, args, kwargs, phase)
        return partial(self._leave, ended)

    def returned(self, result: Any) -> None:
        """The outermost call has computed this, and ends."""
        if threading.get_ident() == self._thread:
            self._safely(self._returned, result)

    def _returned(self, result: Any) -> None:
        chains, self._chains = self._chains, None
        if chains is not None and self._watch is not None:
            about = self._about
            for chain in chains.end(_parts_of(self._torch, result)):
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
        self._watch = new_watch(self._torch, self._see)
        self._watch.__enter__()
        return None

    def _leave(self, ended: Callable[[], object]) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.leave()
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
            return
        line = calling_line()
        self._by_line[self._about[2]][line] += product.operations
        self._chains.multiply(product, line, args, kwargs)
        self._adapters.multiply(product, args, self._about, line, self._step)
        self._zeros.multiply(product, self._about, line, self._step)

    def _go_on(self, age: int) -> None:
        if self.looking and age < _STEPS:
            self._zeros.begin_step()
            return
        if self.looking:
            self.looking = False
            heads = {about: self._head(about) for about in self._models}
            self._note(self._ordered())
            self._note(self._adapters.rows(_STEPS, heads, self._by_line), MERGED_ADAPTERS)
        if not self._models or age > _PATIENCE:
            self._end()
        elif self._zeros.are_here():
            heads = {about: self._head(about) for about in self._models}
            self._note(self._zeros.rows(_STEPS, heads, self._by_line), ZEROS_IN_PRODUCTS)
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
