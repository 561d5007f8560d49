"""The steps of a process, counted so that a recording ends once it holds enough, and timed where
they are plain: after the recording, or in a run without a profiler.

Recording starts with the program. Each process says when its first step began and when it has
enough of them; `nsysflow profile` then stops nsys, and says when nsys has written its report. From
then on nsys and we leave the process alone, and some of its steps are timed. Not before: nsys
imports what it collected on all cores, which takes some 4 s, and steps that compute on the CPU then
took up to six times as long (an H100 with 16 cores: 84 ms, 415 ms for a histogram of 67; nsys
2025.3, 2026-11-25). To take CUPTI out of the process gives nothing more.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from nsysflow.runtime.captures import synchronize
from nsysflow.runtime.durations import Durations
from nsysflow.runtime.memory import HISTORY
from nsysflow.runtime.process import (
    THIS_PROCESS,
    is_loader_worker,
    save_status,
    save_status_at_exit,
)
from nsysflow.runtime.protocol import (
    BEGUN,
    BOUND,
    ENOUGH,
    PLAIN,
    RUN_FOLDER,
    TIMED,
    WRITTEN,
)

ENOUGH_STEPS: Final = 34
"""30 typical steps, with two of start-up and some that are longer."""

ENOUGH_NS: Final = 2_000_000_000
"""So long are the steps that are recorded at least: short ones vary most."""

PLAIN_STEPS: Final = 30
"""So many plain steps are timed: the mean of fewer varies by more than 2 %."""

FEWEST_PLAIN: Final = 10
"""A program that ends meanwhile has timed at least so many, or none. After so many, and after
twice, four times, … as many, the host waits until the GPU has done them: it runs ahead of it by up
to a thousand launches, which made 55 steps seem 17 % too short (H100, 2026-11-26)."""

PLAIN_NS: Final = 1_000_000_000
"""So long are the steps of a plain run at least. Those after a recording are as long as those in
it, so that they hold as many of its pauses."""

START_UP_STEPS: Final = 5
"""So many steps of a plain run are not timed, …"""

START_UP_NS: Final = 500_000_000
"""… for so long at least: the first load code and choose kernels, and the GPU's clock rises."""


class PlainSteps:
    """Times the steps from its creation on, which is at the border of two.

    Steps with an evaluation in them are left out where they are fewer than half: the page has
    other loops apart from the steps.

    Attributes:
        enough: whether there are enough; no more are timed then.
    """

    def __init__(self, least_ns: int) -> None:
        """Time steps for so long at least."""
        synchronize()
        self.enough = False
        self._least_ns = least_ns
        self._next_look = FEWEST_PLAIN
        self._begun_ns = time.perf_counter_ns()
        self._waited_ns = THIS_PROCESS.waited_ns
        self._plain = _Sum()
        self._evaluating = _Sum()

    def step(self, now_ns: int, *, evaluates: bool) -> None:
        """Another step has ended; the GPU may be some steps behind the host.

        Args:
            now_ns: when it ended.
            evaluates: whether it had an evaluation in it.
        """
        if self.enough:
            return
        if evaluates:
            now_ns = _all_done_ns()
        timed = self._evaluating if evaluates else self._plain
        waited_ns = THIS_PROCESS.waited_ns
        timed.add(now_ns - self._begun_ns, waited_ns - self._waited_ns)
        self._begun_ns, self._waited_ns = now_ns, waited_ns
        kept = self._kept
        self.enough = kept.steps >= PLAIN_STEPS and kept.ns >= self._least_ns
        if self.enough or kept.steps >= self._next_look:
            self._next_look = 2 * kept.steps
            self._begun_ns = _all_done_ns()
            timed.ns += self._begun_ns - now_ns
            kept = self._kept
            THIS_PROCESS.plain_step_ns = round(kept.ns / kept.steps)
            THIS_PROCESS.plain_wait_ns = round(kept.waited_ns / kept.steps)

    @property
    def _kept(self) -> _Sum:
        plain, evaluating = self._plain, self._evaluating
        if 2 * evaluating.steps < plain.steps + evaluating.steps:
            return plain
        return _Sum(
            plain.steps + evaluating.steps,
            plain.ns + evaluating.ns,
            plain.waited_ns + evaluating.waited_ns,
        )


