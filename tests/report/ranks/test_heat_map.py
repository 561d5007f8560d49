"""The heat map: letters for how much longer a rank took than the others."""

import polars as pl

from nsysflow.report.ranks import Line, heat_map
from tests.report.handmade import frame
from tests.report.ranks.made import steps


def drawn(rows: pl.DataFrame, *, alone: list[int], lines: int = 8, width: int = 80) -> list[Line]:
    return heat_map(rows, alone, lines, width)


def of(count: int, each: int, **late: list[int]) -> pl.DataFrame:
    named = {int(name[1:]): some for name, some in late.items()}
    return frame("rank_steps", *map(dict, steps(count, each, named)))


def test_a_rank_that_takes_a_tenth_of_a_step_longer_stands_out_in_these_steps() -> None:
    lines = drawn(of(4, 5, r2=[1, 3]), alone=[])
    assert [line.letters for line in lines] == ["·····", "·····", "·▓·▓·", "·····"]


def test_waiting_for_others_is_not_taking_longer() -> None:
    lines = drawn(of(3, 4, r0=[0, 1, 2, 3]), alone=[])
    assert [line.letters for line in lines] == ["▓▓▓▓", "····", "····"]


def test_ranks_to_show_alone_come_first_and_the_others_keep_their_neighbours() -> None:
    lines = drawn(of(16, 2), alone=[9], lines=6)
    assert [line.ranks for line in lines] == [
        (9,),
        (0, 1, 2, 3),
        (4, 5, 6, 7),
        (8, 10, 11),
        (12, 13, 14, 15),
    ]


def test_a_thousand_ranks_fit_into_the_lines_and_the_worst_of_them_is_seen() -> None:
    lines = drawn(of(1024, 3, r700=[1]), alone=[], lines=12)
    assert len(lines) == 8
    assert [line.letters for line in lines].count("·▓·") == 1
    assert sum(len(line.ranks) for line in lines) == 1024


def test_at_most_half_of_the_lines_show_a_rank_alone() -> None:
    lines = drawn(of(64, 2), alone=list(range(40)), lines=8)
    assert [len(line.ranks) for line in lines][:5] == [1, 1, 1, 1, 12]


def test_many_steps_fit_into_the_width_and_the_worst_of_them_is_seen() -> None:
    (line, *_) = drawn(of(2, 100, r0=[55]), alone=[], width=10)
    assert line.letters == "·····▒····" or line.letters == "·····▓····"


def test_a_step_that_a_rank_lacks_is_blank() -> None:
    rows = of(2, 3).filter(~((pl.col("rank") == 1) & (pl.col("step") == 1)))
    assert [line.letters for line in drawn(rows, alone=[])] == ["···", "· ·"]


def test_without_steps_there_is_no_picture() -> None:
    assert drawn(of(0, 0), alone=[]) == []
