"""Which optimizer has the gradients of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from nsysflow.runtime.calls import UNMADE

UNUSED: Final = 0
"""The owner of parameters with a gradient that belong to no optimizer."""

SHARED: Final = -1
"""That of parameters which several optimizers have, such as a wrapper and what it wraps."""


class Owners:
    """Who has the gradients of modules."""

    def __init__(self, owners: dict[int, int]) -> None:
        self._owners = owners
        self._found: dict[int, set[int]] = {}

    def of(self, module: Any) -> set[int]:
        """The owners of the parameters in a module that have gradients, or may get some."""
        found = self._found.get(id(module))
        if found is None:
            found = self._found[id(module)] = {
                owner
                for one in filter(_is_there, module._parameters.values())
                if (owner := self._owner(one)) is not None
            }
            for child in filter(_is_there, module._modules.values()):
                found |= self.of(child)
        return found

    def _owner(self, parameter: Any) -> int | None:
        owner = self._owners.get(id(parameter))
        if owner is None and parameter.requires_grad and parameter.grad is not None:
            return UNUSED
        return owner

    def modules_of(self, module: Any, owner: int) -> Iterator[Any]:
        """The largest modules in it with only this owner, those that are called."""
        if self.of(module) == {owner}:
            yield from self._callable(module)
        else:
            for child in filter(_is_there, module._modules.values()):
                if owner in self.of(child):
                    yield from self.modules_of(child, owner)

    def _callable(self, module: Any) -> Iterator[Any]:
        if type(module).forward.__name__ != UNMADE:
            yield module
            return
        for child in filter(_is_there, module._modules.values()):
            if self.of(child):
                yield from self._callable(child)

    def innermost(self, module: Any) -> Any:
        """The module in it that has all its parameters and is called; torch.compile calls none in
        what it was given."""
        while not (
            hasattr(module, "_orig_mod") or any(map(_is_there, module._parameters.values()))
        ):
            children = filter(_is_there, module._modules.values())
            inside = [child for child in children if self.of(child)]
            if len(inside) != 1 or type(inside[0]).forward.__name__ == UNMADE:
                break
            module = inside[0]
        return module


def _is_there(value: Any) -> bool:
    return value is not None
