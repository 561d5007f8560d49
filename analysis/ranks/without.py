"""How much earlier everything in a run happens if nobody waits for one rank (spec §9.19)."""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from operator import add
from typing import Final

import polars as pl

from nsysflow.analysis.ranks.reduced import ORIGIN

_UNKNOWN: Final = -(1 << 62)
"""How much earlier a collective ends, until all its ranks have reached it. With any slack added, it
is still negative, and nothing else is."""

_NO_LIMIT_NS: Final = 1 << 61
"""More than any node can be earlier."""

_NOT_MET: Final = -1
"""The collective of a node that is none."""

_Arrival = tuple[int, int, int]
"""A collective, the node that is a kernel of it, and by how many ns that would end earlier if it
waited for no other rank."""


class Run:
    """The programs of a run's reports, and the collectives in which they wait for each other."""

    def __init__(self, bounds: Sequence[pl.DataFrame], rows: pl.DataFrame) -> None:
        """Take BOUNDS of each report, and rows of `arrivals.aligned`."""
        self._rows = rows.select("rank", "pair", "report_no", "node")
        self._sizes = dict(rows.group_by("collective").len().iter_rows())
        met = rows.select("report_no", "node", "collective", "waited_ns")
        of_report = met.partition_by("report_no", as_dict=True, include_key=False)
        none = met.drop("report_no").clear()
        self._programs = [
            _Program(each, of_report.get((number,), none)) for number, each in enumerate(bounds)
        ]

    def without(self, rank: int) -> list[Sequence[int]] | None:
        """By how many ns each node of each report is earlier. None if ranks would wait for each
        other for ever. Then their reports contradict each other.

        Args:
            rank: the one that nobody waits for, except in sends and receives.
        """
        ignored: dict[int, set[int]] = defaultdict(set)
        own = self._rows.filter(pl.col("rank") == rank, ~pl.col("pair"))
        for report, node in own.select("report_no", "node").iter_rows():
            ignored[report].add(node)
        missing = self._sizes.copy()
        least = dict.fromkeys(missing, _NO_LIMIT_NS)
        arrived: dict[int, list[tuple[int, int, int]]] = {each: [] for each in missing}
        replays = [_Replay(program) for program in self._programs]
        ready = list(range(len(replays)))
        while ready:
            report = ready.pop()
            alone = ignored.get(report, ())
            for collective, node, gain in iter(replays[report].arrive, None):
                arrived[collective].append((report, node, gain))
                if gain < least[collective] and node not in alone:
                    least[collective] = gain
                missing[collective] -= 1
                if missing[collective] == 0:
                    most = least[collective]
                    for at, kernel, own_gain in arrived.pop(collective):
                        if replays[at].goes_on(kernel, min(most, own_gain)):
                            ready.append(at)
        stuck = any(replay.awaited != ORIGIN for replay in replays)
        return None if stuck else [replay.starts for replay in replays]


class _Program:
    """A report's program.

    Attributes:
        nodes: in an order in which sources come before what waits for them.
        counts: how many bounds each of them has.
        collectives: what each of them is a kernel of; `_NOT_MET` for others.
        waited_ns: how long the kernel waited for the last rank in the recording.
        sources: of all bounds.
        slack_ns: of all bounds.
    """

    def __init__(self, bounds: pl.DataFrame, met: pl.DataFrame) -> None:
        nodes = bounds.group_by("node", maintain_order=True).len()
        nodes = nodes.join(met, on="node", how="left", maintain_order="left")
        self.nodes = array("I", nodes["node"].to_list())
        self.counts = array("I", nodes["len"].to_list())
        self.collectives = array("q", nodes["collective"].fill_null(_NOT_MET).to_list())
        self.waited_ns = array("q", nodes["waited_ns"].fill_null(0).to_list())
        self.sources = array("I", bounds["source"].to_list())
        self.slack_ns = array("q", bounds["slack_ns"].to_list())


class _Replay:
    """A report's program, replayed as far as the other reports allow.

    Attributes:
        starts: how many ns earlier each node is reached.
        arrive: goes on to the next collective. Returns None at the end, or where a node waits for a
            collective that has not ended.
        awaited: the node that the replay waits for; the origin while it does not.
    """

    def __init__(self, program: _Program) -> None:
        count = 1 + max(program.nodes, default=ORIGIN)
        self.starts = array("q", [0]) * count
        self.arrive = partial(next, self._run(program), None)
        self.awaited = ORIGIN
        self._ends = array("q", [0]) * count

    def goes_on(self, node: int, gain_ns: int) -> bool:
        """Let a kernel of a collective end so much earlier. Returns whether the replay waited for
        that."""
        self._ends[node] = gain_ns
        return node == self.awaited

    def _run(self, program: _Program) -> Iterator[_Arrival | None]:
        """Yields what `arrive` returns."""
        starts, ends = self.starts, self._ends
        ended = ends.__getitem__
        sources, slack_ns = iter(program.sources), iter(program.slack_ns)
        rows = zip(
            program.nodes, program.counts, program.collectives, program.waited_ns, strict=True
        )
        for node, count, collective, waited_ns in rows:
            of, slack = tuple(islice(sources, count)), tuple(islice(slack_ns, count))
            while (gain := min(map(add, map(ended, of), slack))) < 0:
                self.awaited = next(source for source in of if ends[source] == _UNKNOWN)
                yield None
                self.awaited = ORIGIN
            starts[node] = gain
            if collective == _NOT_MET:
                ends[node] = gain
            else:
                ends[node] = _UNKNOWN
                yield collective, node, gain + waited_ns
