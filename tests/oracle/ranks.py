"""The ranks of a run, matched (spec §9.4 to §9.10), from plain lists of communication kernels."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from tests.oracle.once import grouped_by

RankKey = tuple[int, bool, int, int]
"""Report, whether its process is known, the process, and the GPU: the order of ranks."""


@dataclass(frozen=True)
class Collective:
    """One communication kernel of a rank. `in_window`: whether it starts in the window.

    `before` and `until` are the exposed compute, copies and communication up to its start and end.
    """

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
    step: int | None = None
    before: tuple[int, int, int] = (0, 0, 0)
    until: tuple[int, int, int] = (0, 0, 0)
    overlapped_ns: int = 0

    @property
    def rank_key(self) -> RankKey:
        return (self.report_no, self.process is not None, self.process or 0, self.device)

    @property
    def lasts_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Lane:
    """§9.4: kernels of one name for one communicator, or on one stream."""

    rank: int
    name: str
    communicator: int | None
    stream: int | None
    kernels: tuple[Collective, ...]

    @property
    def order(self) -> tuple[int, str, bool, int, bool, int]:
        number, on = self.communicator, self.stream
        return (self.rank, self.name, number is not None, number or 0, on is not None, on or 0)


@dataclass
class Met:
    """One collective, with its kernel of each rank, on the clock of the first report."""

    number: int
    group: int
    of: dict[int, Collective]
    clock: dict[int, int]
    pair: bool

    def start(self, rank: int) -> int:
        return self.of[rank].start_ns - self.clock[rank]

    def end(self, rank: int) -> int:
        return self.of[rank].end_ns - self.clock[rank]

    @property
    def first(self) -> int:
        return min(self.of, key=lambda rank: (self.start(rank), rank))

    @property
    def last(self) -> int:
        return min(self.of, key=lambda rank: (-self.start(rank), rank))

    @property
    def all_there_ns(self) -> int:
        return self.start(self.last)

    @property
    def ended_ns(self) -> int:
        return round(median(self.end(rank) for rank in self.of))


Clocks = dict[int, tuple[int, int]]
"""Per report its clock, and the report that it is by."""


@dataclass
class Run:
    """A run, matched."""

    ranks: list[RankKey]
    kernels: list[Collective]
    groups: list[tuple[tuple[int, ...], bool]] = field(default_factory=list)
    met: list[Met] = field(default_factory=list)
    clocks: Clocks = field(default_factory=dict)
    alone: list[Collective] = field(default_factory=list)
    pairs: list[Collective] = field(default_factory=list)
    exposed_ns: dict[int, int] = field(default_factory=dict)
    """By the kernel's identity."""


def matched(kernels: Iterable[Collective], reports: int) -> Run:
    """§9.4 to §9.9."""
    kernels = sorted(kernels, key=lambda k: (*k.rank_key, k.start_ns, k.end_ns, k.stream))
    run = Run(sorted({k.rank_key for k in kernels}), kernels)
    for key in run.ranks:
        own = [kernel for kernel in kernels if kernel.rank_key == key]
        run.exposed_ns |= {id(each): exposed_ns(each, own) for each in own}
    lanes = lanes_of(run)
    run.clocks = {report: (0, report) for report in range(reports)}
    run.clocks = clocks_of(kinds_of(lanes, run.clocks), reports)
    kinds = kinds_of(lanes, run.clocks)
    run.groups = groups_of(kinds)
    found = []
    for kind in kinds:
        members, pair = ranks_in(kind), is_pair(kind)
        group = next(
            number
            for number, (ranks, pairs) in enumerate(run.groups)
            if pairs == pair and ((pair and {*members} <= {*ranks}) or ranks == members)
        )
        for kernels_of_one in zip(*(lane.kernels for lane in kind), strict=False):
            of = dict(zip(members, kernels_of_one, strict=True))
            clock = {rank: run.clocks[one.report_no][0] for rank, one in of.items()}
            found.append((kind[0], Met(-1, group, of, clock, pair)))
    found.sort(key=lambda each: number_order(*each))
    for number, (_, met) in enumerate(found):
        met.number = number
        ends = [met.end(rank) for rank in met.of]
        if 2 * (max(ends) - min(ends)) < min(one.lasts_ns for one in met.of.values()):
            run.met.append(met)
    in_kinds = {
        id(k): is_pair(kind)
        for kind in kinds
        for lane in kind
        for k in lane.kernels[: shared_by(kind)]
    }
    run.alone = [k for k in kernels if id(k) not in in_kinds]
    run.pairs = [k for k in kernels if in_kinds.get(id(k), is_point_to_point(k))]
    return run


def exposed_ns(kernel: Collective, own: list[Collective]) -> int:
    """§9.12: the exposed communication while it was the last started of its rank that ran."""
    spent = {each.start_ns: each.before[2] for each in own}
    spent |= {each.end_ns: each.until[2] for each in own}
    later = own[[id(each) for each in own].index(id(kernel)) + 1 :]
    borders = sorted(at for at in spent if kernel.start_ns <= at <= kernel.end_ns)
    return sum(
        spent[end] - spent[start]
        for start, end in pairwise(borders)
        if not any(each.start_ns <= start and end <= each.end_ns for each in later)
    )


def lanes_of(run: Run) -> list[Lane]:
    """§9.4."""
    found: dict[tuple[int, str, int | None, int | None], list[Collective]] = defaultdict(list)
    for kernel in run.kernels:
        stream = kernel.stream if kernel.communicator is None else None
        rank = run.ranks.index(kernel.rank_key)
        found[rank, kernel.name, kernel.communicator, stream].append(kernel)
    lanes = [Lane(*key, tuple(of)) for key, of in found.items()]
    return sorted(lanes, key=lambda lane: lane.order)


