"""JSON of ours, checked against the dataclass that wrote it."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def decode(kind: type[T], found: object, *, name: str = "the document") -> T:
    """`found`, as `json.loads` gives it, as an instance of the dataclass `kind`.

    Keys that the dataclass does not have are dropped: another version may have added them.

    Args:
        kind: the dataclass.
        found: the JSON value.
        name: what to call the value in an error.

    Raises:
        ValueError: a field is missing or has a value of another type; the message names it.
    """
    return _value(kind, found, name)  # type: ignore[no-any-return]  # `kind` is what comes back


def _value(kind: Any, found: Any, name: str) -> Any:
    """`found` as a value of the type `kind`."""
    origin, args = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(found, dict):
        return _dataclass(kind, found, name)
    if origin in (Union, UnionType):
        return None if found is None and NoneType in args else _value(args[0], found, name)
    if origin is tuple and isinstance(found, list):
        return tuple(_value(args[0], each, f"{name}[{at}]") for at, each in enumerate(found))
    if origin in (dict, Mapping) and isinstance(found, dict):
        return {key: _value(args[1], each, f"{name}.{key}") for key, each in found.items()}
    if kind is Any or (origin is Literal and found in args) or type(found) is kind:
        return found
    if kind is float and type(found) is int:
        return float(found)
    msg = f"{name} is {found!r:.40}, not {getattr(kind, '__name__', None) or kind}"
    raise ValueError(msg)


def _dataclass(kind: Any, found: Mapping[str, Any], name: str) -> Any:
    hints = get_type_hints(kind)
    values = {}
    for field in fields(kind):
        if field.name in found:
            values[field.name] = _value(
                hints[field.name], found[field.name], f"{name}.{field.name}"
            )
        elif field.default is MISSING and field.default_factory is MISSING:
            msg = f"{name} has no {field.name}"
            raise ValueError(msg)
    return kind(**values)
