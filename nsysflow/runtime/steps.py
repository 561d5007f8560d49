"""`steps`: a loop that marks each step and captures some of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final, TypeVar

from nsysflow.runtime import collectors
from nsysflow.runtime.pace import Pace
from nsysflow.runtime.protocol import CAPTURE, Window
from nsysflow.runtime.regions import Region, region
from nsysflow.runtime.this_process import THIS_PROCESS, save_status_at_exit, save_status_once
from nsysflow.runtime.window import count_step

Batch = TypeVar("Batch")

_END: Final[Any] = object()


def steps(
    iterable: Iterable[Batch], *, wait: int = 3, warmup: int = 2, active: int = 5
) -> Iterator[Batch]:
    """Loop over `iterable`, marking each step and capturing the active ones.

    A step is fetching a batch and the loop's body. `wait` and `warmup` steps pass, then the capture
    window opens for `active` steps, once in a process: a second loop continues the count of the
    first, and a window that is open stays open between the two. It closes after the last active
    step, or when the program ends. `nsysflow profile --capture` overrides the three numbers; after
    its window, looping costs nothing extra. Without a profiler this is `iter(iterable)`.

    A step is marked, and the window opened, only when there is a batch. An iterable without a
    length must be asked for its batch first: then `data` lies before each step and the window.

        for batch in steps(loader, wait=3, warmup=2, active=5):
            train(batch)

    Raises:
        ValueError: a number is negative, or no step is active.
    """
    asked = os.environ.get(CAPTURE)
    window = Window(wait=wait, warmup=warmup, active=active)
    if collectors.COLLECTOR_HERE is None:
        return iter(iterable)
    save_status_at_exit()
    save_status_once()
    THIS_PROCESS.looped = True
    pace = Pace(
        Window.parse(asked) if asked else window, collectors.COLLECTOR_HERE, asked=bool(asked)
    )
    return _marked(iterable, pace)


def _marked(iterable: Iterable[Batch], pace: Pace) -> Iterator[Batch]:
    iterator = iter(iterable)
    length = _length(iterable)
    with pace:
        for taken in count():
            if taken == length:
                break
            pace.between_steps()
            if pace.over:
                break
            batch = _END
            if length is None and (batch := _fetch(iterator)) is _END:
                return
            if pace.due:
                pace.open()
            with region(Region.STEP, THIS_PROCESS.steps):
                if batch is _END and (batch := _fetch(iterator)) is _END:
                    return
                count_step()
                yield batch
    yield from iterator


def _fetch(iterator: Iterator[Any]) -> Any:
    """The next batch, or `_END`."""
    with region(Region.DATA):
        return next(iterator, _END)


def _length(iterable: Iterable[object]) -> int | None:
    """The number of steps, if the iterable knows it."""
    try:
        return len(iterable)  # type: ignore[arg-type]
    # this runs the loader's code: a missing sampler, 10**30 batches, "unknown until the first
    # epoch". The program did not ask for the length, so no error of it may reach the program
    except Exception:
        return None
