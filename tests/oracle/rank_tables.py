"""The tables of a run's ranks (spec §9.9 to §9.18), from the matched kernels."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import floor

from tests.oracle.ranks import Met, Run
from tests.oracle.report import Row
from tests.oracle.stats import percentile, whole

REASONS = ("late_work_ns", "late_copy_ns", "late_group_ns", "late_host_ns")
Steps = Mapping[tuple[int, int], tuple[int, int]]
"""The start and length of each step, by rank and number, on its own clock."""


def in_window(run: Run) -> list[Met]:
    """§9.10."""
    return [met for met in run.met if all(one.in_window for one in met.of.values())]


def arrivals(run: Run) -> list[Row]:
    """§9.11."""
    return [
        {
            "collective": met.number,
            "name": met.of[min(met.of)].name,
            "operation": met.of[met.last].operation,
            "bytes": message(met),
            "ranks": len(met.of),
            "start_ns": met.start(met.first),
            "spread_ns": met.all_there_ns - met.start(met.first),
            "last_report": met.of[met.last].report,
            "last_device": met.of[met.last].device,
            "ends_spread_ns": max(map(met.end, met.of)) - min(map(met.end, met.of)),
            "group": met.group,
            "last_rank": met.last,
            "cost_ns": cost(run, met)[1],
            "done_ns": met.ended_ns - met.all_there_ns,
        }
        for met in in_window(run)
    ]


def message(met: Met) -> int | None:
    return max((one.bytes for one in met.of.values() if one.bytes is not None), default=None)


def cost(run: Run, met: Met) -> tuple[int, int]:
    """§9.12: the rank that held up the others before a collective, and what it cost them."""
    if not in_step(run, met):
        return met.last, 0
    alike = [each for each in run.met if same_ranks(each, met)]
    order = sorted(alike, key=lambda each: (each.ended_ns, each.number))
    stretch: list[Met] = []
    for each in order[: order.index(met)]:
        stretch = [] if in_step(run, each) else [*stretch, each]
    exposed = {r: sum(awaited_ns(run, each, r) for each in [*stretch, met]) for r in met.of}
    least, second = sorted(exposed, key=lambda rank: (exposed[rank], rank))[:2]
    return least, exposed[second] - exposed[least]


def awaited_ns(run: Run, met: Met, rank: int) -> int:
    """§9.12: the exposed time of a kernel that compute waited for."""
    exposed = run.exposed_ns[id(met.of[rank])]
    return exposed if 10 * exposed >= met.end(rank) - met.all_there_ns else 0


def cost_of(run: Run, met: Met, rank: int) -> int:
    """§9.12: what this rank cost the others there."""
    who, ns = cost(run, met)
    return ns if who == rank else 0


def same_ranks(some: Met, other: Met) -> bool:
    return (some.of.keys(), some.pair) == (other.of.keys(), other.pair)


def in_step(run: Run, met: Met) -> bool:
    """§9.12: whether at least half of the transfer is exposed on every rank."""
    return all(
        2 * run.exposed_ns[id(one)] >= met.end(rank) - met.all_there_ns
        for rank, one in met.of.items()
    )


def since(run: Run, met: Met) -> Met | None:
    """§9.13: the last time that the ranks of a collective were in step before it."""
    ends = [
        (each.ended_ns, each.number, each)
        for each in run.met
        if same_ranks(each, met) and in_step(run, each) and each.ended_ns <= met.start(met.first)
    ]
    return max(ends, key=lambda end: end[:2])[2] if ends else None


def reasons(run: Run, met: Met, rank: int) -> dict[str, int]:
    """§9.13: why a rank was late to a collective."""
    late = late_ns(met, rank)
    shares = dict.fromkeys(REASONS, 0)
    if begin := since(run, met):
        mine, theirs = parts(begin, met, rank), parts(begin, met, met.first)
        shares = {name: max(0, mine[name] - theirs[name]) for name in REASONS}
    whole_ns = sum(shares.values())
    if whole_ns == 0:
        return dict.fromkeys(REASONS, 0) | {"late_host_ns": late}
    exact = {name: Fraction(late * ns, whole_ns) for name, ns in shares.items()}
    found = {name: floor(ns) for name, ns in exact.items()}
    largest = sorted(REASONS, key=lambda name: found[name] - exact[name])
    for name in largest[: late - sum(found.values())]:
        found[name] += 1
    return found


def parts(before: Met, met: Met, rank: int) -> dict[str, int]:
    """What a rank did from the end of one collective to its arrival at another."""
    begin, end = before.of[rank], met.of[rank]
    did = [after - before for before, after in zip(begin.until, end.before, strict=True)]
    idle = end.start_ns - begin.end_ns - sum(did)
    return dict(zip(REASONS, (*did, idle), strict=True))


def ranks(run: Run) -> list[Row]:
    """§9.9, §9.11, §9.12."""
    if len(run.ranks) < 2:
        return []
    shown = [met for met in in_window(run) if not met.pair]
    reports = {one.report_no for met in run.met for one in met.of.values()}
    by = min((run.clocks[report][1] for report in reports), default=None)
    rows: list[Row] = []
    for rank, (report_no, *_, device) in enumerate(run.ranks):
        own = [kernel for kernel in run.kernels if kernel.rank_key == run.ranks[rank]]
        mine = [met for met in shown if rank in met.of]
        clock = run.clocks[report_no]
        why = [reasons(run, met, rank) for met in mine]
        known = report_no in reports and clock[1] == by
        rows.append(
            {
                "report": own[0].report,
                "process": own[0].process,
                "device": device,
                "collectives": sum(k.in_window and k not in run.pairs for k in own),
                "matched": len(mine),
                "times_last": sum(met.last == rank for met in mine),
                "late_ns": total(late_ns(met, rank) for met in mine),
                "waited_ns": total(met.all_there_ns - met.start(rank) for met in mine),
                "clock_ns": clock[0] if known else None,
                "residual_ns": whole(percentile([off(met, rank) for met in mine], 50)),
                "rank": rank,
                "cost_ns": sum(costs(run, mine, rank).values()) if mine else None,
                **{name: sum(each[name] for each in why) if mine else None for name in REASONS},
            }
        )
    return rows


def late_ns(met: Met, rank: int) -> int:
    """§9.11: how long after the first rank this one arrived."""
    return met.start(rank) - met.start(met.first)


def total(each: Iterable[int]) -> int | None:
    """The sum; None of nothing."""
    found = list(each)
    return sum(found) if found else None


def off(met: Met, rank: int) -> int:
    """§9.9: how far a rank's end is from the latest of the group's first report."""
    first = min(one.report_no for one in met.of.values())
    return abs(
        met.end(rank) - max(met.end(r) for r, one in met.of.items() if one.report_no == first)
    )


def costs(run: Run, mine: list[Met], rank: int) -> dict[int | None, int]:
    """§9.12: what a rank cost in each step, in the group where that is most."""
    of_group: dict[int | None, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for met in mine:
        of_group[met.of[rank].step][met.group] += cost_of(run, met, rank)
    return {step: max(of.values()) for step, of in of_group.items()}


def rank_groups(run: Run, steps: Steps) -> list[Row]:
    """§9.14, without `kind`."""
    rows: list[Row] = []
    for group, (members, _) in enumerate(run.groups):
        mine = [met for met in in_window(run) if met.group == group]
        if not mine:
            continue
        each = {r: sum(cost_of(run, m, r) for m in mine if r in m.of) for r in members}
        worst = min(each, key=lambda rank: (-each[rank], rank))
        own = [met for met in mine if worst in met.of]
        in_steps: dict[int, int] = defaultdict(int)
        for met in own:
            step = met.of[worst].step
            if step is not None and (worst, step) in steps:
                in_steps[step] += cost_of(run, met, worst)
        count = sum(rank == worst for rank, _ in steps)
        noticed = [step for step, ns in in_steps.items() if 100 * ns > steps[worst, step][1]]
        why = [reasons(run, met, worst) for met in own]
        sizes = [size for met in mine if (size := message(met)) is not None]
        of_all = [(met, rank) for met in mine for rank in met.of]
        rows.append(
            {
                "group": group,
                "ranks": len(members),
                "collectives": len(mine),
                "bytes": sum(sizes) if sizes else None,
                "rank": worst,
                "report": own[0].of[worst].report,
                "device": own[0].of[worst].device,
                "times_last": sum(met.last == worst for met in own),
                "steps": count,
                "steps_last": len(noticed),
                "cost_ns": each[worst],
                "cost_step_ns": whole(Fraction(sum(in_steps.values()), count)) if count else None,
                "late_ns": sum(late_ns(met, worst) for met in own),
                **{name: sum(each[name] for each in why) for name in REASONS},
                "through": through(run, group, worst),
                "waited_ns": sum(met.all_there_ns - met.start(rank) for met, rank in of_all),
                "overlapped_ns": sum(met.of[rank].overlapped_ns for met, rank in of_all),
            }
        )
    return sorted(rows, key=lambda row: (-row["cost_ns"], row["group"]))


def through(run: Run, group: int, rank: int) -> int | None:
    """§9.14: the other group in which a straggler waited longest where groups made it late."""
    stretches = []
    for met in in_window(run):
        if met.group == group and rank in met.of and reasons(run, met, rank)["late_group_ns"]:
            begin = since(run, met)
            assert begin is not None  # else all is the host's
            stretches.append((begin.of[rank].end_ns, met.of[rank].start_ns))
    waited: dict[int, int] = defaultdict(int)
    for met in in_window(run):
        if met.group != group and rank in met.of:
            start_ns = met.of[rank].start_ns
            if any(begin <= start_ns <= until for begin, until in stretches):
                waited[met.group] += met.all_there_ns - met.start(rank)
    best = [(-ns, other) for other, ns in waited.items() if ns > 0]
    return min(best)[1] if best else None


def rank_steps(run: Run, steps: Steps) -> list[Row]:
    """§9.11, §9.12: how late each rank came in its steps, and what it cost."""
    shown = [met for met in in_window(run) if not met.pair]
    rows: list[Row] = []
    for rank, step in sorted(steps):
        mine = [met for met in shown if rank in met.of]
        here = [met for met in mine if met.of[rank].step == step]
        row: Row = {"rank": rank, "step": step}
        row["late_ns"] = sum(late_ns(met, rank) for met in here)
        row["cost_ns"] = costs(run, mine, rank).get(step, 0)
        rows.append(row)
    return rows
