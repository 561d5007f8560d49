"""Functions, coroutines and generators with a context manager around their body."""

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from functools import wraps
from types import FunctionType, MethodType
from typing import Any

Context = AbstractContextManager[None]
"""A context manager that can be entered many times."""


def require_function(function: object) -> None:
    """Accept only functions and methods.

    Raises:
        TypeError: it is a class, a staticmethod, a callable object or not callable.
    """
    if not isinstance(function, (FunctionType, MethodType)):
        msg = (
            f"@region decorates functions, and this is a {type(function).__name__}: {function!r}."
            " Put it below @staticmethod or @classmethod, on the methods of a class, or write"
            " `with region(…):` around the call"
        )
        raise TypeError(msg)


def wrapped(context: Context, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with `context` around its body; the same kind of function comes back.

    For a coroutine the context covers the whole call, waits included. For a generator it covers
    the code from one `yield` to the next, and never the consumer's code.
    """
    if inspect.iscoroutinefunction(function):
        return _coroutine(context, function)
    if inspect.isasyncgenfunction(function):
        return _async_generator(context, function)
    if inspect.isgeneratorfunction(function):
        return _generator(context, function)

    @wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        with context:
            return function(*args, **kwargs)

    return within


def _coroutine(context: Context, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def within(*args: Any, **kwargs: Any) -> Any:
        with context:
            return await function(*args, **kwargs)

    return within


def _generator(context: Context, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def within(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner = function(*args, **kwargs)
        resume, sent = inner.send, None
        while True:
            with context:
                try:
                    given = resume(sent)
                except StopIteration as end:
                    return end.value
            try:
                resume, sent = inner.send, (yield given)
            except BaseException as thrown:  # GeneratorExit too: the body must clean up
                resume, sent = inner.throw, thrown

    return within


def _async_generator(context: Context, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def within(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        resume, sent = inner.asend, None
        while True:
            with context:
                try:
                    given = await resume(sent)
                except StopAsyncIteration:
                    return
            try:
                resume, sent = inner.asend, (yield given)
            except BaseException as thrown:  # GeneratorExit too: the body must clean up
                resume, sent = inner.athrow, thrown

    return within
