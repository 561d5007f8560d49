"""Watching the operators of a module call, and what they do with tensors.

A mode of torch sees each operator once it has run. It changes no argument and no result, and we
keep only sizes and weak references.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from nsysflow.runtime.calls import DEEPEST, values_in
from nsysflow.runtime.looks import most_lines
from nsysflow.runtime.regions import SeenProducts, captures_graph

_NOT_RUNNING: Final = -1

_SHARDED: Final = ("torch.distributed.fsdp.", "torch.distributed._composable.")
"""Where wrappers are defined that exchange the parameters of a module while it runs."""

_PRODUCTS: Final = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::mv": 0,
    "aten::matmul": 0,
    "aten::linear": 0,
    "aten::addmm": 1,
    "aten::baddbmm": 1,
    "aten::addmv": 1,
}
"""Products of two matrices, and the place of the first one among their arguments."""

_SCALES: Final = ("aten::mul", "aten::div", "aten::mul_", "aten::div_")

_COPIES: Final = ("aten::clone", "aten::_to_copy")

_VIEWS: Final = ("aten::_unsafe_view", "aten::_reshape_alias")
"""Views whose schema does not say so."""

See = Callable[[Any, Any, Any, Any, Any], object]
"""Called with an operator, the kinds of tensors, both kinds of arguments, and the result."""


def new_watch(torch: Any, see: See) -> Any:
    """A mode of torch that calls `see` after each operator. `leave` ends it."""
    dispatch = torch.utils._python_dispatch
    mode: Any = dispatch.TorchDispatchMode

    class OperatorWatch(mode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else the first operator would import Dynamo

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            see(func, types, args, kwargs, result)
            return result

        def leave(self) -> None:
            if dispatch._get_current_dispatch_mode() is self:
                self.__exit__(None, None, None)

    return OperatorWatch()


def may_watch(torch: Any, given: Any) -> bool:
    """Whether a call with these arguments can be watched: nothing else watches, traces or captures
    operators, no backward pass runs, and all tensors are plain."""
    core = torch._C
    return (
        core._len_torch_dispatch_stack() == 0
        and core._len_torch_function_stack() == 0
        and core._get_tracing_state() is None
        and core._functorch.peek_interpreter_stack() is None
        and core._current_graph_task_id() == _NOT_RUNNING
        and not captures_graph()
        and are_plain(torch, values_in(given, DEEPEST))
    )


def are_plain(torch: Any, values: Iterable[Any]) -> bool:
    """Whether all tensors among these are torch's own kind."""
    kinds = torch.Tensor, torch.nn.Parameter
    return all(type(one) in kinds for one in values if isinstance(one, torch.Tensor))


def is_plain(torch: Any, module: Any) -> bool:
    """Whether a module has plain tensors only, and neither TorchScript nor FSDP runs it."""
    for each in module.modules():
        kind = type(each)
        if isinstance(each, torch.jit.ScriptModule) or kind.__module__.startswith(_SHARDED):
            return False
        held = vars(each)
        if not are_plain(torch, (*held["_parameters"].values(), *held["_buffers"].values())):
            return False
    return True


class Storage(NamedTuple):
    """The memory of a tensor, which is not kept.

    Attributes:
        number: that of no other memory, as long as this object is there.
        ref: a weak reference.
    """

    number: int
    ref: Any


def storage_of(torch: Any, tensor: Any) -> Storage:
    """The memory of a tensor."""
    storage = tensor.untyped_storage()
    return Storage(storage._cdata, torch.multiprocessing.reductions.StorageWeakRef(storage))


def number_of(tensor: Any) -> int:
    """The number of a dense tensor's memory."""
    return int(tensor.untyped_storage()._cdata)


class Product(NamedTuple):
    """A product of two matrices, or of two batches of matrices.

    Attributes:
        left: the first factor.
        right: the second one.
        right_turned: whether that is given transposed.
        result: the product.
        batch: the number of matrices.
        rows: those of the result.
        inner: the columns of the first factor.
        columns: those of the result.
        is_pure: whether nothing is added to it.
    """

    left: Any
    right: Any
    right_turned: bool
    result: Any
    batch: int
    rows: int
    inner: int
    columns: int
    is_pure: bool

    @property
    def operations(self) -> int:
        """The arithmetic operations that it takes."""
        return 2 * self.batch * self.rows * self.inner * self.columns


