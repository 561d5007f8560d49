from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nsysflow import Analysis
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.report.ranks import LateRank, Line, RankSummary, heat_map, summarize_ranks
from nsysflow.report.results import Origin
from nsysflow.report.results import Results as RealResults
from tests.report.handmade import MS, Results, frame, row, training

Rows = Sequence[Mapping[str, Any]]


def run_with(*, many: bool = True, analysis: Analysis | None = None, **tables: Rows) -> RealResults:
    """A run with these tables of its ranks; the rest is of one report, by default by hand."""
    one = analysis or training()
    of_one = digest(one) if isinstance(one, Analysis) else one.digest
    ranks = Ranks.of([of_one] * 2) if many else None
    report = one.trace.report
    origin = Origin(ranks=True, paths={report: Path(report)})
    run = Results([one], ranks=ranks, origin=origin)
    frames = {name: frame(name, *map(dict, rows)) for name, rows in tables.items()}
    for part in (run, run.judged):
        part._tables |= frames
    return run


def ranks(count: int) -> Rows:
    """RANKS: rank 8 is on GPU 0 again."""
    return [{"rank": at, "report": f"rank{at}", "device": at % 8} for at in range(count)]


def steps(count: int, each: int, late: Mapping[int, Sequence[int]] | None = None) -> Rows:
    """RANK_STEPS of ranks that compute 8 ms of each step; late ones 9 ms in their steps, in which
    the others wait."""
    found = []
    for rank in range(count):
        for step in range(each):
            mine = 9 if late and step in late.get(rank, ()) else 8
            of_rank = row(rank=rank, report=f"rank{rank}", device=rank % 8, step=step)
            times = row(duration_ms=10, compute_ms=mine, comm_exposed_ms=10 - mine)
            found.append(of_rank | times | row(cost_ms=mine - 8))
    return found


def group(**columns: Any) -> dict[str, Any]:
    """A row of RANK_GROUPS: all of 64 ranks, of which rank 37 costs a tenth of each of 20 steps.
    What the run would save is not known."""
    straggler = {"rank": 37, "report": "rank37", "device": 5, "times_last": 200}
    cost = {"steps": 20, "steps_last": 20, "cost_ns": 20 * MS, "cost_step_ns": MS}
    saved = {"saved_step_ns": None}
    late = {"late_ns": 21 * MS, "cost_work_ns": 20 * MS, "cost_host_ns": MS}
    of = {"kind": "all", "ranks": 64, "members": "0-63", "collectives": 200, "through": None}
    return {**of, **straggler, **cost, **saved, **late, **columns}


def many(analysis: Analysis | None = None) -> RealResults:
    """A run of 64 ranks in two groups, with a straggler, an outlier and a known link."""
    outlier = {"rank": 37, "report": "rank37", "part": "compute", "ns": 9 * MS, "median_ns": 8 * MS}
    link = {"kind": "all", "operation": "ncclAllReduce", "bytes": 1 << 25, "count": 9}
    speed = {"done_ns": 160_000, "bus_bytes_per_s": 4e11, "slow_ns": None, "peak_pct": None}
    return run_with(
        analysis=analysis,
        ranks=ranks(64),
        rank_groups=[group(), group(group=1, kind="TP", ranks=8, members="0-7", cost_step_ns=0)],
        rank_steps=steps(64, 20, {37: range(20)}),
        rank_outliers=[outlier],
        bandwidth=[link | speed],
    )


def drawn(
    ranks: int, each: int, *, alone: Sequence[int] = (), lines: int = 8, **late: Any
) -> list[Line]:
    """The picture of so many ranks and steps; `r2=[1, 3]` is late in these steps."""
    named = {int(name[1:]): some for name, some in late.items()}
    return heat_map(frame("rank_steps", *map(dict, steps(ranks, each, named))), alone, lines, 80)


def test_a_rank_that_takes_a_tenth_of_a_step_longer_stands_out_in_these_steps() -> None:
    lines = drawn(4, 5, r2=[1, 3])
    assert [line.letters for line in lines] == ["·····", "·····", "·▓·▓·", "·····"]


def test_ranks_to_show_alone_come_first_and_the_others_keep_their_neighbours() -> None:
    lines = drawn(16, 2, alone=[9], lines=6)
    rest = [(0, 1, 2, 3), (4, 5, 6, 7), (8, 10, 11), (12, 13, 14, 15)]
    assert [line.ranks for line in lines] == [(9,), *rest]


def test_a_thousand_ranks_fit_into_the_lines_and_the_worst_of_them_is_seen() -> None:
    lines = drawn(1024, 3, lines=12, r700=[1])
    assert len(lines) == 8
    assert [line.letters for line in lines].count("·▓·") == 1
    assert sum(len(line.ranks) for line in lines) == 1024


