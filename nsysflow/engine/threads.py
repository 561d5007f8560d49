"""Threads of this process: polars releases the GIL while it computes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from nsysflow.engine.part import Done, Item, Part, T, all_joined, part_of


@dataclass(frozen=True, kw_only=True)
class Threads:
    """An engine of threads.

    Attributes:
        workers: at most so many items are open at once.
    """

    workers: int

    def merged(
        self,
        work: Callable[[Item], T],
        items: Sequence[Item],
        combine: Callable[[T, T], T],
        done: Done,
    ) -> Part[T]:
        """See `Engine`."""
        from nsysflow.analysis.frames.parallel import side_by_side

        pieces = [partial(part_of, work, number, item) for number, item in enumerate(items)]
        return all_joined(combine, side_by_side(pieces, done, at_once=self.workers))