def kinds_of(lanes: list[Lane], clocks: Clocks) -> list[list[Lane]]:
    """§9.6: the lanes of each kind, by rank."""
    left, kinds = list(lanes), []
    while left:
        first = left.pop(0)
        others = [
            lane
            for lane in left
            if (lane.name, lane.communicator) == (first.name, first.communicator)
            and lane.rank != first.rank
            and about_as_long(len(lane.kernels), len(first.kernels))
        ]
        kind = [first, *meeting(first, others, clocks)]
        left = [lane for lane in left if lane not in kind]
        if len(kind) > 1:
            kinds.append(sorted(kind, key=lambda lane: lane.rank))
    return kinds


def about_as_long(one: int, other: int) -> bool:
    """§9.4: a recording may stop a moment later on one rank."""
    return 10 * abs(one - other) <= max(one, other)


def shared_by(kind: list[Lane]) -> int:
    """§9.4: how many kernels all lanes of a kind have."""
    return min(len(lane.kernels) for lane in kind)


def meeting(first: Lane, others: list[Lane], clocks: Clocks) -> list[Lane]:
    """§9.4, §9.5: the lanes that end together with the first, one of each rank."""
    passed = []
    for lane in others:
        pairs = list(zip(first.kernels, lane.kernels, strict=False))
        ahead = [theirs.end_ns - ours.end_ns for ours, theirs in pairs]
        here, there = clocks[first.kernels[0].report_no], clocks[lane.kernels[0].report_no]
        offset = there[0] - here[0] if here[1] == there[1] else round(median(ahead))
        apart = [abs(each - offset) for each in ahead]
        shorter = [min(ours.lasts_ns, theirs.lasts_ns) for ours, theirs in pairs]
        stray = sum(ns for ns, off in zip(shorter, apart, strict=True) if 2 * off >= ns)
        changes = sum(abs(after - before) for before, after in pairwise(ahead))
        if 10 * stray < sum(shorter):
            passed.append((lane, sum(apart), changes))
    if first.communicator is None:
        closest = min((changes for *_, changes in passed), default=0)
        passed = [
            each
            for each in passed
            if each[2] <= max(2_000 * (shared_by([first, each[0]]) - 1), 4 * closest)
        ]
    best: dict[int, Lane] = {}

    def closeness(each: tuple[Lane, int, int]) -> tuple[bool, int, tuple[object, ...]]:
        return len(each[0].kernels) != len(first.kernels), each[1], each[0].order

    for lane, _, _ in sorted(passed, key=closeness):
        best.setdefault(lane.rank, lane)
    return list(best.values())


def ranks_in(kind: list[Lane]) -> tuple[int, ...]:
    return tuple(lane.rank for lane in kind)


def is_point_to_point(kernel: Collective) -> bool:
    """§9.7: a send or receive by its name, unless NCCL says that it is an all-to-all."""
    all_to_all = re.search("all_?(to|2)_?all", (kernel.operation or "").lower())
    return bool(re.search("send|recv", kernel.name.lower())) and not all_to_all


def is_pair(kind: list[Lane]) -> bool:
    """§9.7."""
    return len(kind) == 2 and is_point_to_point(kind[0].kernels[0])


def groups_of(kinds: list[list[Lane]]) -> list[tuple[tuple[int, ...], bool]]:
    """§9.7: the ranks of each group, and whether it is of pairs, by number."""
    found = {(ranks_in(kind), False) for kind in kinds if not is_pair(kind)}
    chains: list[set[int]] = []
    for pair in [{*ranks_in(kind)} for kind in kinds if is_pair(kind)]:
        touched = [chain for chain in chains if chain & pair]
        chains = [chain for chain in chains if chain not in touched]
        chains.append(pair.union(*touched))
    found |= {(tuple(sorted(chain)), True) for chain in chains}
    return sorted(found, key=lambda each: (each[1], -len(each[0]), each[0]))


def clocks_of(kinds: list[list[Lane]], reports: int) -> Clocks:
    """§9.8."""
    parties = grouped_by(lambda kind: (ranks_in(kind), is_pair(kind)), kinds)
    links = []  # how many collectives, the lowest lane, and how far each report is ahead
    for kinds_of_party in parties.values():
        ahead: dict[int, list[int]] = defaultdict(list)
        for kind in kinds_of_party:
            for kernels in zip(*(lane.kernels for lane in kind), strict=False):
                ends: dict[int, int] = {}
                for one in kernels:
                    ends[one.report_no] = max(one.end_ns, ends.get(one.report_no, one.end_ns))
                for report, end_ns in ends.items():
                    ahead[report].append(end_ns - ends[min(ends)])
        medians = {report: round(median(each)) for report, each in ahead.items()}
        count = sum(shared_by(kind) for kind in kinds_of_party)
        links.append((-count, min(kind[0].order for kind in kinds_of_party), medians))
    links.sort(key=lambda link: link[:2])
    clocks: Clocks = {}
    for start in range(reports):
        if start in clocks:
            continue
        clocks[start] = (0, start)
        while True:
            joining = [
                of for *_, of in links if any(r in clocks for r in of) and not {*of} <= {*clocks}
            ]
            if not joining:
                break
            of = joining[0]
            known = min(report for report in of if report in clocks)
            for report in of:
                if report not in clocks:
                    clocks[report] = (clocks[known][0] + of[report] - of[known], start)
    return clocks


def number_order(first: Lane, met: Met) -> tuple[object, ...]:
    """§9.9: by the start on the lowest rank, on the first report's clock."""
    rank = min(met.of)
    one, number = met.of[rank], first.communicator
    order = (met.start(rank), met.end(rank), one.stream, first.name)
    return (*order, number is not None, number or 0, first.order, first.kernels.index(one))
