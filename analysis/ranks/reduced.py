"""A report's program (spec §14), reduced to its collectives and the begins of its steps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

import polars as pl

from nsysflow.analysis.ranks.schema import BOUNDS
from nsysflow.analysis.replay.replay import NEVER_NS, Program, network_of

ORIGIN: Final = 0
"""The node that is never earlier: the beginning of the report."""

_MOST_SOURCES: Final = 3
"""A time that depends on more nodes becomes a node itself. Results are the same with any number.
With this one there are few bounds (6,668 of a step of FSDP2 run 17 times; 7,742 with 2)."""

_NO_BOUND_NS: Final = -NEVER_NS // 2
"""More slack than this means that there is no bound: `NEVER_NS` was subtracted."""

Sources = dict[int, int]
"""The nodes that a time depends on, each with its slack."""


@dataclass(frozen=True)
class Reduced:
    """A program of few nodes. Each has a higher number than its sources.

    Attributes:
        bounds: `schema.BOUNDS`.
        met: by operation, the node at which each collective starts. As a source, this node stands
            for the collective's end.
        begun: by operation, the node at which each other operation starts that was asked for.
    """

    bounds: pl.DataFrame
    met: Mapping[int, int]
    begun: Mapping[int, int]

    @classmethod
    def nothing(cls) -> Self:
        """No nodes, for a report that is not reduced."""
        return cls(BOUNDS.to_frame(), {}, {})


def reduced(program: Program, met: Iterable[int], begun: Iterable[int]) -> Reduced:
    """A program reduced to the starts of some operations, and what these depend on.

    Args:
        program: of a whole report.
        met: the collectives: other ranks decide when they end.
        begun: other operations whose start is needed.
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
    return _Reduction(kept, {place[op]: op for op in begun}).over(*sides)


class _Reduction:
    """Goes through all nodes of a program and collects those of the reduced one.

    Attributes:
        sources: the sources of each new node, by its number.
        lasts_ns: how long each new node lasts: the length of a collective, else 0.
    """

    def __init__(self, met: Mapping[int, tuple[int, int]], begun: Mapping[int, int]) -> None:
        """Take the operations to keep by their places, collectives with their length in ns."""
        self.met, self.begun = met, begun
        self.sources: list[Sources] = [{}]
        self.lasts_ns: list[int] = [0]

    def over(self, a: list[int], a_ns: list[int], b: list[int], b_ns: list[int]) -> Reduced:
        """The reduced program.

        Args:
            a: per node, the place of its first source.
            a_ns: the slack of that bound.
            b: per node, the place of its second source.
            b_ns: the slack of that bound.
        """
        met: dict[int, int] = {}
        begun: dict[int, int] = {}
        found: list[Sources] = [{ORIGIN: 0}]
        nodes = zip(a, a_ns, b, b_ns, strict=True)
        next(nodes)
        kept = self.met.keys() | self.begun.keys()
        for place, (one, one_ns, other, other_ns) in enumerate(nodes, start=1):
            if one_ns == 0 and other_ns > _NO_BOUND_NS and place not in kept:
                found.append(found[one])  # true of most calls: saves a quarter of the time
                continue
            sources = _combined(found[one], one_ns, found[other], other_ns)
            if place in kept or len(sources) > _MOST_SOURCES:
                sources = self._that_matter(sources)
            if len(sources) > _MOST_SOURCES:
                sources = {self._new_node(sources): 0}
            if place in self.begun:
                begun[self.begun[place]] = self._new_node(sources)
            if place in self.met:
                op, lasts_ns = self.met[place]
                met[op] = self._new_node(sources, lasts_ns)
                sources = {met[op]: 0}
            found.append(sources)
        return Reduced(self._bounds({*met.values(), *begun.values()}), met, begun)

    def _new_node(self, sources: Sources, lasts_ns: int = 0) -> int:
        """The number of a new node with these sources. A collective lasts `lasts_ns`."""
        self.sources.append(sources)
        self.lasts_ns.append(lasts_ns)
        return len(self.sources) - 1

    def _that_matter(self, sources: Sources) -> Sources:
        """The sources that can be the one that limits how much earlier a time is.

        Let source B wait for source A. Then B ends earlier by at most what A does, plus the slack
        between them, plus B's length if it is a collective: all of that may be a wait. If A's slack
        is at least B's slack plus these two, B is always the limit, and A never matters.
        """
        if len(sources) == 1:
            return sources
        found, slack_of, of, lasts_ns = sources.copy(), sources.get, self.sources, self.lasts_ns
        for node in sorted(sources, reverse=True):
            if node in found:
                least_ns = sources[node] + lasts_ns[node]
                for before, ns in of[node].items():
                    if slack_of(before, -1) >= least_ns + ns:
                        found.pop(before, None)
        return found

    def _bounds(self, wanted: set[int]) -> pl.DataFrame:
        """BOUNDS of the nodes that are wanted, and of all that they depend on."""
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


def _combined(one: Sources, one_ns: int, other: Sources, other_ns: int) -> Sources:
    """The sources of a node with two bounds: those of both, each with its bound's slack added.

    The origin is never earlier. So a time that depends on it is earlier by at most the slack to it,
    and a source with as much slack or more never matters.
    """
    if one_ns > other_ns:
        one, one_ns, other, other_ns = other, other_ns, one, one_ns
    if one_ns:
        one = {node: ns + one_ns for node, ns in one.items()}
    most_ns = one.get(ORIGIN, _NO_BOUND_NS)
    if other_ns >= most_ns or other is one:
        return one
    more = {
        node: ns + other_ns
        for node, ns in other.items()
        if ns + other_ns < most_ns and ns + other_ns < one.get(node, _NO_BOUND_NS)
    }
    if ORIGIN in more:
        one = {node: ns for node, ns in one.items() if ns <= more[ORIGIN]}
    return one | more if more else one
