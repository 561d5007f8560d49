"""How much sooner a run goes on if nobody waits for one of its ranks (spec §9.19)."""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.ranks.reduced import ORIGIN

_NOT_YET: Final = -1
"""In place of how much sooner a collective ends, until all its ranks have come."""

_MORE: Final = 1 << 61
"""More than anything can come sooner."""

_Place = tuple[int, int]
"""A report, and a node of it."""


def sooner(
    bounds: Sequence[pl.DataFrame], rows: pl.DataFrame, rank: int
) -> list[Sequence[int]] | None:
    """By how many ns each node of each report comes sooner; None where the ranks never meet as
    they did.

    Args:
        bounds: BOUNDS of each report.
        rows: of `arrivals.aligned`.
        rank: the one that nobody waits for, but in sends and receives.
    """
    programs = [_Program(each) for each in bounds]
    members: dict[int, list[_Place]] = defaultdict(list)
    ignored: set[_Place] = set()
    columns = ("report_no", "node", "collective", "waited_ns", "rank", "pair")
    for report, node, collective, waited_ns, of, pair in rows.select(columns).iter_rows():
        programs[report].meets[node] = (collective, waited_ns)
        members[collective].append((report, node))
        if of == rank and not pair:
            ignored.add((report, node))
    missing = {collective: len(places) for collective, places in members.items()}
    ready = list(range(len(programs)))
    while ready:
        for collective in programs[ready.pop()].arrivals():
            missing[collective] -= 1
            if missing[collective] == 0:
                gains = {(at, node): programs[at].came(node) for at, node in members[collective]}
                least = min(gain for place, gain in gains.items() if place not in ignored)
                for (at, node), gain in gains.items():
                    if programs[at].ends(node, min(least, gain)):
                        ready.append(at)
    return None if any(map(_Program.waits, programs)) else [each.starts for each in programs]


class _Program:
    """A report's program, gone through as far as the others have come.

    Attributes:
        starts: how much sooner each node comes.
        meets: of each node that is a kernel of a collective, that collective and how long the
            kernel waited there as recorded.
    """

    def __init__(self, bounds: pl.DataFrame) -> None:
        nodes = bounds.group_by("node", maintain_order=True).len()
        self._nodes = array("q", nodes["node"].to_list())
        self._until = array("q", nodes["len"].cum_sum().to_list())
        self._sources = array("q", bounds["source"].to_list())
        self._slack_ns = array("q", bounds["slack_ns"].to_list())
        count = 1 + max(self._nodes, default=ORIGIN)
        self.starts = array("q", [0]) * count
        self._ends = array("q", [0]) * count
        self.meets: dict[int, tuple[int, int]] = {}
        self._next = self._bound = 0
        self._awaited = ORIGIN

    def arrivals(self) -> Iterator[int]:
        """Go on until a collective is needed that is not over; yield those that are come to."""
        sources, slack_ns, ends = self._sources, self._slack_ns, self._ends
        while self._next < len(self._nodes):
            node, gain = self._nodes[self._next], _MORE
            for at in range(self._bound, self._until[self._next]):
                source_gain = ends[sources[at]]
                if source_gain == _NOT_YET:
                    self._awaited = sources[at]
                    return
                gain = min(gain, source_gain + slack_ns[at])
            self._bound = self._until[self._next]
            self._next += 1
            self.starts[node] = gain
            if node in self.meets:
                ends[node] = _NOT_YET
                yield self.meets[node][0]
            else:
                ends[node] = gain

    def came(self, node: int) -> int:
        """By how much sooner a collective could end, if it were for this kernel of it alone."""
        return self.starts[node] + self.meets[node][1]

    def ends(self, node: int, gain_ns: int) -> bool:
        """A kernel's collective is over, so much sooner; whether that is what the program needs."""
        self._ends[node] = gain_ns
        return node == self._awaited

    def waits(self) -> bool:
        """Whether the program has not come to its end."""
        return self._next < len(self._nodes)
