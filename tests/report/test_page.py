from dataclasses import replace

import pytest

from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.tables.index import ABOUT, declarations
from nsysflow.report.page import Length, Page, compose
from nsysflow.report.phase_tree import phase_names, phase_tree
from nsysflow.report.results import Origin
from nsysflow.report.results import Results as RealResults
from tests.analyses import analysed, few_reports, run_of
from tests.report.handmade import (
    MS,
    Results,
    device,
    handmade,
    results,
    training,
    valued,
    with_findings,
)
from tests.report.test_ranks import group, many, ranks, run_with, steps


def composed(of: RealResults, length: Length = "page", top: int | None = None) -> Page:
    return compose(of, length, top=top, at_least_ns=0)


def test_what_took_part_in_the_recording_is_said_as_far_as_it_is_known() -> None:
    trace = replace(training().trace, source="Nsight Systems 2025.1, schema 3.11")
    run = replace(training(), trace=trace)
    versions = {"nvtx": "0.2", "torch": "2.13.0", "driver": "580.65"}
    origin = Origin(versions=versions, started="2026-11-20T10:00:00+00:00")
    assert composed(Results([run])).recorded == ("Nsight Systems 2025.1",)
    assert composed(Results([run], origin=origin)).recorded == (
        "Nsight Systems 2025.1", "driver 580.65", "torch 2.13.0", "2026-11-20",
    )  # fmt: skip


@pytest.mark.parametrize("length", ["page", "full"])
def test_top_sets_the_rows_of_each_list_but_not_the_gpus(length: Length) -> None:
    rows = [device(100 * MS, device=index, host_ns=MS) for index in range(3)]
    page = composed(results(accounting=rows), length, top=1)
    assert [len(block.rows) for block in page.blocks if block.title == "GPU time"] == [3]
    training_page = composed(Results([training()]), length, top=1)
    (waits,) = [block for block in training_page.blocks if block.title == "Waits"]
    assert len(waits.rows) == 1


def test_the_full_page_has_the_rest_of_the_typical_rank_too() -> None:
    titles = [block.title for block in composed(many(), "full").blocks]
    assert titles.index("Bandwidth") < titles.index("Idle time of run.sqlite")
    assert "Ranks" in titles


def test_few_ranks_have_neither_heat_map_nor_outliers() -> None:
    run = run_with(many=False, ranks=ranks(2), rank_groups=[group()], rank_steps=steps(2, 3))
    titles = {block.title for block in composed(run).blocks}
    assert not {"Ranks by step", "Outliers", "Groups"} & titles
    assert "GPU time" in titles


def test_where_nobody_holds_the_others_up_the_dearest_group_still_comes_first() -> None:
    costs = {"0-7": 10_000, "8-15": 30_000, "16-23": 20_000}
    groups = [
        group(group=number, kind="TP", ranks=8, members=members, cost_step_ns=cost)
        for number, (members, cost) in enumerate(costs.items())
    ]
    run = run_with(ranks=ranks(24), rank_groups=groups, rank_steps=steps(24, 2))
    (block,) = (each for each in composed(run).blocks if each.title == "Groups")
    assert [row[0] for row in block.rows] == ["TP 8-15", "TP 16-23", "TP 0-7"]


def test_the_tables_of_a_run_are_of_all_its_reports() -> None:
    both = Results([analysed(f"h200-ddp-rank{number}") for number in (0, 1)])
    assert both.table("arrivals").height == 30
    assert both.table("ranks")["report"].to_list() == ["h200-ddp-rank0", "h200-ddp-rank1"]
    assert Results([handmade()]).table("ranks").is_empty()


@few_reports
def test_one_rank_has_the_tables_of_ranks_that_its_digest_gives(name: str) -> None:
    analysis = analysed(name)
    run, ranks = Results([analysis]), Ranks.of([digest(analysis)])
    of_run = [table.name for table in declarations(ABOUT) if table.scope == "run"][1:]
    assert of_run
    assert all(run.table(name).equals(ranks.table(name)) for name in of_run)


def test_the_judged_part_has_the_findings_of_the_run() -> None:
    run = with_findings(valued())
    assert len(run.findings) == 1
    assert run.judged.findings.equals(run.findings)


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        (Options(), ""),
        (Options(device=1, steps=(StepPart(2), StepPart(7, 8, out=True))),
         "--device 1 --steps 2: --steps '!7'"),
        (Options(range="my range", from_ns=1_500_000_000), "--range 'my range' --from 1.5"),
        (Options(step="my step", skip=0), "--step 'my step' --skip 0"),
        (Options(whole=True), "--whole"),
    ],
)  # fmt: skip
def test_a_run_is_typed_again_with_its_selection(options: Options, typed: str) -> None:
    run = Results([replace(handmade(), options=options)])
    assert run.again == f"run.sqlite {typed}".strip()


@few_reports
def test_the_causes_of_a_phase_sum_to_its_idle_time(name: str) -> None:
    found, _ = phase_tree(run_of(name).judged, 100)
    assert [sum(phase.causes_ns.values()) for phase in found] == [each.idle_ns for each in found]


def test_a_short_tree_keeps_the_longest_phases_and_those_around_them() -> None:
    found, left_out = phase_tree(Results([training()]), 2)
    assert [phase.names for phase in found[:2]] == [("step",), ("step", "forward")]
    assert left_out == 1


def test_a_name_with_a_slash_stays_one_name_and_nests_as_deep_as_it_likes() -> None:
    keys = [("a", 1), ("a/b", 1), ("a/b/c", 2), ("a/b/c/d", 3)]
    assert phase_names(keys) == [("a",), ("a/b",), ("a/b", "c"), ("a/b", "c", "d")]
    depth = 1500  # of a range that is never popped
    keys = [("/".join(["step"] * level), level) for level in range(1, depth + 1)]
    assert phase_names(keys)[-1] == ("step",) * depth


def test_idle_time_before_work_without_a_launch_is_apart() -> None:
    found, _ = phase_tree(results(accounting=[device(9 * MS, host_ns=2 * MS, unknown_ns=MS)]), 10)
    idle = [(*phase.names, phase.idle_ns // MS) for phase in found]
    assert idle == [("(outside ranges)", 2), ("(not recorded)", 1)]


def test_phases_busy_at_the_same_time_leave_no_negative_rest() -> None:
    rows = [{"path": path, "depth": 1, "busy_ns": 80 * MS, "process": 7} for path in ("a", "b")]
    found, _ = phase_tree(results(accounting=[device(100 * MS)], phases=rows), 10)
    assert [phase.names[0] for phase in found] == ["a", "b"]  # nothing is outside the ranges
