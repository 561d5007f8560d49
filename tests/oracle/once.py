"""How the oracle runs: what several tables ask for is found once, and nothing is measured."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from inspect import signature
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")
Key = TypeVar("Key")
Of = TypeVar("Of")


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


def grouped_by(key: Callable[[Of], Key], rows: Iterable[Of]) -> dict[Key, list[Of]]:
    """The rows of each key, in their order; none of another key."""
    found: dict[Key, list[Of]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def unmeasured(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The same function, not traced: that takes `make coverage` as long again."""

    @wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.settrace(tracer)

    return run
