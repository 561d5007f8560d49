"""How much shorter steps would be if nobody waited for a straggler (spec §9.19)."""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import add
from typing import Final

import polars as pl

from nsysflow.analysis.frames.columns import median_ns, whole_ns
from nsysflow.analysis.ranks.digest import ORIGIN, Digest
from nsysflow.analysis.ranks.groups import NumberedRanks, RunSteps
from nsysflow.analysis.ranks.stragglers import PASSED_ON

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
        self._rows = rows[["rank", "pair", "report_no", "node"]]
        self._sizes = dict(rows.group_by("collective").len().iter_rows())
        met = rows[["report_no", "node", "collective", "waited_ns"]]
        of_report = met.partition_by("report_no", as_dict=True, include_key=False)
        none = met.drop("report_no").clear()
        self._programs = [
            _Program(bounds_of_rank, of_report.get((number,), none))
            for number, bounds_of_rank in enumerate(bounds)
        ]

    def without(self, rank: int) -> list[Sequence[int]] | None:
        """By how many ns each node of each report is earlier. None if ranks would wait for each
        other for ever. Then their reports contradict each other.

        Args:
            rank: the one that nobody waits for, except in sends and receives.
        """
        ignored: dict[int, set[int]] = defaultdict(set)
        own = self._rows.filter(pl.col("rank") == rank, ~pl.col("pair"))
        for report, node in own[["report_no", "node"]].iter_rows():
            ignored[report].add(node)
        missing = self._sizes.copy()
        least = dict.fromkeys(missing, _NO_LIMIT_NS)
        arrived: dict[int, list[tuple[int, int, int]]] = {collective: [] for collective in missing}
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
            nodes, slack = tuple(islice(sources, count)), tuple(islice(slack_ns, count))
            while (gain := min(map(add, map(ended, nodes), slack))) < 0:
                self.awaited = next(source for source in nodes if ends[source] == _UNKNOWN)
                yield None
                self.awaited = ORIGIN
            starts[node] = gain
            if collective == _NOT_MET:
                ends[node] = gain
            else:
                ends[node] = _UNKNOWN
                yield collective, node, gain + waited_ns


_MOST_STRAGGLERS: Final = 4
"""The run is replayed for so many stragglers, those that cost most. With 1,024 ranks a replay takes
some seconds."""

_STEP: Final = ["rank", "step"]


def run_of(digests: Sequence[Digest], rows: pl.DataFrame) -> Run | None:
    """What is replayed; None if a report with collectives is not reduced.

    Args:
        digests: of all reports.
        rows: of `arrivals.aligned`.
    """
    if not all(digest.collectives.is_empty() or len(digest.bounds) for digest in digests):
        return None
    return Run([digest.bounds for digest in digests], rows)


def gained_without(
    rank: int, run: Run | None, digests: Sequence[Digest], ranks: NumberedRanks
) -> pl.DataFrame:
    """`rank`, `step`, `gained_ns`: how much shorter each step of the other ranks would be.

    Steps that no other step follows are left out. Empty if there is nothing to replay.

    Args:
        rank: the one that nobody waits for.
        run: of `run_of`.
        digests: of all reports.
        ranks: of `kernels.ranks_of`.
    """
    earlier_ns = None if run is None else run.without(rank)
    if earlier_ns is None:
        return _GAINED
    nodes = pl.concat(
        [
            digest.step_nodes.with_columns(pl.lit(number, pl.Int64).alias("report_no"))
            for number, digest in enumerate(digests)
        ]
    )
    gained = [
        earlier_ns[number][following] - earlier_ns[number][node]
        for number, node, following in nodes[["report_no", "node", "next_node"]].iter_rows()
    ]
    others = ranks.filter(pl.col("rank") != rank)
    return (
        nodes.with_columns(pl.Series("gained_ns", gained, dtype=pl.Int64))
        .join(others, on=["report_no", "process", "device"], nulls_equal=True)
        .select(_GAINED.columns)
    )


_GAINED: Final = pl.DataFrame(
    schema={"rank": pl.Int64, "step": pl.Int64, "gained_ns": pl.Int64},
)


def with_savings(
    groups: pl.DataFrame,
    members: pl.DataFrame,
    steps: RunSteps,
    gained: Callable[[int], pl.DataFrame],
) -> pl.DataFrame:
    """`groups` plus `saved_step_ns`: how much shorter a step would be if nobody waited for the
    straggler of the group. It is the median over the other ranks of the group.

    Args:
        groups: RANK_GROUPS without savings.
        members: `group`, `pair`, `members` of each group.
        steps: `rank`, `step` of the steps that count.
        gained: of `gained_without`, for a rank.
    """
    held_up = (
        groups.filter(pl.col("steps_last") > 0, ~PASSED_ON)
        .select("group", straggler="rank")
        .join(members.filter(~pl.col("pair")), on="group", maintain_order="left")
        .select("group", "straggler", "members")
    )
    dearest = held_up["straggler"].unique(maintain_order=True).head(_MOST_STRAGGLERS)
    rows = [_saved(held_up.clear(), _GAINED, steps)]
    for rank in dearest:
        mine = held_up.filter(pl.col("straggler") == rank)
        rows.append(_saved(mine, gained(rank), steps))
    saved = pl.col("saved_step_ns").clip(0, pl.col("cost_step_ns"))
    with_saved = groups.join(pl.concat(rows), on="group", how="left", maintain_order="left")
    return with_saved.with_columns(saved)


def _saved(held_up: pl.DataFrame, gained: pl.DataFrame, steps: RunSteps) -> pl.DataFrame:
    """`group`, `saved_step_ns` of the groups of one straggler."""
    of_rank = (
        gained.join(steps, on=_STEP, how="semi")
        .group_by("rank")
        .agg(whole_ns(pl.col("gained_ns").mean()))
    )
    others = held_up.explode("members").rename({"members": "rank"})
    return (
        others.join(of_rank, on="rank")
        .group_by("group")
        .agg(median_ns(pl.col("gained_ns")).alias("saved_step_ns"))
    )
