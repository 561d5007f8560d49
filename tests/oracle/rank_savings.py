"""What a run saves if nobody waits for one of its ranks (spec §9.19), and ranks replayed together
(§14.18, §14.19): reports are replayed again and again, until no collective ends at another time."""

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from tests.oracle.ranks import Collective, Met, RankKey, Run
from tests.oracle.replay import Replay
from tests.oracle.report import os_pid
from tests.oracle.stats import percentile, whole

Earlier = list[dict[int, int]]
"""Per report and operation, how much earlier it starts."""


def earlier_without(run: Run, replays: Sequence[Replay], rank: int) -> Earlier:
    """How much earlier each operation starts, if nobody waits for the rank."""
    base = [replay.run(set(), {}) for replay in replays]
    place = {
        id(one): op_of(replays[one.report_no], one) for met in run.met for one in met.of.values()
    }
    ended: list[dict[int, int]] = [{} for _ in replays]
    while True:
        earlier = [
            {
                op: was - now
                for op, (was, now) in enumerate(
                    zip(starts, replay.run(set(), given)[0], strict=True)
                )
            }
            for (starts, _), replay, given in zip(base, replays, ended, strict=True)
        ]
        before, ended = ended, [{} for _ in replays]
        for met in run.met:
            could = could_end_earlier(
                met, {r: earlier[one.report_no][place[id(one)]] for r, one in met.of.items()}
            )
            least = min(ns for other, ns in could.items() if other != rank or met.pair)
            for other, one in met.of.items():
                op = place[id(one)]
                ended[one.report_no][op] = base[one.report_no][1][op] - min(least, could[other])
        if ended == before:
            return earlier


def could_end_earlier(met: Met, starts_earlier: Mapping[int, int]) -> dict[int, int]:
    """By how much each rank's kernel could end earlier if it were for that rank alone."""
    return {rank: ns + met.all_there_ns - met.start(rank) for rank, ns in starts_earlier.items()}


def op_of(replay: Replay, kernel: Collective) -> int:
    """The number of the operation that this kernel is."""
    return next(
        number
        for number, op in enumerate(replay.ops)
        if (op.device, op.stream, op.start_ns, op.end_ns, op.short_name)
        == (kernel.device, kernel.stream, kernel.start_ns, kernel.end_ns, kernel.name)
        and os_pid(op.process) == kernel.process
    )


def saved_step_ns(
    run: Run,
    replays: Sequence[Replay],
    rank: int,
    members: Sequence[int],
    steps: Mapping[int, Mapping[int, int]],
    cost_step_ns: int,
) -> int | None:
    """§9.19: how much shorter a step would be; `steps` are starts by the start before, by rank."""
    earlier = earlier_without(run, replays, rank)
    means = []
    for other in members:
        report_no = run.ranks[other][0]
        first = {
            start_ns: earlier[report_no][op]
            for start_ns, op in first_ops(replays[report_no], run.ranks[other]).items()
        }
        shorter = [first[next_ns] - first[own_ns] for own_ns, next_ns in steps[other].items()]
        if other != rank and shorter:
            means.append(round(Fraction(sum(shorter), len(shorter))))
    middle = whole(percentile(means, 50)) if means else None
    return middle if middle is None else min(max(0, middle), cost_step_ns)


def first_ops(replay: Replay, rank: RankKey) -> dict[int, int]:
    """The first operation of a rank, in the order of §3.1, that starts at each instant."""
    _, _, process, device = rank
    found: dict[int, int] = {}
    for number, op in enumerate(replay.ops):
        if (os_pid(op.process), op.device) == (process, device):
            found.setdefault(op.start_ns, number)
    return found


Ends = dict[tuple[int, int], int]
"""By number of a collective and rank, when its kernel starts or ends on the common clock."""


