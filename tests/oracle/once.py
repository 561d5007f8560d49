"""What several tables of a report ask for is found once."""

from collections.abc import Callable
from functools import lru_cache, wraps
from inspect import signature
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")


def once(find: Callable[Given, Found]) -> Callable[Given, Found]:
    """`find` that keeps its last eight results, by its arguments. Nobody may change a result."""
    kept = lru_cache(maxsize=8)(find)
    parameters = signature(find)

    @wraps(find)
    def found(*args: Given.args, **named: Given.kwargs) -> Found:
        given = parameters.bind(*args, **named)
        given.apply_defaults()  # an argument that is left out is the same as its default
        return kept(*given.arguments.values())

    return found
