"""What became of some of the items, and how two neighbouring parts become one.

Every engine makes one part of each item and joins them in pairs, in the order of the items. So the
result does not depend on the engine, on the number of workers, or on which item was done first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from nsysflow.base.errors import NsysflowError

Item = TypeVar("Item")
T = TypeVar("T")
Done = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Part(Generic[T]):
    """What some neighbouring items became.

    Attributes:
        value: of all items that could be done; None where none could.
        failed: why others could not, by the item's number.
    """

    value: T | None = None
    failed: Mapping[int, NsysflowError] = field(default_factory=dict)


class Engine(Protocol):
    """A place where work is done, several items at a time."""

    def merged(
        self,
        work: Callable[[Item], T],
        items: Sequence[Item],
        combine: Callable[[T, T], T],
        done: Done,
    ) -> Part[T]:
        """What all items became together.

        Args:
            work: a function that a module holds by name, as workers import it from there.
            items: what it is called with, one after the other.
            combine: makes one value of those of two neighbours, the earlier one first.
            done: called after each item, by any thread.
        """
        ...


def part_of(work: Callable[[Item], T], number: int, item: Item) -> Part[T]:
    """What one item became; an error of ours is part of the answer, a bug is not."""
    try:
        return Part(value=work(item))
    except NsysflowError as error:
        return Part(failed={number: error})


def joined(combine: Callable[[T, T], T], one: Part[T], other: Part[T]) -> Part[T]:
    """Two neighbouring parts as one."""
    failed = {**one.failed, **other.failed}
    if one.value is None or other.value is None:
        return Part(value=one.value if other.value is None else other.value, failed=failed)
    return Part(value=combine(one.value, other.value), failed=failed)


def in_pairs(join: Callable[[T, T], T], parts: Sequence[T]) -> T:
    """All parts as one, by joining neighbours until one is left; there must be one at least."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        odd = parts[len(parts) & ~1 :]
        parts = [*(join(one, other) for one, other in pairs), *odd]
    return parts[0]


def all_joined(combine: Callable[[T, T], T], parts: Sequence[Part[T]]) -> Part[T]:
    """All parts as one."""
    return in_pairs(partial(joined, combine), parts)
