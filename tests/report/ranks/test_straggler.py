"""What the ranks tell: who holds the others up, why, or that nobody does."""

from typing import Any

import pytest

from nsysflow.report.ranks import RankSummary, summarize_ranks
from tests.report.handmade import MS
from tests.report.ranks.made import group, ranks, run_of, steps


def said(*groups: dict[str, Any], many: bool = True, bandwidth: Any = ()) -> RankSummary:
    tables = {"ranks": ranks(64), "rank_steps": steps(64, 2), "bandwidth": bandwidth}
    return summarize_ranks(run_of(many=many, rank_groups=groups, **tables).judged)


def test_a_straggler_is_named_with_its_cost_and_how_often() -> None:
    assert said(group()).first == (
        "rank37 holds up the other 63 ranks: 1.00 ms a step (10 %), in every step"
    )
    some = said(group(steps_last=2, cost_step_ns=MS // 10))
    assert some.first.endswith("100 us a step (1.0 %), in 2 of 20 steps")


@pytest.mark.parametrize(
    ("late", "because"),
    [
        ({"cost_work_ns": 19 * MS}, "it computes longer"),
        ({"cost_copy_ns": 19 * MS}, "its exposed copies take longer"),
        ({"cost_host_ns": 19 * MS}, "its host is late"),
        ({"cost_work_ns": 6 * MS, "cost_host_ns": 4 * MS},
         "it computes longer (60 %) and its host is late (40 %)"),
    ],
)  # fmt: skip
def test_the_reason_is_a_clause_and_several_have_their_shares(
    late: dict[str, int], because: str
) -> None:
    none = {"cost_work_ns": 0, "cost_host_ns": 0}
    assert said(group(**none | late)).more == (f"rank37 comes late because {because}",)


def test_a_group_that_waits_for_another_one_comes_after_it() -> None:
    start = group(group=1, kind="TP", ranks=8, members="32-39")
    waiting = group(
        group=2, kind="DP", members="5,13,…,61", cost_step_ns=2 * MS,
        cost_work_ns=0, cost_group_ns=20 * MS, through=1,
    )  # fmt: skip
    found = said(waiting, start)
    assert found.first.startswith("rank37 holds up the other 7 ranks of TP 32-39: 1.00 ms a step")
    assert found.more[1] == "1 more group waits for TP 32-39"


def test_what_costs_less_than_a_hundredth_of_a_step_holds_nobody_up() -> None:
    little = group(cost_step_ns=MS // 20)
    assert said(little).first == "No rank holds the others up"
    assert said(little).more == ("rank37 costs its group most: 50.0 us a step (0.5 %)",)


def test_of_a_cost_that_late_hosts_hide_the_page_says_what_the_run_would_save() -> None:
    found = said(group(saved_step_ns=MS // 4))
    assert found.first == (
        "rank37 holds up the other 63 ranks: 250 us a step (2.5 %), in every step"
    )
    assert found.more[0] == (
        "The others wait 1.00 ms a step for it, but most of that time they would wait for their own"
        " hosts anyway"
    )


def test_a_straggler_without_whom_the_run_is_as_long_holds_nobody_up() -> None:
    found = said(group(saved_step_ns=0))
    assert found.first == "No rank holds the others up"
    assert found.more == (
        "The others wait for rank37 most, 1.00 ms a step (10 %), but they would wait for their own"
        " hosts anyway",
    )


def test_of_few_ranks_nothing_is_said_where_nobody_is_late() -> None:
    assert said(group(cost_step_ns=MS // 20), many=False) == RankSummary()
    assert said(group(), many=False).first.startswith("rank37 holds up")


def test_without_collectives_of_several_ranks_nobody_can_be_called_late() -> None:
    assert "nobody can be called late" in said().first


def test_a_slow_link_is_named_with_its_cost_and_the_speed_of_the_others() -> None:
    of = {"kind": "TP", "operation": "ncclAllReduce", "size_bytes": 1 << 23, "bytes": 8_388_608}
    slow = of | {"group": 1, "bus_bytes_per_s": 67e9, "slow_ns": 4 * MS}
    usual = [of | {"group": at, "bus_bytes_per_s": 200e9, "slow_ns": None} for at in (2, 3)]
    groups = [
        group(group=at, kind="TP", members=f"{8 * at}-{8 * at + 7}", cost_step_ns=0)
        for at in (1, 2, 3)
    ]
    found = said(*groups, bandwidth=[slow, *usual])
    assert found.first == "The link of TP 8-15 is slow: it costs up to 200 us a step (2.0 %)"
    assert found.more == ("ncclAllReduce of 8.39 MB moves 67.0 GB/s there, 200 GB/s in the others",)


def test_what_waits_for_a_slow_link_is_no_straggler() -> None:
    link = {"group": 1, "kind": "TP", "operation": "ncclAllReduce", "slow_ns": 4 * MS}
    slow = group(group=1, kind="TP", members="8-15", cost_step_ns=0)
    behind = {"cost_work_ns": 0, "cost_group_ns": 20 * MS, "through": 1, "kind": "DP"}
    found = said(slow, group(group=2, **behind), bandwidth=[link | {"bus_bytes_per_s": None}])
    assert found.first.startswith("The link of TP 8-15 is slow")
    assert found.more == ("1 more group waits for TP 8-15",)


def test_the_other_group_of_the_same_straggler_waits_too() -> None:
    found = said(group(group=1, kind="TP", ranks=8, members="32-39"), group(group=2, kind="DP"))
    assert found.more[1:] == ("1 more group waits for TP 32-39",)


def test_of_the_groups_of_a_straggler_the_one_counts_that_others_wait_for() -> None:
    behind = {"rank": 36, "kind": "DP", "cost_work_ns": 0, "cost_group_ns": 20 * MS, "through": 1}
    found = said(
        group(group=0, kind="DP", cost_step_ns=2 * MS),
        group(group=1, kind="TP", ranks=8, members="32-39"),
        group(group=2, **behind),
    )
    assert found.first.startswith("rank37 holds up the other 7 ranks of TP 32-39: 1.00 ms")
    assert found.more[1:] == ("2 more groups wait for TP 32-39",)
