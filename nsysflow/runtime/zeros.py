"""Factors of products that are mostly zeros, such as the adjacency matrix of a graph.

The GPU multiplies zeros as it does other numbers. It counts them for us, and we read the counts
some steps later, so that nobody waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import Key, copied_to_host, version_of
from nsysflow.runtime.looks import About
from nsysflow.runtime.operators import Operator, Operators, Product, Storage, number_of, storage_of
from nsysflow.runtime.regions import Zeros, captures_graph

_SMALLEST: Final = 512
"""Matrices with fewer rows or columns are not counted."""

_LEAST: Final = 0.75
_LEAST_OF_DATA: Final = 0.95
"""Less zeros are not noted, in square matrices and in others. Many of these are rows of data, and a
product with a sparse matrix is slow where a few numbers in a hundred are none."""

_MOST: Final = 32
"""We count in so many matrices of a step."""


class _Count(NamedTuple):
    """The numbers of a matrix that are no zeros, on their way from the GPU.

    Attributes:
        storage: its memory.
        sizes: the rows and columns.
        of: how many numbers it has.
        copy: how many of them are no zeros, in the host's memory.
        arrived: completes once that is there; None if it was on the CPU.
    """

    storage: Storage
    sizes: tuple[int, int]
    of: int
    copy: Any
    arrived: Any

    @property
    def zeros(self) -> float:
        """The share of zeros."""
        return 1 - float(self.copy.item()) / self.of

    def is_sparse(self) -> bool:
        """Whether it is mostly zeros."""
        rows, columns = self.sizes
        return self.zeros >= (_LEAST if rows == columns else _LEAST_OF_DATA)


class _Factor(NamedTuple):
    """A factor of a product.

    Attributes:
        matrix: its zeros.
        operations: the arithmetic operations of the product.
        learns: whether the product has gradients.
    """

    matrix: _Count
    operations: int
    learns: bool


class ZerosInProducts:
    """Counts zeros in factors that no network has computed: an activation has zeros, too.

    Whatever is computed from parameters or by products is of a network.
    """

    def __init__(self, torch: Any, operators: Operators) -> None:
        self._torch, self._operators = torch, operators
        self._computed: set[int] = set()
        self._counts: dict[Key, _Count] = {}
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
        change = (
            self._computed.add if any(map(self._is_computed, given)) else self._computed.discard
        )
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
            one.matrix.arrived is None or one.matrix.arrived.query()
            for steps in self._factors.values()
            for factors in steps.values()
            for one in factors
        )

    def rows(
        self, steps: int, heads: dict[About, tuple[Any, ...]], by_line: dict[str, Counter[str]]
    ) -> list[Zeros]:
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
            of_range = by_line[about[2]]
            largest = max(factors, key=lambda one: one.operations)
            sums = sum(one.operations for one in factors)
            spared = int(sum(one.operations * one.matrix.zeros for one in factors))
            counts = len(of_steps), len(factors), sum(one.learns for one in factors)
            operations = sums, spared, of_range[line], sum(of_range.values())
            rows.append((*heads[about], *counts, [*largest.matrix.sizes], *operations, [line]))
        return sorted(rows, key=lambda row: -row[11])

    def _is_computed(self, tensor: Any) -> bool:
        return (
            type(tensor) is not self._torch.Tensor
            or tensor.requires_grad
            or number_of(tensor) in self._computed
        )

    def _counted(self, factor: Any) -> _Count | None:
        """The zeros of a factor; None of one that is not counted."""
        if factor.ndim < 2 or min(factor.shape[-2:]) < _SMALLEST or self._is_computed(factor):
            return None
        key = number_of(factor), tuple(sorted(factor.shape)), version_of(factor)
        if key not in self._counts:
            if len(self._counts) >= _MOST or not self._can_count(factor):
                return None
            self._counts[key] = self._count(factor)
        return self._counts[key]

    def _can_count(self, factor: Any) -> bool:
        known = factor.is_floating_point() and factor.element_size() > 1
        known = known and factor.device.type in ("cuda", "cpu")
        return known and not captures_graph()

    def _count(self, factor: Any) -> _Count:
        torch = self._torch
        with torch.no_grad():
            one = factor.detach()
            for at, stride in enumerate(one.stride()):
                if not stride:  # it is expanded
                    one = one.narrow(at, 0, 1)
            kind = torch.promote_types(one.dtype, torch.float32)
            others = torch.linalg.vector_norm(one, 0, dtype=kind)  # as one kernel
            rows, columns = factor.shape[-2:]
            host = copied_to_host(torch, others)
            return _Count(storage_of(torch, factor), (rows, columns), one.numel(), *host)
