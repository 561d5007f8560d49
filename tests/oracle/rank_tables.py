"""The tables of a run's ranks (spec §9.9 to §9.18), from the matched kernels."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import floor

from tests.oracle.ranks import Collective, Met, RankKey, Run
from tests.oracle.report import Row
from tests.oracle.stats import percentile, whole

REASONS = ("cost_work_ns", "cost_copy_ns", "cost_group_ns", "cost_host_ns")
Steps = Mapping[tuple[int, int], tuple[int, int]]
"""The start and length of each step, by rank and number, on its own clock."""

Kinds = Mapping[tuple[RankKey, int], tuple[bool, str]]
"""Whether each step is judged, and its kind, by rank and number."""


def judged(kernels: Iterable[Collective], steps: Kinds) -> list[Collective]:
    """§9.10: the kernels, with those in the window that start in what is judged, or in one-offs."""
    also = counted(steps)
    return [replace(k, in_window=k.in_window or (k.rank_key, k.step) in also) for k in kernels]


def counted(steps: Kinds) -> set[tuple[RankKey, int | None]]:
    """§9.10: the steps that are judged, and one-offs if any are."""
    some = any(is_judged for is_judged, _ in steps.values())
    return {
        key for key, (is_judged, kind) in steps.items() if is_judged or (some and kind == "one-off")
    }


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
    (least, ns), (_, next_ns) = awaited(run, met)[:2]
    return least, next_ns - ns


def awaited(run: Run, met: Met) -> list[tuple[int, int]]:
    """§9.12: the ranks by the exposed time that they awaited in the stretch that ends here."""
    stretch = stretch_of(run, met)[1]
    of = {rank: sum(awaited_ns(run, each, rank) for each in stretch) for rank in met.of}
    return sorted(of.items(), key=lambda each: (each[1], each[0]))


def stretch_of(run: Run, met: Met) -> tuple[Met | None, list[Met]]:
    """§9.12: the last time the ranks were in step before this, and the collectives since then."""
    order = alike(run, met)
    before, stretch = None, [met]
    for each in reversed(order[: order.index(met)]):
        if in_step(run, each):
            before = each
            break
        stretch.append(each)
    return before, stretch


def awaited_ns(run: Run, met: Met, rank: int) -> int:
    """§9.12: the exposed time of a kernel that compute waited for."""
    exposed = run.exposed_ns[id(met.of[rank])]
    return exposed if 10 * exposed >= met.end(rank) - met.all_there_ns else 0


def cost_of(run: Run, met: Met, rank: int) -> int:
    """§9.12: what this rank cost the others there."""
    who, ns = cost(run, met)
    return ns if who == rank else 0


def alike(run: Run, met: Met) -> list[Met]:
    """The collectives of the same ranks, as they ended."""
    same = [each for each in run.met if (each.of.keys(), each.pair) == (met.of.keys(), met.pair)]
    return sorted(same, key=lambda each: (each.ended_ns, each.number))


def in_step(run: Run, met: Met) -> bool:
    """§9.12: whether all ranks waited for this collective, and compute before their next one."""
    return all(
        2 * run.exposed_ns[id(one)] >= met.end(rank) - met.all_there_ns and goes_on(run, met, rank)
        for rank, one in met.of.items()
    )


def goes_on(run: Run, met: Met, rank: int) -> bool:
    """§9.12: whether a rank computes between the end of a collective and that of the next one."""
    order = alike(run, met)
    following = order[order.index(met) + 1 :][:1]
    return all(each.of[rank].until[0] > met.of[rank].until[0] for each in following)


def reasons(run: Run, met: Met, rank: int) -> dict[str, int]:
    """§9.13: why a rank cost the others something where this collective ends."""
    ns = cost_of(run, met, rank)
    before, _ = stretch_of(run, met)
    shares = dict.fromkeys(REASONS, 0)
    if ns and before:
        second = awaited(run, met)[1][0]
        longer = [
            {name: mine[name] - theirs[name] for name in REASONS}
            for since in (before, before_step(run, met, rank))
            for mine, theirs in [[parts(run, since, met, each) for each in (rank, second)]]
        ]
        shares = {name: max(0, min(of[name] for of in longer)) for name in REASONS}
    whole_ns = sum(shares.values())
    if whole_ns == 0:
        return dict.fromkeys(REASONS, 0) | {"cost_host_ns": ns}
    exact = {name: Fraction(ns * share, whole_ns) for name, share in shares.items()}
    found = {name: floor(share) for name, share in exact.items()}
    largest = sorted(REASONS, key=lambda name: found[name] - exact[name])
    for name in largest[: ns - sum(found.values())]:
        found[name] += 1
    return found


def before_step(run: Run, met: Met, rank: int) -> Met:
    """§9.13: the last time the ranks were in step before the step in which this ends."""
    ends = [each for each in alike(run, met) if in_step(run, each)]
    at = ends.index(met)
    step = met.of[rank].step
    while at > 0:
        at -= 1
        if step is None or ends[at].of[rank].step != step:
            break
    return ends[at]


def parts(run: Run, since: Met, met: Met, rank: int) -> dict[str, int]:
    """What a rank did from its own end to its own end, but for the collectives of the group."""
    begin, end = since.of[rank], met.of[rank]
    pairs = zip(begin.until, end.until, strict=True)
    compute, copies, comm = (until - before for before, until in pairs)
    idle = end.end_ns - begin.end_ns - compute - copies - comm
    order = alike(run, met)
    between = order[order.index(since) + 1 : order.index(met) + 1]
    own = sum(run.exposed_ns[id(each.of[rank])] for each in between)
    return dict(zip(REASONS, (compute, copies, comm - own, idle), strict=True))


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
        of_steps = costs(run, mine, rank).values()
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
                **{name: total(of[name] for of in of_steps) for name in ("cost_ns", *REASONS)},
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


def costs(run: Run, mine: list[Met], rank: int) -> dict[int | None, dict[str, int]]:
    """§9.12: what a rank cost in each step and why, in the group where that is most."""
    of_step: dict[int | None, dict[int, list[Met]]] = defaultdict(lambda: defaultdict(list))
    for met in sorted(mine, key=lambda met: met.group):
        of_step[met.of[rank].step][met.group].append(met)
    return {
        step: max((why(run, of, rank) for of in of_group.values()), key=lambda of: of["cost_ns"])
        for step, of_group in of_step.items()
    }


def why(run: Run, mine: list[Met], rank: int) -> dict[str, int]:
    """The costs of a rank and their reasons, summed."""
    each = [reasons(run, met, rank) for met in mine]
    sums = {name: sum(of[name] for of in each) for name in REASONS}
    return {"cost_ns": sum(cost_of(run, met, rank) for met in mine)} | sums


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
                "cost_step_ns": whole(Fraction(sum(in_steps.values()), count)) if count else None,
                "late_ns": sum(late_ns(met, worst) for met in own),
                **why(run, own, worst),
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
        if met.group == group and rank in met.of and reasons(run, met, rank)["cost_group_ns"]:
            before, _ = stretch_of(run, met)
            assert before is not None  # else all is the host's
            stretches.append((before.of[rank].end_ns, met.of[rank].end_ns))
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
        row["cost_ns"] = costs(run, mine, rank).get(step, {"cost_ns": 0})["cost_ns"]
        rows.append(row)
    return rows
