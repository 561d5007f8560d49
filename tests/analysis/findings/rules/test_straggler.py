"""A rank that is last in most collectives."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.findings import find_of_run
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.communication import straggler
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks, rank_names
from tests import tiny
from tests.analysis.findings.subjects import MS, US, Row, launched, real
from tests.runs_of_ranks import Simulated

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def rank(name: str, computes_us: int, *, others_us: int) -> JudgedReport:
    """Steps in which a rank computes, and then reduces until the slower one has come too."""
    every = max(computes_us, others_us) + 300

    def rows() -> Iterator[Row]:
        for i in range(8):
            start = i * every * US
            yield tiny.opened(start, start + (every - 1) * US, "step")
            yield from launched(start, 10 * i + 1, at=5, took=5, kernel_ns=computes_us * US)
            yield tiny.launch(start + 15 * US, start + 20 * US, 10 * i + 2)
            begin = start + (12 + computes_us + 2) * US
            end = start + (14 + max(computes_us, others_us) + 200) * US
            yield tiny.kernel(begin, end, 10 * i + 2, name=REDUCE)
            yield tiny.call(start + 25 * US, end + 2 * US, "cudaDeviceSynchronize")

    trace = replace(tiny.trace_of(*rows()), report=name)
    return JudgedReport(nsysflow.analyze(trace, Options(skip=0)))


FAST = rank("rank0", 1_000, others_us=2_000)
SLOW = rank("rank1", 2_000, others_us=1_000)


def test_the_rank_that_is_last_is_named_and_what_the_other_waits_is_the_saving() -> None:
    ((subject, one),) = straggler(
        [FAST, SLOW], Ranks.of([digest(each.whole) for each in (FAST, SLOW)])
    )
    assert subject is FAST
    assert one.title == "straggler: rank1 holds up all ranks in 8 of 8 steps"
    assert one.evidence[2].startswith("it computes longer")
    assert 0.99 * MS < one.size_ns < 1.01 * MS


def test_a_run_s_findings_hold_its_straggler_by_a_replay() -> None:
    (one,) = (one for one in find_of_run([FAST, SLOW]).valued if one.finding.rule == "straggler")
    assert 0.8 * MS < one.high_ns <= 1.01 * MS
    assert one.low_ns == 0


def test_ranks_that_come_together_have_no_straggler() -> None:
    ranks = [real(f"ddp-no_overlap-rank{i}") for i in range(2)]
    assert "straggler" not in {one.finding.rule for one in find_of_run(ranks).valued}


def test_a_straggler_is_named_with_its_group_but_not_those_that_it_makes_late() -> None:
    run = Simulated(4)
    for _ in range(5):
        run.begin_step()
        for _layer in range(6):
            for number in range(4):
                run.compute(number, 200_000 + (number == 1) * 300_000)
            for pair in (0, 1):
                run.meet((2 * pair, 2 * pair + 1), REDUCE, communicator=1 + pair)
        for shard in (0, 1):
            run.meet((shard, shard + 2), REDUCE, communicator=8 + shard)
    found = [one for _, one in straggler([FAST], Ranks.of(run.digests()))]
    assert [one.title for one in found] == [
        "straggler: rank1 holds up TP group 0,1 in 5 of 5 steps"
    ]
    assert found[0].size_ns == 6 * 300_000
    assert found[0].culprit == "rank1"


def test_the_finding_names_the_group_that_others_wait_for_though_another_costs_more() -> None:
    run = Simulated(8)
    for _ in range(5):
        run.begin_step()
        for number in range(8):
            run.compute(number, 500_000 + (number == 1) * 900_000)
        for half in (0, 1):
            run.meet(range(4 * half, 4 * half + 4), REDUCE, communicator=1 + half)
        run.compute(1, 600_000)  # its second delay holds up only ranks 1 and 5
        for number in range(4):
            run.meet((number, number + 4), REDUCE, communicator=8 + number)
    ranks = Ranks.of(run.digests())
    assert ranks.judged.rank_groups.select("rank", "members").row(0) == (1, "1,5")
    found = [one for _, one in straggler([FAST], ranks)]
    assert [one.title for one in found] == [
        "straggler: rank1 holds up TP group 0-3 in 5 of 5 steps"
    ]


@pytest.mark.parametrize(
    ("places", "named"),
    [
        ([("rank0", 0), ("rank1", 0)], "rank1"),
        ([("merged", 0), ("merged", 1)], "GPU 1"),
        ([("node0", 0), ("node0", 1), ("node1", 0), ("node1", 1)], "node1 GPU 1"),
    ],
)
def test_a_rank_is_called_what_tells_it_from_the_others(
    places: list[tuple[str, int]], named: str
) -> None:
    ranks = pl.DataFrame(places, schema=["report", "device"], orient="row")
    assert rank_names(ranks)(*places[-1]) == named
