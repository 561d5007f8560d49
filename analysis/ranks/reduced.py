"""A report's program (spec §14), reduced to what lies between its collectives."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

import polars as pl

from nsysflow.analysis.ranks.schema import BOUNDS
from nsysflow.analysis.replay.dependencies.program import Program
from nsysflow.analysis.replay.replay import NEVER_NS, network_of

ORIGIN: Final = 0
"""The node that never comes sooner: the beginning of the report."""

MOST: Final = 3
"""What follows from more nodes than this becomes a node itself. The same comes out with any number;
with this one the bounds are few (6,668 of a step of FSDP2 run 17 times; 7,742 with 2)."""

_FAR_NS: Final = -NEVER_NS // 2
"""A slack that no saving reaches: that of a bound that is none."""

Sources = dict[int, int]
"""What a time follows from: nodes, each with the slack to it."""


@dataclass(frozen=True)
class Reduced:
    """A program of few nodes. They are numbered in an order in which each comes after its sources.

    Attributes:
        bounds: `schema.BOUNDS`.
        met: the node of each collective, by its operation: when it starts. What follows from the
            node follows from the collective's end.
        begun: the node of other operations that were asked for: when they start.
    """

    bounds: pl.DataFrame
    met: Mapping[int, int]
    begun: Mapping[int, int]

    @classmethod
    def nothing(cls) -> Self:
        """Of no operations."""
        return cls(BOUNDS.to_frame(), {}, {})


def reduced(program: Program, met: Iterable[int], begun: Iterable[int]) -> Reduced:
    """Leave of a program when some operations start, and what that depends on.

    Args:
        program: of a whole report.
        met: the operations whose end depends on other ranks.
        begun: further operations whose start matters.
    """
    network = network_of(program)
    reached = pl.Series(network.reached_ns(), dtype=pl.Int64)
    bounds = network.bounds
    sides = []
    for side in ("a", "b"):
        slack = reached - reached.gather(bounds[side]) - bounds[f"{side}_ns"]
        sides += [bounds[side].to_list(), slack.to_list()]
    place = network.ops.to_list()
    lasts_ns = program.ops["length_ns"].to_list()
    kept = {place[op]: (op, lasts_ns[op]) for op in met}
    return _Reduction(kept, {place[op]: op for op in begun}).of(*sides)


class _Reduction:
    """The nodes that are left, while all nodes of a program are gone through."""

    def __init__(self, met: Mapping[int, tuple[int, int]], begun: Mapping[int, int]) -> None:
        """Keep the nodes at the places of operations: of collectives with how long they last."""
        self.met, self.begun = met, begun
        self.sources: list[Sources] = [{}]
        self.lasts_ns: list[int] = [0]

    def of(self, a: list[int], a_ns: list[int], b: list[int], b_ns: list[int]) -> Reduced:
        """Go through all nodes, each with its two sources and the slack to them."""
        met: dict[int, int] = {}
        begun: dict[int, int] = {}
        found: list[Sources] = [{ORIGIN: 0}]
        nodes = zip(a, a_ns, b, b_ns, strict=True)
        next(nodes)
        kept = self.met.keys() | self.begun.keys()
        for place, (one, one_ns, other, other_ns) in enumerate(nodes, start=1):
            if one_ns == 0 and other_ns > _FAR_NS and place not in kept:
                found.append(found[one])  # most calls: a quarter less time
                continue
            sources = _earlier_of(found[one], one_ns, found[other], other_ns)
            if len(sources) > MOST:
                sources = self._binding(sources)
                if len(sources) > MOST:
                    sources = {self._node(sources): 0}
            if place in self.begun:
                begun[self.begun[place]] = self._node(sources)
            if place in self.met:
                op, lasts_ns = self.met[place]
                met[op] = self._node(sources, lasts_ns)
                sources = {met[op]: 0}
            found.append(sources)
        return Reduced(self._bounds({*met.values(), *begun.values()}), met, begun)

    def _node(self, sources: Sources, lasts_ns: int = 0) -> int:
        """A node that follows from these, or a collective that does and lasts so long."""
        self.sources.append(self._binding(sources))
        self.lasts_ns.append(lasts_ns)
        return len(self.sources) - 1

    def _binding(self, sources: Sources) -> Sources:
        """Those of the sources that can bind.

        A node comes sooner by no more than what it follows from and the slack to that; a
        collective ends sooner by no more than that and its length, all of which may be a wait. If
        another source has more slack than that allows, it binds never.
        """
        found = dict(sources)
        for node in sorted(sources, reverse=True):
            if node in found:
                least_ns = found[node] + self.lasts_ns[node]
                for before, ns in self.sources[node].items():
                    if found.get(before, -1) >= least_ns + ns:
                        del found[before]
        return found

    def _bounds(self, wanted: set[int]) -> pl.DataFrame:
        """BOUNDS of the nodes that are wanted, and of those that they follow from."""
        for number in range(len(self.sources) - 1, ORIGIN, -1):
            if number in wanted:
                wanted.update(self.sources[number])
        kept = sorted(wanted - {ORIGIN})
        each = [self.sources[number] for number in kept]
        return pl.DataFrame(
            {
                "node": [number for number in kept for _ in self.sources[number]],
                "source": [source for sources in each for source in sources],
                "slack_ns": [ns for sources in each for ns in sources.values()],
            },
            schema=BOUNDS,
        )


def _earlier_of(one: Sources, one_ns: int, other: Sources, other_ns: int) -> Sources:
    """What a time follows from that is reached with some slack to two others.

    What follows from the origin never comes sooner by more than the slack to it, so a source with
    as much slack binds never.
    """
    if one_ns > other_ns:
        one, one_ns, other, other_ns = other, other_ns, one, one_ns
    if other_ns > _FAR_NS or other is one:
        return _with_slack(one, one_ns)
    most_ns = one.get(ORIGIN, _FAR_NS) + one_ns
    more = {
        node: ns + other_ns
        for node, ns in other.items()
        if ns + other_ns < most_ns and ns + other_ns < one.get(node, _FAR_NS) + one_ns
    }
    if not more:
        return _with_slack(one, one_ns)
    most_ns = more.get(ORIGIN, most_ns)
    kept = {node: ns + one_ns for node, ns in one.items() if ns + one_ns <= most_ns}
    return kept | more


def _with_slack(sources: Sources, slack_ns: int) -> Sources:
    return {node: ns + slack_ns for node, ns in sources.items()} if slack_ns else sources
