"""Run a step on many ranks, again and again: when everything starts and ends.

Ranks differ a little, and so do their steps. A collective ends on all members of its group at once:
a transfer's time after the last of them has arrived. What a delay costs is the time of the run with
it less that of the same run without it.
"""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.many_ranks.changed import first_matmul
from benchmarks.many_ranks.step import Event, Op, Step

Times = NDArray[np.int64]

LAUNCH_NS: Final = 4_000
"""From the start of a launch to that of its operation, at least."""

GAP_NS: Final = 1_200
"""Between two operations of a stream, at least."""

EDGE_NS: Final = 1_500
"""From the end of an operation to the start of one on another stream that waits for it."""

SKEW_NS: Final = 800
"""The kernels of a collective end this much apart, at most."""

START_NS: Final = 1_000_000_000

Kind = Literal["host", "compute", "work", "copies", "link"]


@dataclass(frozen=True)
class Groups:
    """Ranks in groups: `tp` neighbours for tensor parallelism, ranks at that stride for data."""

    ranks: int
    tp: int = 1

    def members(self, kind: str) -> NDArray[np.int64]:
        """The ranks of each group of a kind, a row per group."""
        by_replica = np.arange(self.ranks).reshape(-1, self.tp)
        return by_replica if kind == "tp" else by_replica.T

    def last(self, times: Times, kind: str) -> Times:
        """For each rank the latest time in its group."""
        shape = (-1, self.tp)
        axis = 1 if kind == "tp" else 0
        latest = times.reshape(shape).max(axis=axis, keepdims=True)
        return np.broadcast_to(latest, (self.ranks // self.tp, self.tp)).reshape(-1)

    def shared(self, values: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
        """For each rank the value of the first rank of its group."""
        grid = values.reshape(-1, self.tp)
        first = grid[:, :1] if kind == "tp" else grid[:1]
        return np.broadcast_to(first, grid.shape).reshape(-1)


@dataclass(frozen=True)
class Delay:
    """What is injected in the steps that `every` names (1: all, 10: 5, 15, …).

    `host`, `compute`, `work` and `copies` take `ns` on `rank`, `work` by kernels with half as many
    blocks again; `link` makes the transfers of `group` (a kind, and a number) `factor` times as
    long.
    """

    kind: Kind
    rank: int = 0
    every: int = 1
    ns: int = 0
    group: tuple[str, int] = ("dp", 0)
    factor: float = 1.0

    def in_step(self, step: int) -> bool:
        return step % self.every == self.every // 2


@dataclass(frozen=True)
class Run:
    """When everything happens, in ns of one clock: arrays by rank, step, and event or operation."""

    events: Times
    starts: Times
    ends: Times

    def begins(self) -> Times:
        """When each step begins on each rank's GPU."""
        begins: Times = self.starts.min(axis=2)
        return begins


def simulate(step: Step, groups: Groups, steps: int, seed: int, delay: Delay | None) -> Run:
    """Run `steps` steps; the same seed gives the same ranks and jitter, whatever the delay."""
    return _Simulation(step, groups, steps, seed, delay).run()


class _Simulation:
    def __init__(
        self, step: Step, groups: Groups, steps: int, seed: int, delay: Delay | None
    ) -> None:
        self.groups, self.steps, self.seed, self.delay = groups, steps, seed, delay
        self.ops = step.ops
        self.number = {id(op): number for number, op in enumerate(step.ops)}
        self.gaps = np.array([event.gap_ns for event in step.events])
        launched: dict[int, list[Op]] = {}
        for op in step.ops:
            launched.setdefault(id(op.launch.begin), []).append(op)
        self.points: list[tuple[int, Event, list[Op]]] = [
            (place, event, launched.get(id(event), []))
            for place, event in enumerate(step.events)
            if event.awaits or id(event) in launched
        ]
        self.pause_at = step.events.index(first_matmul(step).launch.begin)
        self.transfers = np.array([op.group is not None for op in step.ops])
        self.lengths = np.array([op.length_ns for op in step.ops])
        self.compute = ~self.transfers & np.array(
            [op.stream == step.main_stream and not op.injected for op in step.ops]
        )
        ranks, events = groups.ranks, len(step.events)
        self.times = Run(
            np.zeros((ranks, steps, events), np.int64),
            np.zeros((ranks, steps, len(self.ops)), np.int64),
            np.zeros((ranks, steps, len(self.ops)), np.int64),
        )
        jitter = np.random.default_rng((seed, steps))
        self.usual_host = 1 + 0.001 * jitter.standard_normal(ranks)
        self.usual_gpu = 1 + 0.001 * jitter.standard_normal(ranks)
        self.now = START_NS + np.round(1e5 * jitter.random(ranks)).astype(np.int64)
        self.tails = {op.stream: np.zeros(ranks, np.int64) for op in step.ops}

    def run(self) -> Run:
        for step in range(self.steps):
            self._step(step)
        return self.times

    def _step(self, step: int) -> None:
        ranks = self.groups.ranks
        jitter = np.random.default_rng((self.seed, self.steps, step))
        pace = self.usual_host * (1 + 0.005 * jitter.standard_normal(ranks))
        lengths = self._lengths(step, jitter)
        skews = np.round(SKEW_NS * jitter.random(lengths.shape)).astype(np.int64)
        gaps = np.round(self.gaps * np.clip(pace, 0.8, 1.2)[:, None]).astype(np.int64)
        if (delay := self._delay(step)) and delay.kind == "host":
            gaps[delay.rank, self.pause_at] += delay.ns
        passed = np.cumsum(gaps, axis=1)
        events = self.times.events[:, step]
        origin, done = self.now, 0
        for place, event, launched in self.points:
            if event.awaits is not None:
                bound = self._ended(event, step) + event.after_ns
                events[:, done:place] = origin[:, None] + passed[:, done:place]
                done = place
                origin = np.maximum(origin, bound - passed[:, place])
            for op in launched:
                self._operation(op, step, origin + passed[:, place], lengths, skews)
        events[:, done:] = origin[:, None] + passed[:, done:]
        self.now = events[:, -1]

    def _delay(self, step: int) -> Delay | None:
        return self.delay if self.delay is not None and self.delay.in_step(step) else None

    def _lengths(self, step: int, jitter: np.random.Generator) -> Times:
        """How long each operation takes on each rank, once it may start."""
        shape = (self.groups.ranks, len(self.ops))
        pace = self.usual_gpu * (1 + 0.002 * jitter.standard_normal(shape[0]))
        noise = 1 + 0.01 * jitter.standard_normal(shape)
        factors = pace[:, None] * noise
        for number in np.flatnonzero(self.transfers):
            kind = self.ops[number].group or ""
            factors[:, number] = self.groups.shared(noise[:, number], kind)
        delay = self._delay(step)
        if delay and delay.kind == "link":
            kind, group = delay.group
            of_kind = np.array([op.group == kind for op in self.ops])
            factors[np.ix_(self.groups.members(kind)[group], of_kind)] *= delay.factor
        lengths: Times = np.round(np.clip(factors, 0.5, None) * self.lengths).astype(np.int64)
        if delay and delay.kind in ("compute", "work"):
            factor = 1 + delay.ns / lengths[delay.rank, self.compute].sum()
            stretched = lengths[delay.rank, self.compute] * factor
            lengths[delay.rank, self.compute] = np.round(stretched).astype(np.int64)
        if delay and delay.kind == "copies":
            lengths[delay.rank, [op.injected for op in self.ops]] = delay.ns
        return lengths

    def _ended(self, event: Event, step: int) -> Times:
        """When what the event waits for ended; nothing ended before the first step."""
        of_step = step - event.steps_ago
        if of_step < 0 or event.awaits is None:
            return np.zeros(self.groups.ranks, np.int64)
        ended: Times = self.times.ends[:, of_step, self.number[id(event.awaits)]]
        return ended

    def _operation(self, op: Op, step: int, launch: Times, lengths: Times, skews: Times) -> None:
        """Place an operation: its start, its end, and where its stream goes on."""
        number, ends = self.number[id(op)], self.times.ends[:, step]
        free = self.tails[op.stream]
        start = np.maximum(launch + LAUNCH_NS, free + GAP_NS)
        for other in op.after:
            start = np.maximum(start, ends[:, self.number[id(other)]] + EDGE_NS)
        end = start + lengths[:, number]
        if op.injected:
            absent = lengths[:, number] == 0
            start, end = np.where(absent, free, start), np.where(absent, free, end)
        elif op.group:
            arrived = self.groups.last(start, op.group)
            end = arrived + lengths[:, number] + skews[:, number]
        self.times.starts[:, step, number] = start
        ends[:, number] = end
        self.tails[op.stream] = end
