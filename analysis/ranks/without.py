"""How much earlier everything in a run happens if nobody waits for one rank (spec §9.19)."""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.ranks.reduced import ORIGIN

_UNKNOWN: Final = -1
"""How much earlier a collective ends, until all its ranks have reached it."""

_NO_LIMIT_NS: Final = 1 << 61
"""More than any node can be earlier."""

_Place = tuple[int, int]
"""A report, and a node of it."""


def earlier_starts(
    bounds: Sequence[pl.DataFrame], rows: pl.DataFrame, rank: int
) -> list[Sequence[int]] | None:
    """By how many ns each node of each report is earlier.

    None if ranks would wait for each other for ever. Then their reports contradict each other.

    Args:
        bounds: BOUNDS of each report.
        rows: of `arrivals.aligned`.
        rank: the one that nobody waits for, except in sends and receives.
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
                gains = {(at, node): programs[at].alone(node) for at, node in members[collective]}
                least = min(gain for place, gain in gains.items() if place not in ignored)
                for (at, node), gain in gains.items():
                    if programs[at].goes_on(node, min(least, gain)):
                        ready.append(at)
    return None if any(map(_Program.is_stuck, programs)) else [each.starts for each in programs]


class _Program:
    """A report's program, replayed as far as the other reports allow.

    Attributes:
        starts: how many ns earlier each node is reached.
        meets: for each node that is a kernel of a collective: the collective, and how long the
            kernel waited for the last rank in the recording.
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
        """Go on up to a node that waits for a collective that has not ended. Yield the collectives
        that are reached."""
        sources, slack_ns, ends = self._sources, self._slack_ns, self._ends
        while self._next < len(self._nodes):
            node, gain = self._nodes[self._next], _NO_LIMIT_NS
            for at in range(self._bound, self._until[self._next]):
                source_gain = ends[sources[at]]
                if source_gain == _UNKNOWN:
                    self._awaited = sources[at]
                    return
                gain = min(gain, source_gain + slack_ns[at])
            self._bound = self._until[self._next]
            self._next += 1
            self.starts[node] = gain
            if node in self.meets:
                ends[node] = _UNKNOWN
                yield self.meets[node][0]
            else:
                ends[node] = gain

    def alone(self, node: int) -> int:
        """How many ns earlier a kernel of a collective would end if it waited for no other rank."""
        return self.starts[node] + self.meets[node][1]

    def goes_on(self, node: int, gain_ns: int) -> bool:
        """Let a kernel of a collective end so much earlier. Returns whether the program waited for
        that."""
        self._ends[node] = gain_ns
        return node == self._awaited

    def is_stuck(self) -> bool:
        """Whether the program still waits for a collective."""
        return self._next < len(self._nodes)
