"""A choice of names that answers a mistyped one with the nearest."""

from collections.abc import Iterable
from typing import Any

import click

from nsysflow.base.names import near_or_all


class OneOf(click.Choice):  # type: ignore[type-arg]  # click 8.1 has no type argument
    """One of the names of some kind, such as `table`."""

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        super().__init__([*names])
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            near = near_or_all(value, self.choices, where="-h")
            self.fail(f"no {self.kind} is called {value!r}. {near}")
        found: str = super().convert(value, param, ctx)
        return found
