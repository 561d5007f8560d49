"""The last results of slow work, so that it is not done again."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """The last few results by their keys. Of several threads that ask for one, one makes it."""

    def __init__(self, most: int) -> None:
        """Keep at most `most` results; the one that was longest not asked for goes first."""
        self._most = most
        self._places: OrderedDict[Hashable, _Place[T]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of that key; made if it is not kept. An error is not kept."""
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
            while len(self._places) > self._most:
                self._places.popitem(last=False)
        return place.get(make)


class _Place(Generic[T]):
    """Where one result is, once it is made."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: list[T] = []

    def get(self, make: Callable[[], T]) -> T:
        with self._lock:
            if not self._made:
                self._made.append(make())
            return self._made[0]
