"""Threads and processes that do the work of each report, and what became of some of the items."""

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from nsysflow.base.errors import NsysflowError, ReportError

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


ATTEMPTS: Final = 3
"""A worker may die of what others do: a machine without memory kills the largest process. An item
whose worker dies so often is to blame itself, as all attempts but the first are made alone."""

Made: TypeAlias = Callable[[], T]


@dataclass(frozen=True, kw_only=True)
class Processes:
    """An engine of processes.

    Attributes:
        workers: how many there are.
        threads: of polars, in each of them.
    """

    workers: int
    threads: int = 1

    def merged(
        self,
        work: Callable[[Item], T],
        items: Sequence[Item],
        combine: Callable[[T, T], T],
        done: Done,
    ) -> Part[T]:
        """See `Engine`.

        Raises:
            NsysflowError: this machine starts no process.
        """
        pieces = {n: partial(part_of, work, n, item) for n, item in enumerate(items)}
        parts: dict[int, Part[T]] = {}
        deaths = dict.fromkeys(pieces, 0)
        while left := [n for n in pieces if n not in parts]:
            first = [n for n in left if not deaths[n]]
            workers = self.workers if first else 1
            for n in self._run({n: pieces[n] for n in first or left}, workers, parts, done):
                deaths[n] += 1
                if deaths[n] == ATTEMPTS:
                    parts[n] = Part(failed={n: _killed(items[n])})
                    done()
        return all_joined(combine, [parts[n] for n in pieces])

    def _run(
        self, pieces: dict[int, Made[T]], workers: int, made: dict[int, T], done: Done
    ) -> Iterable[int]:
        """Add what the pieces make to `made`, until all are done or a worker dies; returns those
        that were under way when it died."""
        under_way: dict[Future[T], int] = {}
        waiting = iter(pieces.items())
        most = 2 * workers if workers > 1 else 1  # one behind each, so that none runs out of work
        with self._pool(workers) as pool:
            try:
                while True:
                    for n, piece in islice(waiting, most - len(under_way)):
                        under_way[pool.submit(piece)] = n
                    if not under_way:
                        return ()
                    for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                        made[under_way[future]] = future.result()
                        del under_way[future]
                        done()
            except BrokenProcessPool:
                return tuple(under_way.values())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _pool(self, workers: int) -> ProcessPoolExecutor:
        """Processes that have started.

        Raises:
            NsysflowError: they do not.
        """
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (self.threads,))
        try:
            pool.submit(os.getpid).result()
        except BrokenProcessPool as error:
            raise NsysflowError(
                "no worker process starts here; in a script, the code that analyses must stand"
                ' below `if __name__ == "__main__":`',
                "Or analyse in threads: --executor threads",
            ) from error
        return pool


def _killed(item: object) -> ReportError:
    path = getattr(item, "path", item)
    return ReportError(
        f"{path} ended its worker process {ATTEMPTS} times, probably for lack of memory",
        "Give it more memory, or analyse it by itself",
    )


def _begin(threads: int) -> None:
    """Make a new process a worker: few threads, and an end when its parent ends or on Ctrl-C.

    It is called before polars is imported, which reads the number of its threads then.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", str(threads))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the parent's end. Without this, the workers of a killed process would wait for more
    work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
