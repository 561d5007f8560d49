"""Independent pieces of work in parallel: polars releases the GIL while it computes."""

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from threading import RLock
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import polars as pl

from nsysflow.analysis.frames.scratch import Scratch, in_files

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")


def side_by_side(
    work: Iterable[Callable[[], T]],
    done: Callable[[], object] = lambda: None,
    *,
    at_once: int | None = None,
) -> list[T]:
    """Results of `work` in order.

    If a piece fails, or Ctrl-C comes, those that have not begun do not begin.

    Args:
        work: the pieces.
        done: called after each piece, by its thread.
        at_once: so many pieces at a time; None for as many as polars has threads.
    """
    threads = at_once or pl.thread_pool_size()
    if threads == 1:
        return [_noted(piece, done) for piece in work]  # a thread would cost more
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(piece) for piece in work]
        for future in futures:
            future.add_done_callback(lambda _: done())
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _noted(piece: Callable[[], T], done: Callable[[], object]) -> T:
    try:
        return piece()
    finally:
        done()


def once_for_each(
    compute: Callable[Concatenate[Any, K, P], T],
) -> Callable[Concatenate[Any, K, P], T]:
    """A method that one thread computes once for each first argument; others wait for it. The other
    arguments must not change what it gives."""

    @wraps(compute)
    def known(self: object, key: K, /, *others: P.args, **named: P.kwargs) -> T:
        values: dict[K, T] = self.__dict__.setdefault(f"{compute.__name__} for each", {})
        locks: dict[K, RLock] = self.__dict__.setdefault(f"{compute.__name__} locks", {})
        with locks.setdefault(key, RLock()):
            if key not in values:
                values[key] = compute(self, key, *others, **named)
        return values[key]

    return known


class computed_once(Generic[T]):
    """A property that one thread computes when it is first read; other threads wait for it.

    `functools.cached_property` lets each thread compute it again (from Python 3.12 on). Where the
    object has a `scratch`, large frames are kept there.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        # The value shadows this descriptor once it is there, so that reading it costs nothing.
        return kept_with(instance, self.name, lambda: self.compute(instance))


def kept_with(holder: object, name: str, compute: Callable[[], T]) -> T:
    """What `compute` gives, kept with `holder` under this name: one thread computes it, others
    wait for it. Where the holder has a `scratch`, large frames are kept there."""
    values: dict[str, Any] = holder.__dict__
    with values.setdefault(f"{name} lock", RLock()):
        if name not in values:
            scratch: Scratch | None = getattr(holder, "scratch", None)
            values[name] = in_files(compute(), scratch)
    value: T = values[name]
    return value
