"""What a run saves if nobody waits for one of its ranks (spec §9.19). All its reports are replayed
again and again, until no collective ends any earlier."""

from collections.abc import Mapping, Sequence
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
    """How much shorter a step would be for the other ranks of a group.

    Args:
        run: the run.
        replays: of its reports.
        rank: the one that nobody waits for.
        members: of the group.
        steps: of each rank, by the start of each step that counts, the start of the step after it.
        cost_step_ns: what the rank costs the group (rule 14).
    """
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
