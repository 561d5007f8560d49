"""The ranks, step by step, as heat maps."""

from typing import Any

import polars as pl
from matplotlib.axes import Axes

from nsysflow.report.figures import steps as of_ranks
from nsysflow.report.figures.steps import LOST
from nsysflow.report.results import Results
from tests.analyses import run_of
from tests.report.figures.drawn import drawn, ranks, texts
from tests.report.handmade import MS, handmade, renamed
from tests.report.ranks.made import many


def cells(axes: Axes) -> list[list[float | None]]:
    """The values of a heat map, rank by rank."""
    (image,) = axes.images
    values = image.get_array()
    assert values is not None
    rows = values.tolist()  # what is masked becomes None
    return [[None if value is None or value != value else value for value in row] for row in rows]


def test_cells_are_the_steps_and_what_they_lost() -> None:
    run = ranks()
    length, lost = drawn(of_ranks.draw_ranks, run).axes[:2]
    for axes, value in ((length, pl.col("duration_ns")), (lost, pl.sum_horizontal(LOST))):
        steps = run.steps.select("report", "step", value.alias("ns")).sort("report", "step")
        by_rank = steps.group_by("report", maintain_order=True).agg("ns")
        assert cells(axes) == by_rank["ns"].to_list()


def step(number: int, **columns: Any) -> dict[str, Any]:
    return {"step": number, "kind": "steady", **columns}


def test_a_step_that_a_rank_lacks_is_empty() -> None:
    first = renamed(handmade(steps=[step(3, duration_ns=MS), step(4, duration_ns=2 * MS)]), "a")
    second = renamed(handmade(steps=[step(4, duration_ns=3 * MS)]), "b")
    figure = drawn(of_ranks.draw_ranks, Results([first, second]))
    assert cells(figure.axes[0]) == [[MS, 2 * MS], [None, 3 * MS]]
    assert {"a GPU 0", "b GPU 0"} <= {*texts(figure)}


def test_one_rank_makes_no_figure() -> None:
    assert of_ranks.draw_ranks(run_of("nan_check-sync")) is None


def test_of_many_ranks_all_are_drawn_and_some_are_named() -> None:
    figure = drawn(of_ranks.draw_ranks, many())
    own = cells(figure.axes[0])
    assert len(own) == 64
    assert [row[0] for row in own if row[0] != 8 * MS] == [9 * MS]
    assert {"rank0 GPU 0", "rank62 GPU 6"} <= {*texts(figure)}
    assert "rank1 GPU 1" not in texts(figure)
