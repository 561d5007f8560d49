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

MOST: Final = 4
"""What follows from more nodes than this becomes a node itself. The same comes out with any number;
with this one an FSDP2 program has fewest bounds (16,049; 19,992 with 2, 16,812 with 6)."""

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
    return _Reduction({place[op]: op for op in met}, {place[op]: op for op in begun}).of(*sides)


class _Reduction:
    """The nodes that are left, while all nodes of a program are gone through."""

    def __init__(self, met: Mapping[int, int], begun: Mapping[int, int]) -> None:
        """Keep the nodes at these places of operations."""
        self.met, self.begun = met, begun
        self.rows: list[list[tuple[int, int, int]]] = [[]]

    def of(self, a: list[int], a_ns: list[int], b: list[int], b_ns: list[int]) -> Reduced:
        """Go through all nodes, each with its two sources and the slack to them."""
        met: dict[int, int] = {}
        begun: dict[int, int] = {}
        found: list[Sources] = [{ORIGIN: 0}]
        nodes = zip(a, a_ns, b, b_ns, strict=True)
        next(nodes)
        for place, (one, one_ns, other, other_ns) in enumerate(nodes, start=1):
            sources = _earlier_of(found[one], one_ns, found[other], other_ns)
            if len(sources) > MOST:
                sources = {self._node(sources): 0}
            if place in self.begun:
                begun[self.begun[place]] = self._node(sources)
            if place in self.met:
                sources = {self._node(sources): 0}
                (met[self.met[place]],) = sources
            found.append(sources)
        return Reduced(self._bounds({*met.values(), *begun.values()}), met, begun)

    def _node(self, sources: Sources) -> int:
        """A node that follows from these."""
        number = len(self.rows)
        self.rows.append([(number, source, ns) for source, ns in sources.items()])
        return number

    def _bounds(self, wanted: set[int]) -> pl.DataFrame:
        """BOUNDS of the nodes that are wanted, and of those that they follow from."""
        kept = []
        for number in range(len(self.rows) - 1, ORIGIN, -1):
            if number in wanted:
                kept.append(self.rows[number])
                wanted.update(source for _, source, _ in self.rows[number])
        rows = [row for rows in reversed(kept) for row in rows]
        return pl.DataFrame(rows, schema=BOUNDS, orient="row")


def _earlier_of(one: Sources, one_ns: int, other: Sources, other_ns: int) -> Sources:
    """What a time follows from that is reached with some slack to two others.

    What follows from the origin never comes sooner by more than the slack to it, so a source with
    as much slack binds never.
    """
    if other_ns > _FAR_NS or other is one:
        return _with_slack(one, min(one_ns, other_ns))
    if one_ns > _FAR_NS:
        return _with_slack(other, other_ns)
    found = _with_slack(one, one_ns)
    most_ns = found.get(ORIGIN, _FAR_NS)
    if other_ns >= most_ns:
        return found
    found = dict(found)
    for node, ns in other.items():
        found[node] = min(found.get(node, _FAR_NS), ns + other_ns)
    most_ns = found.get(ORIGIN, _FAR_NS)
    return {node: ns for node, ns in found.items() if ns < most_ns or node == ORIGIN}


def _with_slack(sources: Sources, slack_ns: int) -> Sources:
    return {node: ns + slack_ns for node, ns in sources.items()} if slack_ns else sources
