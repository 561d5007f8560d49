"""The oracle is not measured: to trace its lines takes `make coverage` as long again."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def unmeasured(function: Callable[P, T]) -> Callable[P, T]:
    """The same function; what it runs is not traced."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return function(*args, **kwargs)
        finally:
            sys.settrace(tracer)

    return run
