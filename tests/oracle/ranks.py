"""The ranks of a run (spec §9), from a list of communication kernels."""

from collections import defaultdict
from dataclasses import dataclass

from tests.oracle.report import Row
from tests.oracle.stats import percentile, whole


@dataclass(frozen=True)
class Collective:
    """One communication kernel of a rank. `in_window`: whether it starts in the window."""

    report_no: int
    report: str
    process: int | None
    device: int
    stream: int
    start_ns: int
    end_ns: int
    name: str
    operation: str | None = None
    bytes: int | None = None
    communicator: int | None = None
    in_window: bool = True


def ranks_and_arrivals(kernels: list[Collective]) -> tuple[list[Row], list[Row]]:
    """§9.4 to §9.8: the rows of `ranks`, and those of `arrivals`."""
    kernels = [k for k in kernels if "send" not in k.name.lower() and "recv" not in k.name.lower()]
    of_rank: dict[tuple[int, int | None, int], list[Collective]] = defaultdict(list)
    for kernel in kernels:
        of_rank[kernel.report_no, kernel.process, kernel.device].append(kernel)
    of_rank = {rank: own for rank, own in of_rank.items() if any(k.in_window for k in own)}
    ranks = sorted(of_rank, key=lambda key: (key[0], key[1] is not None, key[1] or 0, key[2]))
    if len(ranks) < 2:
        return [], []
    everywhere = matched([of_rank[rank] for rank in ranks])
    together, clock = ended_together(everywhere)
    met = {no: m for no, m in together.items() if all(each.in_window for each in m)}

    def on_first_clock(kernel: Collective) -> tuple[int, int]:
        ahead = clock[kernel.report_no]
        return kernel.start_ns - ahead, kernel.end_ns - ahead

    rows: list[Row] = [
        {
            "report": of_rank[rank][0].report,
            "process": rank[1],
            "device": rank[2],
            "collectives": sum(kernel.in_window for kernel in of_rank[rank]),
            "matched": len(met),
            "times_last": 0,
            "late_ns": 0 if met else None,
            "waited_ns": 0 if met else None,
            "clock_ns": clock[rank[0]] if together else None,
        }
        for rank in ranks
    ]
    off: list[list[int]] = [[] for _ in ranks]
    arrivals: list[Row] = []
    for number, members in met.items():
        times = [on_first_clock(member) for member in members]
        first, last = min(start for start, _ in times), max(start for start, _ in times)
        there = max(
            end
            for member, (_, end) in zip(members, times, strict=True)
            if member.report_no == members[0].report_no
        )
        who = [start for start, _ in times].index(last)
        rows[who]["times_last"] += 1
        for rank, (start, end) in enumerate(times):
            rows[rank]["late_ns"] += start - first
            rows[rank]["waited_ns"] += last - start
            off[rank].append(abs(end - there))
        ends = [end for _, end in times]
        arrivals.append(
            {
                "collective": number,
                "name": members[0].name,
                "operation": members[who].operation,
                "bytes": max((m.bytes for m in members if m.bytes is not None), default=None),
                "ranks": len(ranks),
                "start_ns": first,
                "spread_ns": last - first,
                "last_report": members[who].report,
                "last_device": members[who].device,
                "ends_spread_ns": max(ends) - min(ends),
            }
        )
    for rank, row in enumerate(rows):
        row["residual_ns"] = whole(percentile(off[rank], 50))
    return rows, arrivals


def matched(ranks: list[list[Collective]]) -> list[list[Collective]]:
    """§9.4: the k-th kernels of a name and communicator on every rank, in the first rank's order.

    All ranks must have equally many of them.
    """
    kinds: list[dict[tuple[str, int | None], list[Collective]]] = []
    for kernels in ranks:
        by_kind: dict[tuple[str, int | None], list[Collective]] = defaultdict(list)
        for kernel in sorted(kernels, key=lambda k: (k.start_ns, k.end_ns, k.stream)):
            by_kind[kernel.name, kernel.communicator].append(kernel)
        kinds.append(by_kind)
    found = []
    for kind in kinds[0]:
        counts = {len(by_kind.get(kind, ())) for by_kind in kinds}
        if len(counts) == 1:
            found += [list(members) for members in zip(*(k[kind] for k in kinds), strict=True)]
    return sorted(
        found,
        key=lambda m: (
            m[0].start_ns,
            m[0].end_ns,
            m[0].stream,
            m[0].name,
            m[0].communicator is not None,
            m[0].communicator or 0,
        ),
    )


def ended_together(
    everywhere: list[list[Collective]],
) -> tuple[dict[int, list[Collective]], dict[int, int]]:
    """§9.5, §9.6: the collectives that end together, by number, and each report's clock."""
    kinds: dict[tuple[str, int | None], list[list[Collective]]] = defaultdict(list)
    for members in everywhere:
        kinds[members[0].name, members[0].communicator].append(members)
    alone = [kind for kind in kinds.values() if passes(kind, clocks(kind))]
    clock = clocks([members for kind in alone for members in kind])
    left = [members for kind in alone if passes(kind, clock) for members in kind]
    together = {
        number: members
        for number, members in enumerate(everywhere)
        if members in left and ends_together(members, clock)
    }
    return together, clock


def passes(kind: list[list[Collective]], clock: dict[int, int]) -> bool:
    """§9.5: whether less than a tenth ends apart, by the sum of each one's shortest kernel."""
    apart_ns = sum(shortest_ns(members) for members in kind if not ends_together(members, clock))
    return apart_ns * 10 < sum(shortest_ns(members) for members in kind)


def ends_together(members: list[Collective], clock: dict[int, int]) -> bool:
    """§9.4: whether the ends differ by less than half of the shortest kernel."""
    ends = [member.end_ns - clock[member.report_no] for member in members]
    return 2 * (max(ends) - min(ends)) < shortest_ns(members)


def shortest_ns(members: list[Collective]) -> int:
    """§9.4: the length of the shortest kernel of a collective."""
    return min(member.end_ns - member.start_ns for member in members)


def clocks(met: list[list[Collective]]) -> dict[int, int]:
    """§9.6: how far each report's clock is ahead of the first one's.

    It is the median difference of the ends of these collectives.
    """
    ahead: dict[int, list[int]] = defaultdict(list)
    for members in met:
        ends: dict[int, int] = {}
        for member in members:
            ends[member.report_no] = max(member.end_ns, ends.get(member.report_no, member.end_ns))
        for report_no, end_ns in ends.items():
            ahead[report_no].append(end_ns - ends[members[0].report_no])
    return {report_no: whole(percentile(found, 50)) or 0 for report_no, found in ahead.items()}