class JointReplay:
    """A run; of some of its reports the program is known, of the others outlines arrive."""

    def __init__(self, run: Run, replays: Mapping[int, Replay]) -> None:
        self.run, self.replays = run, replays
        self.known = {
            met.number: [rank for rank in met.of if run.ranks[rank][0] in replays]
            for met in run.met
        }
        self.met = [met for met in run.met if self.known[met.number]]
        self.op = {
            (met.number, rank): op_of(replays[met.of[rank].report_no], met.of[rank])
            for met in self.met
            for rank in self.known[met.number]
        }
        recorded = {(met.number, rank): met.end(rank) for met in self.met for rank in met.of}
        arrivals = self._outlines(recorded, 1.0)
        arrivals |= {
            (met.number, rank): met.start(rank)
            for met in self.met
            for rank in self.known[met.number]
        }
        self.transfer = {
            (met.number, rank): met.end(rank) - max(arrivals[met.number, other] for other in met.of)
            for met in self.met
            for rank in met.of
        }
        self.recorded = recorded

    def replay(
        self, pcts: Mapping[int, int], unawaited: Collection[int] = (), compute: float = 1.0
    ) -> dict[int, tuple[list[int], list[int]]]:
        """By report, when its operations start and end; `compute` is the factor for outlines."""
        ends = self.recorded
        while True:
            times = {
                report: replay.run(
                    set(), self._of_report(ends, report), replay.costs(10 * pcts.get(report, 0))
                )
                for report, replay in self.replays.items()
            }
            arrivals = self._outlines(ends, compute)
            for met in self.met:
                for rank in self.known[met.number]:
                    begun = times[met.of[rank].report_no][0][self.op[met.number, rank]]
                    arrivals[met.number, rank] = begun - met.clock[rank]
            now: Ends = {}
            for met in self.met:
                awaited = {one for one in met.of if met.pair or one not in unawaited}
                for rank in met.of:
                    last = max(arrivals[met.number, one] for one in {*awaited, rank})
                    now[met.number, rank] = last + self.transfer[met.number, rank]
            if now == ends:
                return times
            ends = now

    def _of_report(self, ends: Ends, report: int) -> dict[int, int]:
        """The ends of a report's kernels of collectives on its own clock, by operation."""
        return {
            self.op[met.number, rank]: ends[met.number, rank] + met.clock[rank]
            for met in self.met
            for rank in self.known[met.number]
            if met.of[rank].report_no == report
        }

    def _outlines(self, ends: Ends, compute: float) -> Ends:
        """Rule 17: when ranks without a program arrive."""
        found: Ends = {}
        for rank in range(len(self.run.ranks)):
            mine = [
                met for met in self.met if rank in met.of and rank not in self.known[met.number]
            ]
            mine.sort(key=lambda met: (met.start(rank), met.number))
            for place, met in enumerate(mine):
                ahead = self._queued_behind(rank, met, mine[:place])
                if place == 0:
                    found[met.number, rank] = met.start(rank)
                    free = met
                elif ahead:
                    found[met.number, rank] = ends[ahead.number, rank]
                else:
                    spent = met.of[rank].before[0] - free.of[rank].before[0]
                    bounds = [found[free.number, rank] + round(spent * compute)]
                    free = met
                    waited = self._waited_for(rank, met, mine)
                    if waited:
                        spent = met.of[rank].before[0] - waited.of[rank].until[0]
                        bounds.append(ends[waited.number, rank] + round(spent * compute))
                    found[met.number, rank] = max(bounds)
        return found

    @staticmethod
    def _queued_behind(rank: int, met: Met, earlier: Sequence[Met]) -> Met | None:
        """The collective before it on its stream, if it starts at most 10 us after its end."""
        same = [one for one in earlier if one.of[rank].stream == met.of[rank].stream]
        near = same and met.start(rank) - same[-1].end(rank) <= 10_000
        return same[-1] if near else None

    def _waited_for(self, rank: int, met: Met, mine: Sequence[Met]) -> Met | None:
        """The last collective that ended before this one started, and that compute waited for."""
        ended = [
            one
            for one in mine
            if one.end(rank) <= met.start(rank) and self._awaited(one, one.of[rank])
        ]
        return max(ended, key=lambda one: one.end(rank), default=None)

    def _awaited(self, met: Met, kernel: Collective) -> bool:
        """§9.12: at least a tenth of the transfer is exposed."""
        exposed = self.run.exposed_ns[id(kernel)]
        all_there = met.all_there_ns + met.clock[self.run.ranks.index(kernel.rank_key)]
        return exposed > 0 and 10 * exposed >= kernel.end_ns - all_there
