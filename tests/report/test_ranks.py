from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

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


def said(*groups: dict[str, Any], bandwidth: Any = ()) -> RankSummary:
    tables = {"ranks": ranks(64), "rank_steps": steps(64, 2), "bandwidth": bandwidth}
    return summarize_ranks(run_with(rank_groups=groups, **tables).judged)


def tp(number: int, members: str, **columns: Any) -> dict[str, Any]:
    """A row of RANK_GROUPS: eight ranks that share a model."""
    return group(group=number, kind="TP", ranks=8, members=members, **columns)


def dp(number: int, through: int | None = None, **columns: Any) -> dict[str, Any]:
    """A row of RANK_GROUPS: ranks of several of these, which may wait for another group."""
    waits = {"cost_work_ns": 0, "cost_group_ns": 20 * MS, "through": through}
    return group(group=number, kind="DP", **(waits if through else {}), **columns)


IN_EVERY = "1.00 ms a step (10 %), in every step"
IT_COMPUTES = "rank37 comes late because it computes longer"


@pytest.mark.parametrize(
    ("groups", "sentences"),
    [
        ([group(steps_last=2, cost_step_ns=MS // 10)],
         ["rank37 holds up the other 63 ranks: 100 us a step (1.0 %), in 2 of 20 steps",
          IT_COMPUTES]),
        # less than a hundredth of a step
        ([group(cost_step_ns=MS // 20)],
         ["No rank holds the others up", "rank37 costs its group most: 50.0 us a step (0.5 %)"]),
        # a cost that late hosts hide: what the run would save counts
        ([group(saved_step_ns=MS // 4)],
         ["rank37 holds up the other 63 ranks: 250 us a step (2.5 %), in every step",
          "The others wait 1.00 ms a step for it, but most of that time they would wait for their"
          " own hosts, which recording slows", IT_COMPUTES]),
        ([group(saved_step_ns=0)],
         ["No rank holds the others up",
          "The others wait for rank37 most, 1.00 ms a step (10 %), but they would wait for their"
          " own hosts, which recording slows"]),
        # groups that wait for another one come after it, whatever they cost
        ([dp(2, 1, cost_step_ns=2 * MS), tp(1, "32-39")],
         [f"rank37 holds up the other 7 ranks of TP 32-39: {IN_EVERY}", IT_COMPUTES,
          "1 more group waits for TP 32-39"]),
        ([tp(1, "32-39"), dp(2)],
         [f"rank37 holds up the other 7 ranks of TP 32-39: {IN_EVERY}", IT_COMPUTES,
          "1 more group waits for TP 32-39"]),
        # of the groups of a straggler, that for which others wait
        ([dp(0, cost_step_ns=2 * MS), tp(1, "32-39"), dp(2, 1, rank=36)],
         [f"rank37 holds up the other 7 ranks of TP 32-39: {IN_EVERY}", IT_COMPUTES,
          "2 more groups wait for TP 32-39"]),
        ([], ["The ranks have no collectives together, so nobody can be called late"]),
    ],
)  # fmt: skip
def test_who_holds_others_up_is_said(groups: list[dict[str, Any]], sentences: list[str]) -> None:
    found = said(*groups)
    assert [found.first, *found.more] == sentences


@pytest.mark.parametrize(
    ("late", "because"),
    [
        ({"cost_copy_ns": 19 * MS}, "its exposed copies take longer"),
        ({"cost_host_ns": 19 * MS}, "its host is late"),
        ({"cost_work_ns": 6 * MS, "cost_host_ns": 4 * MS},
         "it computes longer (60 %) and its host is late (40 %)"),
    ],
)  # fmt: skip
def test_several_reasons_have_their_shares(late: dict[str, int], because: str) -> None:
    none = {"cost_work_ns": 0, "cost_host_ns": 0}
    assert said(group(**none | late)).more == (f"rank37 comes late because {because}",)


def test_the_line_and_what_a_delay_costs_without_the_profiler_are_said() -> None:
    judged = run_with(rank_groups=[group()], ranks=ranks(64), rank_steps=steps(64, 2)).judged
    about = LateRank(undisturbed_ns=MS // 10, code="augment (train.py:53)")
    first, *more = summarize_ranks(judged, {"rank37": about}).more
    assert first == "Without the profiler it costs at most 100 us a step"
    assert more[-1].startswith("Its host spends more time in augment (train.py:53) than")
    as_recorded = LateRank(undisturbed_ns=None, code="")
    assert len(summarize_ranks(judged, {"rank37": as_recorded}).more) == len(more) - 1


SLOWER = LateRank(undisturbed_ns=MS // 10, code="", by_recording=True)


def test_a_rank_that_recording_makes_late_is_a_remark_and_another_straggler_is_named_first() -> (
    None
):
    waits = dp(2, 1, rank=36, report="rank36")
    other = tp(3, "0-7", rank=5, report="rank5", cost_step_ns=MS // 2)
    tables: dict[str, Any] = {"ranks": ranks(64), "rank_steps": steps(64, 2)}
    late = {"rank37": SLOWER}
    alone = summarize_ranks(run_with(rank_groups=[tp(1, "32-39"), waits], **tables).judged, late)
    assert (alone.first, alone.more) == ("No rank holds the others up", ())
    assert alone.remarks == (
        "rank37's host was slower while recorded, but does nothing more than the others",
        "That cost 1.00 ms a step (10 %); without the profiler it costs at most 100 us",
    )
    groups = [tp(1, "32-39"), waits, other]
    both = summarize_ranks(run_with(rank_groups=groups, **tables).judged, late)
    assert both.first.startswith("rank5 holds up the other 7 ranks of TP 0-7: 500 us a step")
    assert both.remarks == alone.remarks


def test_a_slow_link_is_named_with_its_cost_and_the_speed_of_the_others() -> None:
    of = {"kind": "TP", "operation": "ncclAllReduce", "size_bytes": 1 << 23, "bytes": 8_388_608}
    slow = of | {"group": 1, "bus_bytes_per_s": 67e9, "slow_ns": 4 * MS}
    usual = [of | {"group": at, "bus_bytes_per_s": 200e9, "slow_ns": None} for at in (2, 3)]
    groups = [tp(at, f"{8 * at}-{8 * at + 7}", cost_step_ns=0) for at in (1, 2, 3)]
    found = said(*groups, bandwidth=[slow, *usual])
    assert found.first == "The link of TP 8-15 is slow: it costs up to 200 us a step (2.0 %)"
    assert found.more == ("ncclAllReduce of 8.39 MB moves 67.0 GB/s there, 200 GB/s in the others",)


def test_what_waits_for_a_slow_link_is_no_straggler() -> None:
    link = {"group": 1, "kind": "TP", "slow_ns": 4 * MS, "bus_bytes_per_s": None}
    found = said(tp(1, "8-15", cost_step_ns=0), dp(2, 1), bandwidth=[link])
    assert found.first.startswith("The link of TP 8-15 is slow")
    assert found.more == ("1 more group waits for TP 8-15",)
