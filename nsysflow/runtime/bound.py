"""A recording that ends once it holds enough steps, and the time of the steps after it.

Recording starts with the program. Each process says when its first step began and when it has
enough of them; `nsysflow profile` then stops nsys, and says when nsys has what it recorded. The
process takes CUPTI out of itself then, and its steps are plain; where it cannot, they are once nsys
has written the reports and has left. Some of the plain steps are timed.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import Final

from nsysflow.runtime.captures import synchronize
from nsysflow.runtime.cupti import detach_cupti
from nsysflow.runtime.process import THIS_PROCESS, is_loader_worker
from nsysflow.runtime.protocol import BEGUN, BOUND, COLLECTED, ENOUGH, RECORDED, RUN_FOLDER

ENOUGH_STEPS: Final = 34
"""30 typical steps, with two of start-up and some that are longer."""

ENOUGH_NS: Final = 2_000_000_000
"""So long are the steps that are recorded at least: short ones vary most."""

PLAIN_STEPS: Final = 30
"""So many plain steps are timed: the mean of fewer varies by more than 2 %."""

FEWEST_PLAIN: Final = 10
"""A program that ends meanwhile has timed at least so many, or none."""

PLAIN_NS: Final = 1_000_000_000
"""So long are the plain steps at least."""


class Bound:
    """Counts the steps of this process. Each call at a border between two of them is cheap."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps = 0
        self._first_ns = 0
        self._told = False
        self._collected = False
        self._plain_from_ns: int | None = None
        self._plain_steps = 0

    def step(self) -> None:
        """A step begins."""
        now_ns = time.perf_counter_ns()
        self._steps += 1
        if self._steps == 1:
            self._first_ns = now_ns
            self._say(BEGUN)
        lasted_ns = now_ns - self._first_ns
        if not self._told and self._steps > ENOUGH_STEPS and lasted_ns >= ENOUGH_NS:
            self._told = True
            self._say(ENOUGH)
        if self._plain_from_ns is None:
            if self._is_plain():
                synchronize()
                self._plain_from_ns = time.perf_counter_ns()
        elif self._plain_steps >= 0:
            self._count_plain(now_ns, self._plain_from_ns)

    def _is_plain(self) -> bool:
        """Whether steps are plain from here on."""
        if not self._collected:
            self._collected = (self._folder / COLLECTED).exists()
            if not self._collected or detach_cupti():
                return self._collected
        return (self._folder / RECORDED).exists()

    def _count_plain(self, now_ns: int, from_ns: int) -> None:
        """Another plain step has ended; the GPU may be some steps behind the host."""
        self._plain_steps += 1
        is_last = self._plain_steps >= PLAIN_STEPS and now_ns - from_ns >= PLAIN_NS
        if is_last:
            synchronize()
            now_ns = time.perf_counter_ns()
        if self._plain_steps >= FEWEST_PLAIN:
            THIS_PROCESS.plain_step_ns = round((now_ns - from_ns) / self._plain_steps)
        if is_last:
            self._plain_steps = -1

    def _say(self, what: str) -> None:
        """Leave a file that says so. A folder that is gone or full does not stop the program."""
        try:
            (self._folder / f"{what}-{os.getpid()}").touch()
        except OSError:
            self._told = True


@cache
def _bound_of(_pid: int) -> Bound | None:
    """The bound of a process, a forked one of its own; None where the recording has none."""
    folder = os.environ.get(RUN_FOLDER)
    if not folder or BOUND not in os.environ or is_loader_worker():
        return None
    return Bound(Path(folder))


def count_bounded_step() -> None:
    """A step begins in this process."""
    bound = _bound_of(os.getpid())
    if bound is not None:
        bound.step()
