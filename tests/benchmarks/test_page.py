"""The benchmark of report.html: its walk, and its figures."""

from benchmarks.page import WALK, Figure


def test_the_walk_ends_where_it_began() -> None:
    assert WALK.count("in") == WALK.count("out")
    assert WALK.count("ArrowLeft") == WALK.count("ArrowRight")


def test_a_figure_is_its_median_and_its_worst() -> None:
    row = Figure("zoom step", [16.7, 300.0, 12.0], "ms").row()
    assert row == {"what": "zoom step", "median": "16.7", "worst": "300", "unit": "ms"}