class ProductGroup(NamedTuple):
    """Products that lines of the program compute, in calls of one range.

    Attributes:
        steps: how many steps have them.
        learns: of each, whether it has gradients.
        operations: the arithmetic operations that are counted of them.
        lines: which compute what is counted, and how often.
    """

    steps: int
    learns: Sequence[bool]
    operations: int
    lines: Counter[str]

    def row(self, head: Sequence[Any], by_line: Counter[str]) -> SeenProducts:
        """The first values of their row in a mark.

        Args:
            head: those of the model.
            by_line: the operations of all products in such calls, by line.
        """
        counts = self.steps, len(self.learns), sum(self.learns), self.operations
        of_lines = sum(by_line[line] for line in self.lines)
        return (*head, *counts, of_lines, sum(by_line.values()), most_lines(self.lines))


class Operator(NamedTuple):
    """What an operator does with tensors.

    Attributes:
        name: its name, as `aten::mm`.
        factor: the place of the first factor among the arguments of a product; None for others.
        scales: whether it may multiply a tensor by a number.
        copies: whether it copies a tensor.
        views: whether it makes views. A few of these copy the tensor where they cannot.
        always: whether it always makes views.
    """

    name: str
    factor: int | None
    scales: bool
    copies: bool
    views: bool
    always: bool


class Operators:
    """What operators do. Their schemas are read once."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._kinds = (torch.Tensor, torch.nn.Parameter) if torch else ()
        self._known: dict[Any, Operator] = {}

    def of(self, func: Any) -> Operator:
        """What an operator does."""
        known = self._known.get(func)
        if known is None:
            known = self._known[func] = _operator(self._torch, func)
        return known

    def product_of(self, of: Operator, args: Any, kwargs: Any, result: Any) -> Product | None:
        """The product of matrices that an operator has computed; None for all others."""
        at = of.factor
        if at is None or len(args) < at + 2 or not self.is_dense(result):
            return None
        left, right = args[at : at + 2]
        if not (self.is_dense(left) and self.is_dense(right)) or left.ndim < 2:
            return None
        turned = of.name == "aten::linear"
        bias = next(iter(args[2:]), kwargs.get("bias")) if turned else None
        rows, inner = left.shape[-2:]
        columns = 1 if right.ndim == 1 else right.shape[-2 if turned else -1]
        matrix = rows * columns
        if not matrix * inner or (turned and right.ndim == 1):
            return None
        batch = result.numel() // matrix
        pure = bias is None and (at == 0 or kwargs.get("beta", 1) == 0)
        return Product(left, right, turned, result, batch, rows, inner, columns, pure)

    def source_of(self, of: Operator, args: Any, kwargs: Any, result: Any) -> Any:
        """The tensor that an operator copies as a whole, perhaps multiplied by a number; else
        None."""
        source: Any = None
        if of.scales and not kwargs and len(args) == 2:
            one, other = args
            if self._is_number(other):
                source = one
            elif of.name == "aten::mul" and self._is_number(one):
                source = other
        elif (of.copies or of.views) and args:
            source = args[0]
        if not self.is_dense(source) or not self.is_dense(result):
            return None
        return source if source.shape[-2:] == result.shape[-2:] else None

    def shares_memory(self, args: Any, result: Any) -> bool:
        """Whether the results of an operator that makes views are in the memory of its argument."""
        if not args or not self.is_dense(args[0]):
            return False
        results = result if isinstance(result, (list, tuple)) else (result,)
        number = number_of(args[0])
        return all(self.is_dense(one) and number_of(one) == number for one in results)

    def is_dense(self, value: Any) -> bool:
        """Whether this is a dense tensor of torch's own kind."""
        return type(value) in self._kinds and value.layout is self._torch.strided

    def are_plain(self, types: Iterable[Any]) -> bool:
        """Whether all of these kinds of tensors are torch's own."""
        return all(kind in self._kinds for kind in types)

    def dense_in(self, values: Iterable[Any]) -> Iterator[Any]:
        """The dense tensors among arguments, also in lists."""
        for one in values:
            if type(one) in (list, tuple):
                yield from filter(self.is_dense, one)
            elif self.is_dense(one):
                yield one

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, (int, float)):
            return True
        return isinstance(value, self._torch.Tensor) and value.ndim == 0


def _operator(torch: Any, func: Any) -> Operator:
    schema = getattr(func, "_schema", None)
    if schema is None:  # an operator of a higher order
        return Operator("", None, scales=False, copies=False, views=False, always=False)
    name, aliases = schema.name, [one.alias_info for one in schema.returns]
    views = bool(aliases) and aliases[0] is not None and not aliases[0].is_write
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    )
    return Operator(
        name,
        _PRODUCTS.get(name),
        scales=name in _SCALES,
        copies=name in _COPIES,
        views=views or name in _VIEWS,
        always=(views and not composite) or name in _VIEWS,
    )
