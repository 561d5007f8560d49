"""The page of many ranks: one screen, what they tell first, then the typical rank."""

from rich.cells import cell_len

from nsysflow.report.markdown import summary
from nsysflow.report.page import compose
from nsysflow.report.results import Results
from nsysflow.report.terminal import page
from tests.report.test_ranks import group, many, ranks, run_of, steps


def shown(run: Results, width: int = 110) -> list[str]:
    return [line.plain for line in page(run, width=width, top=None)]


def test_many_ranks_are_a_number_and_the_straggler_comes_before_the_verdict() -> None:
    lines = shown(many())
    assert lines[0].startswith("64 ranks · ")
    told = lines.index("rank37 holds up the other 63 ranks: 1.00 ms a step (10 %), in every step")
    verdict = next(at for at, line in enumerate(lines) if ", the typical rank: " in line)
    assert told < verdict


def test_one_screen_begins_with_what_the_ranks_tell_and_ends_with_the_typical_one() -> None:
    titles = [block.title for block in compose(many(), "page", top=None, at_least_ns=0).blocks]
    assert titles == [
        "Groups",
        "Ranks by step",
        "Outliers",
        "Bandwidth",
        "GPU time of run.sqlite",
        "Kernels of run.sqlite",
        "Phases of run.sqlite",
    ]


def test_many_ranks_fit_on_one_screen() -> None:
    lines = shown(many())
    assert len(lines) <= 60
    assert max(map(cell_len, lines)) <= 110


def test_the_full_page_has_the_rest_of_the_typical_rank_too() -> None:
    titles = [block.title for block in compose(many(), "full", top=None, at_least_ns=0).blocks]
    assert titles.index("Bandwidth") < titles.index("Idle time of run.sqlite")
    assert "Ranks" in titles


def test_few_ranks_have_neither_heat_map_nor_outliers() -> None:
    run = run_of(many=False, ranks=ranks(2), rank_groups=[group()], rank_steps=steps(2, 3))
    titles = [block.title for block in compose(run, "page", top=None, at_least_ns=0).blocks]
    assert not {"Ranks by step", "Outliers", "Groups"} & {*titles}
    assert "GPU time" in titles


def test_the_summary_says_what_the_ranks_tell_without_a_picture_of_letters() -> None:
    text = summary(many())
    assert text.startswith("# 64 ranks\n\n**rank37 holds up the other 63 ranks")
    assert "rank37 comes late because it computes longer." in text
    assert "▓" not in text


def test_where_nobody_holds_the_others_up_the_dearest_group_still_comes_first() -> None:
    costs = {"0-7": 10_000, "8-15": 30_000, "16-23": 20_000}
    groups = [
        group(group=number, kind="TP", ranks=8, members=members, cost_step_ns=cost)
        for number, (members, cost) in enumerate(costs.items())
    ]
    run = run_of(ranks=ranks(24), rank_groups=groups, rank_steps=steps(24, 2))
    lines = shown(run)
    first = lines.index(next(line for line in lines if line.startswith("Groups")))
    rows = [line for line in lines[first:] if line.lstrip().startswith("TP ")]
    assert [row.split()[1] for row in rows] == ["8-15", "16-23", "0-7"]