@dataclass
class _Sum:
    """So many steps, and how long they took together and waited for batches."""

    steps: int = 0
    ns: int = 0
    waited_ns: int = 0

    def add(self, ns: int, waited_ns: int) -> None:
        """Another step took so long, and waited so long for batches."""
        self.steps += 1
        self.ns += ns
        self.waited_ns += waited_ns


def _all_done_ns() -> int:
    """The time once the GPU has done what it was given."""
    synchronize()
    return time.perf_counter_ns()


def _evaluates(*, counts: bool) -> bool:
    """Whether the step that ends had an evaluation in it; asked once for each.

    Args:
        counts: whether there is such a step: before the first one, models are only made.
    """
    evaluates, THIS_PROCESS.evaluates = THIS_PROCESS.evaluates, False
    THIS_PROCESS.evaluations += evaluates and counts
    return evaluates


class Bound:
    """Counts the steps of this process. Each call at a border between two of them is cheap."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps = 0
        self._first_ns = 0
        self._told = False
        self._begun_ns = 0
        self._plain: PlainSteps | None = None
        self._later: Durations | None = None

    def step(self) -> None:
        """A step begins."""
        now_ns = time.perf_counter_ns()
        evaluates = _evaluates(counts=self._steps > 0)
        if self._later is not None:
            self._later.add(self._steps, now_ns - self._begun_ns)
        self._begun_ns = now_ns
        self._steps += 1
        if self._steps == 1:
            self._first_ns = now_ns
            self._told = not _left(self._folder, BEGUN)
        lasted_ns = now_ns - self._first_ns
        if not self._told and self._steps > ENOUGH_STEPS and lasted_ns >= ENOUGH_NS:
            self._told = True
            HISTORY.freeze()
            _left(self._folder, ENOUGH)
        if self._plain is None:
            if (self._folder / WRITTEN).exists():
                THIS_PROCESS.recorded = True
                HISTORY.save()
                self._plain = PlainSteps(ENOUGH_NS)
                self._later = THIS_PROCESS.later = Durations(first=self._steps)
                self._begun_ns = time.perf_counter_ns()
        elif not self._plain.enough:
            self._plain.step(now_ns, evaluates=evaluates)
            if self._plain.enough:
                save_status()  # before it says so: it may be ended then
                _left(self._folder, TIMED)
            self._begun_ns = time.perf_counter_ns()


class PlainRun:
    """Times the steps of this process in a run without a profiler, and says when it has enough."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps = 0
        self._first_ns = 0
        self._plain: PlainSteps | None = None
        save_status_at_exit()

    def step(self) -> None:
        """A step begins."""
        now_ns = time.perf_counter_ns()
        evaluates = _evaluates(counts=self._steps > 0)
        self._steps += 1
        if self._steps == 1:
            self._first_ns = now_ns
            _left(self._folder, BEGUN)
        if self._plain is None:
            if self._steps > START_UP_STEPS and now_ns - self._first_ns >= START_UP_NS:
                self._plain = PlainSteps(PLAIN_NS)
        elif not self._plain.enough:
            self._plain.step(now_ns, evaluates=evaluates)
            if self._plain.enough:
                save_status()  # before it says so: it is ended then
                _left(self._folder, ENOUGH)


def _left(folder: Path, what: str) -> bool:
    """Leave a file that says what this process has. A folder that is gone or full does not stop the
    program: False then."""
    try:
        (folder / f"{what}-{os.getpid()}").touch()
    except OSError:
        return False
    return True


@cache
def _counter_of(_pid: int) -> Bound | PlainRun | None:
    """What counts the steps of a process, a forked one has its own; None where nobody asks."""
    folder = os.environ.get(RUN_FOLDER)
    if not folder or is_loader_worker():
        return None
    if PLAIN in os.environ:
        return PlainRun(Path(folder))
    return Bound(Path(folder)) if BOUND in os.environ else None


def note_step() -> None:
    """A step begins in this process."""
    counter = _counter_of(os.getpid())
    if counter is not None:
        counter.step()
