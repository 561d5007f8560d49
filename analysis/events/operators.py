"""What an operator was called with: its tensors and other arguments (spec §24)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import msgspec
import polars as pl

BYTES: Final[Mapping[str, int]] = {
    "double": 8,
    "float": 4,
    "c10::BFloat16": 2,
    "c10::Half": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short int": 2,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
}
"""The size of an element, by the type's name in traces."""

_TORCH_NAMES: Final[Mapping[str, str]] = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
}
"""torch's names of types, where they are more than the name in lower case."""

_TENSORS: Final = "TensorList"

Dims = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of an operator.

    Attributes:
        dims: the sizes of a tensor; None for anything else.
        transposed: whether a matrix is stored column by column.
        distinct: how many different elements a tensor has in memory; an expanded one has fewer.
        type: the tensor's type, or e.g. `Scalar`, as the trace has it.
        tensors: how many tensors a list of tensors has, 0 where that was not recorded; None for
            what is no such list.
        concrete: the value of what is no tensor, as text; empty where it was not recorded.
    """

    dims: Dims | None
    transposed: bool
    distinct: int
    type: str
    tensors: int | None
    concrete: str

    @property
    def bytes(self) -> int | None:
        """What a tensor takes in memory, 0 for what is none; None where that is not known."""
        if self.dims is None:
            return 0 if self.tensors is None else None
        size = BYTES.get(self.type)
        return None if size is None else size * self.distinct


Arguments = Sequence[Argument]


def arguments(
    dims: str, types: str | None, strides: str | None, concrete: str | None
) -> tuple[Argument, ...] | None:
    """What an operator was called with, from a row of `schema.OPERATOR_SHAPES`; None where the
    lists are of something else."""
    sizes = _list(dims)
    if sizes is None:
        return None
    names, steps, values = (_list(text) or [] for text in (types, strides, concrete))
    return tuple(
        _argument(size, _at(names, at), _at(steps, at), _at(values, at))
        for at, size in enumerate(sizes)
    )


def _list(text: str | None) -> list[Any] | None:
    try:
        decoded = msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return None
    return decoded if isinstance(decoded, list) else None


def _at(values: list[Any], at: int) -> Any:
    return values[at] if at < len(values) else ""


def _argument(dims: Any, name: Any, strides: Any, concrete: Any) -> Argument:
    kind, value = (text if isinstance(text, str) else "" for text in (name, concrete))
    listed = isinstance(dims, list) and any(isinstance(each, list) for each in dims)
    none = Argument(
        dims=None, transposed=False, distinct=0, type=kind, tensors=None, concrete=value
    )
    if listed or kind == _TENSORS:
        return replace(none, tensors=len(dims) if isinstance(dims, list) else 0)
    sizes = _sizes(dims)
    if sizes is None or (not sizes and kind not in BYTES):
        return none
    steps = strides if isinstance(strides, list) and len(strides) == len(sizes) else sizes
    distinct = prod(size for size, step in zip(sizes, steps, strict=True) if step != 0 or not size)
    columns = steps is strides and len(sizes) > 1 and steps[-2] == 1 and steps[-1] != 1
    return replace(none, dims=sizes, transposed=columns, distinct=distinct)


def _sizes(dims: Any) -> Dims | None:
    whole = isinstance(dims, list) and all(type(size) is int and size >= 0 for size in dims)
    return tuple(dims) if whole else None


def of_operators(kernels: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    """Those kernels that operators launched, with `operator` and `shape`.

    Args:
        kernels: `process`, `correlation`, `detail` and any other columns.
        operators: `schema.OPERATORS`.
    """
    alone = pl.col("detail").is_not_null()
    by_call, by_kernel = operators.filter(~alone).drop("detail"), operators.filter(alone)
    key = ["process", "correlation"]
    return pl.concat(
        [kernels.join(by_call, on=key), kernels.join(by_kernel, on=[*key, "detail"])],
    )


def shapes_in_words(args: Arguments) -> str:
    """`8192x4096, 4096x4096`: the tensors among the arguments."""
    return ", ".join(filter(None, map(_in_words, args)))


def _in_words(arg: Argument) -> str:
    if arg.dims is not None:
        return "x".join(map(str, arg.dims)) or "1"
    if arg.tensors is None:
        return ""
    return f"{arg.tensors or ''} tensor{'' if arg.tensors == 1 else 's'}".strip()


def dtype_in_words(args: Arguments) -> str:
    """`bfloat16`, or `bfloat16+int64`: the tensors' types, each once, in their order."""
    types = dict.fromkeys(arg.type for arg in args if arg.dims is not None)
    return "+".join(_TORCH_NAMES.get(name, name.removeprefix("c10::").lower()) for name in types)