def test_a_step_that_a_rank_lacks_is_blank_and_without_steps_there_is_no_picture() -> None:
    rows = [row for row in steps(2, 3) if (row["rank"], row["step"]) != (1, 1)]
    lines = heat_map(frame("rank_steps", *map(dict, rows)), [], 8, 80)
    assert [line.letters for line in lines] == ["···", "· ·"]
    assert drawn(0, 0) == []


def said(
    *groups: dict[str, Any], late: Mapping[str, LateRank] | None = None, bandwidth: Any = ()
) -> RankSummary:
    tables = {"ranks": ranks(64), "rank_steps": steps(64, 2), "bandwidth": bandwidth}
    return summarize_ranks(run_with(rank_groups=groups, **tables).judged, late or {})


def tp(number: int, members: str, **columns: Any) -> dict[str, Any]:
    """A row of RANK_GROUPS: eight ranks that share a model."""
    return group(group=number, kind="TP", ranks=8, members=members, **columns)


def dp(number: int, through: int | None = None, **columns: Any) -> dict[str, Any]:
    """A row of RANK_GROUPS: ranks of several of these, which may wait for another group."""
    waits = {"cost_work_ns": 0, "cost_group_ns": 20 * MS, "through": through}
    return group(group=number, kind="DP", **(waits if through else {}), **columns)


NO_REASON = {"cost_work_ns": 0, "cost_host_ns": 0}
LATE = {"rank37": LateRank(undisturbed_ns=MS // 10, code="augment (train.py:53)")}
AS_RECORDED = {"rank37": LateRank(undisturbed_ns=None, code="")}
SLOWER = {"rank37": LateRank(undisturbed_ns=MS // 10, code="", by_recording=True)}
SLOWED = [tp(1, "32-39"), dp(2, 1, rank=36, report="rank36")]
OTHER = tp(3, "0-7", rank=5, report="rank5", cost_step_ns=MS // 2)
EACH_LINK = [tp(at, f"{8 * at}-{8 * at + 7}", cost_step_ns=0) for at in (1, 2, 3)]
LINK = {"kind": "TP", "operation": "ncclAllReduce", "size_bytes": 1 << 23, "bytes": 8_388_608}
SLOW_LINK = LINK | {"group": 1, "bus_bytes_per_s": 67e9, "slow_ns": 4 * MS}
LINKS = [SLOW_LINK, *(LINK | {"group": at, "bus_bytes_per_s": 200e9} for at in (2, 3))]

SUMMARIES: Final[dict[str, Callable[[], RankSummary]]] = {
    "a rank is late in some steps": lambda: said(group(steps_last=2, cost_step_ns=MS // 10)),
    "a cost of less than a hundredth of a step": lambda: said(group(cost_step_ns=MS // 20)),
    "of a cost that late hosts hide, what the run would save counts": lambda: said(
        group(saved_step_ns=MS // 4)
    ),
    "and that may be nothing": lambda: said(group(saved_step_ns=0)),
    "a group that waits for another one comes after it, whatever it costs": lambda: said(
        dp(2, 1, cost_step_ns=2 * MS), tp(1, "32-39")
    ),
    "a group that says not for whom": lambda: said(tp(1, "32-39"), dp(2)),
    "of the groups of a straggler, that for which others wait": lambda: said(
        dp(0, cost_step_ns=2 * MS), tp(1, "32-39"), dp(2, 1, rank=36)
    ),
    "no collectives together": said,
    "its copies": lambda: said(group(**NO_REASON | {"cost_copy_ns": 19 * MS})),
    "its host": lambda: said(group(**NO_REASON | {"cost_host_ns": 19 * MS})),
    "several reasons have their shares": lambda: said(
        group(cost_work_ns=6 * MS, cost_host_ns=4 * MS)
    ),
    "without the profiler, and with a line": lambda: said(group(), late=LATE),
    "of a line nothing is known": lambda: said(group(), late=AS_RECORDED),
    "recording makes it late": lambda: said(*SLOWED, late=SLOWER),
    "then another straggler is named first": lambda: said(*SLOWED, OTHER, late=SLOWER),
    "a link is slower than the others": lambda: said(*EACH_LINK, bandwidth=LINKS),
    "what waits for a slow link is no straggler": lambda: said(
        EACH_LINK[0], dp(2, 1), bandwidth=[SLOW_LINK | {"bus_bytes_per_s": None}]
    ),
}
"""What is said of each is in pages/stragglers.txt."""
